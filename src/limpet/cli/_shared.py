"""What the verbs share: options, opening the store they are asked about, and the shape of JSON."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

import click

import limpet
from limpet.cli._terminal import make_console, output
from limpet.opening import DEFAULT_URL, file_of, scheme_of
from limpet.views.sizes import age_text

__all__ = [
    "address_options",
    "age_text",
    "confirm",
    "echo_json",
    "existing_store",
    "finding_json",
    "json_option",
    "make_console",
    "output",
    "session_option",
    "snapshot_json",
    "time_json",
    "url_option",
    "without_setup",
    "yes_option",
]

F = TypeVar("F", bound=Callable[..., Any])

_RETRY_S = 5.0


def url_option(command: F) -> F:
    """Add `--url`, which may also stand in `$LIMPET_URL`."""
    return click.option(
        "--url",
        metavar="URL",
        envvar="LIMPET_URL",
        show_envvar=True,
        default=DEFAULT_URL,
        callback=lambda context, option, url: url or DEFAULT_URL,
        help=f"The store: sqlite:///file.db, a folder, postgresql://…, s3://…. Else {DEFAULT_URL}",
    )(command)


def json_option(command: F) -> F:
    """Add `--json`; the shape stands in the help of the verb."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(
        command
    )


def yes_option(command: F) -> F:
    """Add `--yes`, for those who were asked before."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask.")(command)


def session_option(help: str) -> Callable[[F], F]:
    """Return `--session`, which the Tab key completes."""

    def complete(context: click.Context, option: click.Parameter, begun: str) -> Any:
        from limpet.cli.completion import complete_session  # which needs this file

        return complete_session(context, option, begun)

    return click.option("-s", "--session", metavar="SESSION", help=help, shell_complete=complete)


def address_options(command: F) -> F:
    """Add `--session`, `--scope` and `--kind`: in which line of state a snapshot is looked for."""
    for option in (
        click.option("--kind", metavar="KIND", help="The kind of the scope, where several fit."),
        click.option("--scope", metavar="SCOPE", help="The scope of the session, by its id."),
        session_option("The session to look in."),
    ):
        command = option(command)
    return command


@contextmanager
def existing_store(url: str) -> Iterator[limpet.Store]:
    """Open a store that is there: asking about a store must not create one."""
    path = file_of(url)
    what = "folder" if scheme_of(url) == "file" else "file"
    # An empty file would be given tables, so it is as good as none.
    if path is not None and not (os.path.isdir(path) or _has_bytes(path)):
        raise limpet.NotFound(
            f"there is no such {what}; name one with --url or $LIMPET_URL. path=`{path}`"
        )
    with limpet.open(url, **without_setup(url), **_impatient(url)) as store:
        yield store


def _has_bytes(path: str) -> bool:
    return os.path.exists(path) and os.path.getsize(path) > 0


def _impatient(url: str) -> dict[str, float]:
    """Return what keeps a person from waiting a minute for a service that is not there."""
    is_remote = scheme_of(url) in ("s3", "gs", "az") and "retry_s=" not in url.partition("?")[2]
    return {"retry_s": _RETRY_S} if is_remote else {}


def without_setup(url: str) -> dict[str, bool]:
    """Return what keeps a server from being given tables by a mere look."""
    says_so = "setup=" in url.partition("?")[2]
    return {} if says_so or scheme_of(url) != "postgresql" else {"setup": False}


def confirm(question: str, *, yes: bool) -> None:
    """Ask on the terminal, unless the answer was given with `--yes`; no ends with exit code 130.

    Where there is nobody to ask nothing is assumed.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask on: say --yes if it is meant")
    click.confirm(question, abort=True, err=True)


def echo_json(value: Any, *, indent: int | None = 2) -> None:
    """Print a value as JSON in ASCII, which every terminal and every pipe can carry."""
    click.echo(json.dumps(value, indent=indent))


def time_json(moment: datetime) -> str:
    """Return a time as all verbs write it: UTC, with microseconds where there are any."""
    return moment.isoformat().replace("+00:00", "Z")


def snapshot_json(info: limpet.SnapshotInfo) -> dict[str, Any]:
    """Return the facts of a snapshot as all verbs write them."""
    origin = info.forked_from
    return {
        **info.scope._asdict(),
        "id": info.id,
        "parent_id": info.parent_id,
        "forked_from": None if origin is None else {**origin.scope._asdict(), "id": origin.id},
        "status": info.status,
        "labels": info.labels,
        "metadata": info.metadata,
        "created_at": time_json(info.created_at),
        "updated_at": time_json(info.updated_at),
        "kept": info.kept,
        "size": info.size,
        "revision": info.revision,
    }


def finding_json(finding: limpet.Finding) -> dict[str, object]:
    """Return a finding as all verbs write it."""
    return {
        "severity": finding.severity,
        "code": finding.code,
        "message": finding.message,
        "scope": None if finding.scope is None else finding.scope._asdict(),
        "id": finding.id,
        "repaired": finding.repaired,
    }
