"""`limpet doctor`, `schema` and `completion`: what is installed, and how to set it up."""

import os
import platform
import sqlite3
import stat
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from urllib.parse import quote

import click
from click.shell_completion import get_completion_class
from rich.console import Console
from rich.text import Text

import limpet
from limpet.cli import _exits
from limpet.cli._shared import (
    echo_json,
    existing_options,
    json_option,
    store_options,
    without_setup,
)
from limpet.cli._terminal import make_console
from limpet.compat import is_installed
from limpet.opening import (
    CLOCK,
    DEFAULT_SCHEMA,
    draw,
    file_of,
    keys_file_of,
    schema_migrations,
    scheme_of,
)
from limpet.views.format import masked_url, visible, without_secrets

EXTRAS = {
    "adk": ("google.adk",),
    "ag2": ("ag2",),
    "agent-framework": ("agent_framework",),
    "claude": ("claude_agent_sdk",),
    "cli": ("click", "markdown_it", "nh3", "rich"),
    "crewai": ("crewai",),
    "encryption": ("cryptography",),
    "genkit": ("genkit",),
    "http": ("urllib3",),
    "inspector": ("jinja2", "markdown_it", "nh3", "uvicorn"),
    "langchain": ("langchain_core",),
    "langgraph": ("langgraph",),
    "llama-index": ("llama_index.core",),
    "openai": ("agents",),
    "otel": ("opentelemetry.trace",),
    "postgres": ("psycopg",),
    "pydantic-ai": ("pydantic_ai",),
    "s3": ("obstore",),
    "server": ("uvicorn", "httptools"),
    "testing": ("pytest", "hypothesis"),
    "watch": ("watchfiles",),
}
_LIBRARIES = ("orjson", "zstandard", "xxhash")
_SAVES = 20
_SESSION = "doctor"
_STATE = {"messages": [{"role": "user", "content": "x" * 1000}]}


@dataclass(frozen=True, slots=True)
class _Check:
    name: str
    detail: str
    code: int = _exits.FINE


@click.command()
@store_options
def doctor(url: str, as_json: bool) -> int:
    """Show what is installed, and whether the storage works.

    The storage is tested in a temporary store next to yours (a file or folder in the same folder,
    or another prefix in the bucket), on PostgreSQL in a temporary session. Both are removed, and
    your data is not touched.

    \b
    --json: {"versions": {"limpet": text, "python": text, "sqlite": text, ...},
             "extras": {name: true or false, ...}, "url": text, without secrets,
             "checks": [{"check": "open", "compare-and-set", "durable-save" or "private",
                         "ok": true or false, "detail": text}, ...],
             "durable_save_ms": the median of 20, or null}

    \b
    Examples:
      limpet doctor
      limpet doctor --url s3://bucket/agents
    """
    results = [_check_opening(url)]
    if results[0].code == _exits.FINE:
        results += _readable_by_others(url)
    took_ms: float | None = None
    try:
        with _temporary_store(url) as (one, other, session_id):
            results.append(_compare_and_set(one, other, session_id))
            took_ms = _durable_save_ms(one, session_id)
            detail = f"a durable save takes {took_ms:.2f} ms (median of {_SAVES}, 1 KB each)"
            results.append(_Check("durable-save", detail))
    except (limpet.LimpetError, OSError) as error:
        code = _exits.code_of(error) if isinstance(error, limpet.LimpetError) else 0
        detail = f"the storage could not be tested: {_error_text(error)}"
        results.append(_Check("compare-and-set", detail, code or _exits.UNAVAILABLE))
    if as_json:
        echo_json(_doctor_json(url, results, took_ms))
    else:
        _draw_doctor(make_console(), url, results)
    return next((each.code for each in results if each.code), _exits.FINE)


