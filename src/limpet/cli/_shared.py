"""What the verbs share: options, completion of session ids, opening a store, the JSON shapes."""

import json
import os
import re
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any, TypeVar, cast
from urllib.parse import quote

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

import limpet
from limpet.core import codec
from limpet.opening import DEFAULT_URL, file_of, scheme_of, stores_here
from limpet.views.format import masked_url, visible, without_secrets

F = TypeVar("F", bound=Callable[..., Any])

_REMOTE = ("s3", "gs", "az", "http", "https")
_RETRY_S = 5.0
_COMPLETIONS_MAX = 50
_STORES_SHOWN = 6
SKIPPED_SHOWN = 5  # of what is damaged, before only the number is said
# A completed name goes into a command line unquoted: it must not be run by the shell, be taken for
# an option, or end the line in which a completion is passed.
_SAFE_NAME = re.compile(r"(?!-)[\w@%+=:./-]+")


class Count(click.IntRange):
    """A whole number from `min` up."""

    def __init__(self, min: int) -> None:
        super().__init__(min=min)
        self.name = f"whole number, {min} or more"  # which the message about a bad value shows


def _store_url(context: click.Context, option: click.Parameter, given: str | None) -> str | None:
    """Return the URL after the verb, or before it, or of the environment, or of this folder."""
    above = context.parent and context.parent.params.get("url")
    if above and context.get_parameter_source("url") is not ParameterSource.COMMANDLINE:
        return str(above)
    # A group leaves it to its verbs, which may name another.
    if given or context.resilient_parsing or isinstance(context.command, click.Group):
        return given
    return url_here()


def url_argument(command: F) -> F:
    """Add the store as an argument or as `--url`: None if neither is given, here or before."""
    keep = "limpet.url"

    def named(context: click.Context, option: click.Parameter, given: str | None) -> None:
        context.meta[keep] = given

    def chosen(context: click.Context, argument: click.Parameter, given: str | None) -> str | None:
        is_typed = context.get_parameter_source("url") is ParameterSource.COMMANDLINE
        if is_typed and context.meta[keep]:
            raise click.UsageError("name the store once: as URL, or with --url")
        above = context.parent and context.parent.params.get("url")
        return context.meta[keep] or (given if is_typed else above or given)

    # Not exposed: it comes first, and the argument stands for both.
    option = click.option(
        "--url",
        "named",
        metavar="URL",
        is_eager=True,
        expose_value=False,
        callback=named,
        help="The same as the argument.",
    )
    argument = click.argument("url", required=False, envvar="LIMPET_URL", callback=chosen)
    return argument(option(command))


def url_here() -> str:
    """Return the URL to use if none is given; if it is of the only store here, say so."""
    url, store = _url_here()
    if store is not None:
        hint = "the only store in this folder (--url names another)"
        click.echo(f"limpet: using {visible(store)}, {hint}", err=True)
    return url


def _url_here() -> tuple[str, str | None]:
    found = [] if os.path.exists(file_of(DEFAULT_URL) or "") else stores_here()
    if not found:
        return DEFAULT_URL, None
    if len(found) > 1:
        shown = ", ".join(map(visible, found[:_STORES_SHOWN]))
        more = ", …" if len(found) > _STORES_SHOWN else ""
        fact = "several stores are in this folder: name one with --url or $LIMPET_URL"
        raise click.UsageError(f"{fact}. found=`{shown}{more}`")
    return f"sqlite:///{quote(found[0])}", found[0]


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
_url_option = click.option(
    "--url",
    metavar="URL",
    envvar="LIMPET_URL",
    show_envvar=True,
    callback=_store_url,
    help="The store: sqlite:///file.db, a folder, postgresql://…, s3://…."
    f" Default: the only store in this folder, or {DEFAULT_URL}",
)


def store_options(command: F) -> F:
    """Add `--url` and `--json`."""
    return _url_option(json_option(command))


def with_store(*, write: bool = False) -> Callable[[F], F]:
    """Add `--url` and `--json`, and open the store: the first argument of the verb."""

    def decorate(verb: F) -> F:
        @wraps(verb)
        def run(url: str, **options: Any) -> Any:
            with existing_store(url, read_only=not write) as store:
                return verb(store, **options)

        return store_options(cast(F, run))

    return decorate


def session_option(help: str) -> Callable[[F], F]:
    return click.option(
        "-s", "--session", metavar="SESSION", help=help, shell_complete=complete_session
    )


