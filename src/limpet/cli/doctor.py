"""`limpet doctor`: is everything here, and does the storage do what it must?"""

import os
import platform
import sqlite3
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from urllib.parse import quote

import click
from rich.console import Console
from rich.text import Text

import limpet
from limpet.cli import _exits
from limpet.cli._shared import (
    echo_json,
    json_option,
    make_console,
    url_option,
    without_setup,
)
from limpet.opening import CLOCK, draw, file_of, scheme_of
from limpet.views.sizes import masked_url, visible, without_secrets

EXTRAS = {
    "cli": ("click", "rich"),
    "langgraph": ("langgraph",),
    "postgres": ("psycopg",),
    "s3": ("obstore",),
    "testing": ("pytest", "hypothesis"),
    "watch": ("watchfiles",),
}
_LIBRARIES = ("orjson", "zstandard", "xxhash")
_SAVES = 20
_SESSION = "doctor"
_STATE = {"messages": [{"role": "user", "content": "x" * 1000}]}


@dataclass(frozen=True, slots=True)
class Examined:
    """What came out of one examination, in words; `code` is the exit code that it asks for."""

    name: str
    detail: str
    code: int = _exits.FINE


@click.command()
@url_option
@json_option
def doctor(url: str, as_json: bool) -> int:
    """Show what is installed, and whether the storage works.

    What is tried out is tried out in a temporary store of the same kind (in a file or folder of its
    own in the same folder, or under a prefix of its own in the bucket), never in the data; on a
    PostgreSQL server in a session of its own, which is removed again.

    \b
    --json: {"versions": {"limpet": text, "python": text, "sqlite": text, ...},
             "extras": {name: true or false, ...}, "url": text, without secrets,
             "checks": [{"check": "open", "compare-and-set" or "durable-save",
                         "ok": true or false, "detail": text}, ...],
             "durable_save_ms": the median of 20, or null}

    \b
    Examples:
      limpet doctor
      limpet doctor --url s3://bucket/agents
    """
    results = [_open(url)]
    took_ms: float | None = None
    try:
        with _temporary_store(url) as (one, other, session_id):
            results.append(_compare_and_set(one, other, session_id))
            took_ms = _durable_save_ms(one, session_id)
            detail = f"a durable save takes {took_ms:.2f} ms (median of {_SAVES}, 1 KB each)"
            results.append(Examined("durable-save", detail))
    except (limpet.LimpetError, OSError) as error:
        code = _exits.code_of(error) if isinstance(error, limpet.LimpetError) else 0
        detail = f"no temporary store could be tried out: {_told(error)}"
        results.append(Examined("compare-and-set", detail, code or _exits.UNAVAILABLE))
    if as_json:
        echo_json(_shape(url, results, took_ms))
    else:
        _draw(make_console(), url, results)
    return next((each.code for each in results if each.code), _exits.FINE)


def _open(url: str) -> Examined:
    """Open the store as any use of it would, but create nothing."""
    try:
        path = file_of(url)
        if path is not None and not os.path.exists(path):
            return Examined("open", "there is no file yet; the first use creates it")
        limpet.open(url, **without_setup(url)).close()
    except limpet.LimpetError as error:
        return Examined("open", f"it cannot be opened: {_told(error)}", _exits.code_of(error))
    return Examined("open", "it can be opened")


@contextmanager
def _temporary_store(url: str) -> Iterator[tuple[limpet.Store, limpet.Store, str]]:
    """Open a new store of the same kind twice, and remove it afterwards; name a session in it."""
    path = file_of(url)
    if path is None:
        address, mark, rest = url.partition("?")
        if scheme_of(url) == "memory":
            with limpet.open(url) as store:  # it keeps nothing
                yield store, store, _SESSION
            return
        name = f".limpet-doctor-{draw().nonce}"
        options = without_setup(url)
        on_server = scheme_of(url) == "postgresql"
        beside = url if on_server else f"{address.rstrip('/')}/{name}{mark}{rest}"
        with limpet.open(beside, **options) as one, limpet.open(beside, **options) as other:
            try:
                yield one, other, name
            finally:
                one.delete_session(name)
        return
    query = url.partition("?")[1:]
    with tempfile.TemporaryDirectory(
        prefix=".limpet-doctor-", dir=os.path.dirname(path), ignore_cleanup_errors=True
    ) as folder:
        beside = f"{scheme_of(url)}:///{quote(os.path.join(folder, 'try.db'))}{''.join(query)}"
        with limpet.open(beside) as one, limpet.open(beside) as other:
            yield one, other, _SESSION


def _compare_and_set(one: limpet.Store, other: limpet.Store, session_id: str) -> Examined:
    """Let two writers race from the same revision: the second must lose and leave nothing."""
    mine, theirs = one.scope(session_id), other.scope(session_id)
    start = mine.save(1, expect=None)
    theirs.save(2, expect=start.revision)
    for stale in (start.revision, None):
        with suppress(limpet.Conflict):
            mine.save(3, expect=stale)
    states = [each.state for each in mine.load_many(info.id for info in theirs.history())]
    if states == [2, 1]:
        return Examined("compare-and-set", "compare-and-set holds: the second of two writers loses")
    return Examined(
        "compare-and-set", "compare-and-set does NOT hold: writers lose data here", _exits.FOUND
    )


def _durable_save_ms(store: limpet.Store, session_id: str) -> float:
    scope = store.scope(session_id, "speed")
    scope.save(_STATE)  # the first one opens things
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
    return {extra: all(map(find_spec, modules)) for extra, modules in EXTRAS.items()}


def _told(error: Exception) -> str:
    return visible(without_secrets(str(error)))


def _shape(url: str, results: list[Examined], took_ms: float | None) -> dict[str, object]:
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


def _draw(console: Console, url: str, results: list[Examined]) -> None:
    for name, text in _versions().items():
        console.print(Text.assemble((f"{name:<11}", "quiet"), text))
    extras = [
        (f"{name} ✓  " if there else f"{name} not installed  ", "good" if there else "quiet")
        for name, there in _extras().items()
    ]
    console.print(Text.assemble(("extras     ", "quiet"), *extras))
    shown = visible(masked_url(url))
    console.print(Text.assemble(("store      ", "quiet"), (shown, "accent")), soft_wrap=True)
    console.print()
    for each in results:
        good = each.code == _exits.FINE
        mark = ("✓ ", "good") if good else ("✗ ", "bad")
        console.print(Text.assemble(mark, each.detail), soft_wrap=True)