def _check_opening(url: str) -> _Check:
    try:
        limpet.open(url, **existing_options(url)).close()
    except limpet.NotFound:
        return _Check("open", "the file does not exist yet; the first save creates it")
    except limpet.LimpetError as error:
        return _Check(
            "open", f"the store cannot be opened: {_error_text(error)}", _exits.code_of(error)
        )
    return _Check("open", "the store can be opened")


def _readable_by_others(url: str) -> list[_Check]:
    """Warn of a store, or keys, that other users of this machine can read."""
    files = {"the store": file_of(url), "the keys of the store": keys_file_of(url)}
    return [
        _Check("private", f"other users can read {what}: run `chmod go-rwx {path}`")
        for what, path in files.items()
        if path is not None and os.path.exists(path)
        if os.stat(path).st_mode & (stat.S_IRGRP | stat.S_IROTH)
    ]


@contextmanager
def _temporary_store(url: str) -> Iterator[tuple[limpet.Store, limpet.Store, str]]:
    """Open a temporary store of the same kind twice, and yield it with a session to use."""
    path = file_of(url)
    if path is None:
        address, mark, rest = url.partition("?")
        if scheme_of(url) == "memory":
            with limpet.open(url) as store:
                yield store, store, _SESSION
            return
        name = f".limpet-doctor-{draw().nonce}"
        options = without_setup(url)
        on_server = scheme_of(url) in ("postgresql", "http", "https")
        temporary = url if on_server else f"{address.rstrip('/')}/{name}{mark}{rest}"
        with limpet.open(temporary, **options) as one, limpet.open(temporary, **options) as other:
            try:
                yield one, other, name
            finally:
                one.delete_session(name)
        return
    query = url.partition("?")[1:]
    with tempfile.TemporaryDirectory(
        prefix=".limpet-doctor-", dir=os.path.dirname(path), ignore_cleanup_errors=True
    ) as folder:
        temporary = f"{scheme_of(url)}:///{quote(os.path.join(folder, 'try.db'))}{''.join(query)}"
        with limpet.open(temporary) as one, limpet.open(temporary) as other:
            yield one, other, _SESSION


def _compare_and_set(one: limpet.Store, other: limpet.Store, session_id: str) -> _Check:
    """Write from the same revision twice: the second writer must lose and leave nothing."""
    mine, theirs = one.scope(session_id), other.scope(session_id)
    start = mine.save(1, expect=None)
    theirs.save(2, expect=start.revision)
    for stale in (start.revision, None):
        with suppress(limpet.Conflict):
            mine.save(3, expect=stale)
    states = [each.state for each in mine.load_many(info.id for info in theirs.history())]
    if states == [2, 1]:
        return _Check(
            "compare-and-set", "compare-and-set works: the second of two writers gets a conflict"
        )
    return _Check(
        "compare-and-set",
        "compare-and-set does NOT work: writers would overwrite each other",
        _exits.FOUND,
    )


def _durable_save_ms(store: limpet.Store, session_id: str) -> float:
    scope = store.scope(session_id, "speed")
    scope.save(_STATE)  # warm up
    took_s = []
    for _ in range(_SAVES):
        begin = CLOCK.monotonic()
        scope.save(_STATE)
        took_s.append(CLOCK.monotonic() - begin)
    return statistics.median(took_s) * 1000


def _versions() -> dict[str, str]:
    return {
        "limpet": limpet.__version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        **{name: version(name) for name in _LIBRARIES},
    }


def _extras() -> dict[str, bool]:
    return {extra: all(map(is_installed, modules)) for extra, modules in EXTRAS.items()}


def _error_text(error: Exception) -> str:
    if isinstance(error, OSError):  # its text names the path, which may be a mistyped URL
        return error.strerror or type(error).__name__
    return visible(without_secrets(str(error)))


def _doctor_json(url: str, results: list[_Check], took_ms: float | None) -> dict[str, object]:
    return {
        "versions": _versions(),
        "extras": _extras(),
        "url": masked_url(url),
        "checks": [
            {"check": each.name, "ok": each.code == _exits.FINE, "detail": each.detail}
            for each in results
        ],
        "durable_save_ms": None if took_ms is None else round(took_ms, 3),
    }