def address_options(command: F) -> F:
    """Add `--session`, `--scope` and `--kind`: where to look for a snapshot."""
    for option in (
        click.option("--kind", metavar="KIND", help="The kind of the scope, if several match."),
        click.option("--scope", metavar="SCOPE", help="The id of the scope."),
        session_option("The session to look in."),
    ):
        command = option(command)
    return command


def complete_session(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return at most 50 sessions that begin with `incomplete`; none if the store cannot be read."""
    try:
        with existing_store(context.params["url"] or _url_here()[0], read_only=True) as store:
            names = store.sessions(prefix=incomplete, limit=_COMPLETIONS_MAX)
            return [CompletionItem(name) for name in names if _SAFE_NAME.fullmatch(name)]
    except (limpet.LimpetError, click.UsageError, OSError):
        return []


def existing_store(url: str, *, read_only: bool = False, **options: Any) -> limpet.Store:
    """Open a store, without creating one; see `existing_options`."""
    return limpet.open(url, **existing_options(url, read_only=read_only), **options)


def existing_options(url: str, *, read_only: bool = False) -> dict[str, Any]:
    """Return the options that open a store and do not create one: NotFound if there is no file.

    With `read_only` a SQLite file is opened with mode=ro, unless the URL says something else.
    """
    check_exists(url, "name one with --url or $LIMPET_URL")
    options, query = without_setup(url), url.partition("?")[2]
    if scheme_of(url) in _REMOTE and "retry_s=" not in query:
        options["retry_s"] = _RETRY_S  # a person should not wait a minute for an absent service
    if read_only and scheme_of(url) == "sqlite" and "mode=" not in query:
        options["mode"] = "ro"
    return options


def check_exists(url: str, advice: str) -> None:
    """Raise NotFound if a URL names a file or folder that does not exist."""
    path = file_of(url)
    if path is None:
        return
    try:
        # An empty file would be given tables, so it counts as missing.
        if os.path.isdir(path) or os.stat(path).st_size:
            return
    except PermissionError:
        return  # opening it says so
    except OSError:
        pass
    fact = f"there is no such {'folder' if scheme_of(url) == 'file' else 'file'}; {advice}"
    raise limpet.NotFound(f"{fact}. path=`{masked_url(path)}`")  # it may be mistyped


def load_snapshot(store: limpet.Store, info: limpet.SnapshotInfo) -> limpet.Snapshot:
    found = store.scope(*info.scope).load(info.id)
    if found is None:
        raise limpet.NotFound(f"the snapshot was deleted just now. id=`{info.id}`")
    return found


def without_setup(url: str) -> dict[str, Any]:
    """Return the option that keeps PostgreSQL from creating tables, unless the URL sets it."""
    is_given = "setup=" in url.partition("?")[2]
    return {} if is_given or scheme_of(url) != "postgresql" else {"setup": False}


def confirm(question: str, *, yes: bool) -> None:
    """Ask on the terminal, unless `yes`; the answer no ends with exit code 130."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("this needs confirmation, and there is no terminal: pass --yes")
    click.confirm(question, abort=True, err=True)


def echo_skipped(text: str) -> None:
    """Report damaged data that is skipped, on one line."""
    line = visible(" ".join(without_secrets(text).split()))
    click.echo(f"limpet: skipped: {line}", err=True)


class Skipped:
    """Reports what is damaged and skipped: the first, and at the end how many there were."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, text: str) -> None:
        self.count += 1
        if self.count <= SKIPPED_SHOWN:
            echo_skipped(text)

    def end(self, noun: str) -> None:
        if self.count > SKIPPED_SHOWN:
            echo_skipped(f"{self.count:,} {noun} in all")


def parse_json(text: bytes) -> limpet.JSON:
    """Parse what a person wrote; ValueError if it is not JSON."""
    try:
        return codec.decode(b" " + text)  # the space lets it read integers of any length
    except limpet.Corrupt as cause:
        raise ValueError("not JSON") from cause


def echo_json(value: Any, *, indent: int | None = 2) -> None:
    click.echo(json.dumps(value, indent=indent))


_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_PIECE = re.compile(r"(\d+)([smhdw])")


def duration(text: str) -> timedelta:
    """Parse 90s, 15m, 12h, 30d, 8w, also 1d12h."""
    pieces = _PIECE.findall(text)
    if not pieces or "".join(map("".join, pieces)) != text:
        raise click.BadParameter(f"write it like 90s, 15m, 12h, 30d or 8w. found=`{text}`")
    try:
        each = (timedelta(**{_UNITS[unit]: int(number)}) for number, unit in pieces)
        return sum(each, timedelta())
    except (OverflowError, ValueError):
        raise click.BadParameter("the time is too long") from None