def _draw_doctor(console: Console, url: str, results: list[_Check]) -> None:
    for name, text in _versions().items():
        console.print(Text.assemble((f"{name:<11}", "quiet"), text))
    extras = _extras()
    there = Text("  ").join(Text(f"{name} ✓", "good") for name in extras if extras[name])
    console.print(Text.assemble(("extras     ", "quiet"), there))
    others = ", ".join(name for name in extras if not extras[name])
    if others:
        console.print(Text(f"           not installed: {others}", "quiet"))
    shown = visible(masked_url(url))
    console.print(Text.assemble(("store      ", "quiet"), (shown, "accent")), soft_wrap=True)
    console.print()
    for each in results:
        mark = ("✓ ", "good") if each.code == _exits.FINE else ("✗ ", "bad")
        mark = ("! ", "bad") if each.name == "private" else mark
        console.print(Text.assemble(mark, each.detail), soft_wrap=True)


_ENGINES = ("sqlite", "postgres")


@click.command()
@click.argument("engine", type=click.Choice(_ENGINES), default=_ENGINES[0], metavar="[ENGINE]")
@click.option(
    "--schema", metavar="NAME", default=DEFAULT_SCHEMA, help="PostgreSQL: the schema of the tables."
)
@json_option
def schema(engine: str, schema: str, as_json: bool) -> int:
    """Print the SQL that creates an engine's tables.

    Prints all migrations of ENGINE (sqlite or postgres), in order. For PostgreSQL it is one
    transaction, to be run by a role that may create tables; other roles then open the store with
    setup=False.

    \b
    --json: {"engine": text,
             "migrations": [{"version": n, "name": text, "sql": text}, ...]}

    \b
    Examples:
      limpet schema sqlite
      limpet schema postgres --schema agents | psql
    """
    migrations = schema_migrations(engine, schema)
    if as_json:
        echo_json(
            {
                "engine": engine,
                "migrations": [
                    {"version": each.version, "name": each.name, "sql": each.sql}
                    for each in migrations
                ],
            }
        )
        return _exits.FINE
    text = "\n".join(
        f"-- migration {each.version}: {each.name}\n\n{each.sql}{each.record_sql}"
        for each in migrations
    )
    text = f"BEGIN;\n\n{text}\nCOMMIT;\n" if engine == "postgres" else text
    console = make_console()
    if console.is_terminal:
        from rich.syntax import Syntax  # slow to load: it brings the lexers

        coloured = Syntax("", "sql", theme="ansi_dark", background_color="default").highlight(text)
        console.print(coloured, soft_wrap=True, end="")
    else:
        click.echo(text, nl=False)
    return _exits.FINE


_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_LIMPET_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@json_option
@click.pass_context
def completion(context: click.Context, shell: str, as_json: bool) -> int:
    """Print the script that completes `limpet` with Tab.

    It completes verbs, options and session ids. The ids come from the store of --url or
    $LIMPET_URL; ids that would need quoting are left out.

    To load it in every new shell, add to ~/.bashrc or ~/.zshrc (after compinit):

    \b
      eval "$(limpet completion bash)"
      eval "$(limpet completion zsh)"

    and for fish run once:

    \b
      limpet completion fish > ~/.config/fish/completions/limpet.fish

    \b
    --json: {"shell": text, "script": text}

    \b
    Examples:
      eval "$(limpet completion bash)"
    """
    kind = get_completion_class(shell)
    if kind is None:  # Click has one for each of _SHELLS
        raise click.UsageError(f"unknown shell. shell=`{shell}`")
    script = kind(context.find_root().command, {}, "limpet", _VARIABLE).source()
    if as_json:
        echo_json({"shell": shell, "script": script})
    else:
        click.echo(script)
    return _exits.FINE
