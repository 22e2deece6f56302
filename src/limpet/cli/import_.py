"""`limpet import`: from an export, or from the data of other tools."""

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import IO, Any, NamedTuple, cast

import click

import limpet
from limpet import portable
from limpet.cli import _exits
from limpet.cli._shared import echo_json, store_options
from limpet.cli._terminal import make_console
from limpet.cli._transfer import draw_skipped, progress
from limpet.compat import genkit, openai_sqlite, runs, strands
from limpet.core.wire import finding_json
from limpet.views.format import count_text, masked_url, visible

_FOLDERS = ("strands", "genkit", "go-runs")
_SAVERS = ("langgraph-sqlite", "langgraph-postgres")
_OPENAI = "openai-sqlite"
_FORMATS = ("jsonl", *_FOLDERS, *_SAVERS, _OPENAI)
_WITH_PREFIX = ("strands", *_SAVERS, _OPENAI)
_LAYOUTS = ("classic", "unified", "messages")


@click.command("import")
@click.argument("source", nargs=-1, required=True, metavar="[FORMAT] PATH")
@click.option(
    "--layout", type=click.Choice(_LAYOUTS), help="strands: the layout. Default: detected."
)
@click.option(
    "--prefix",
    default="",
    metavar="TEXT",
    help="strands, langgraph, openai: only sessions or threads with this prefix.",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="MODULE:CLASS",
    help="langgraph: a class of your own that may be loaded. May be repeated.",
)
@click.option(
    "--table",
    metavar="NAME",
    help="openai: the table of messages. Default: agent_messages.",
)
@store_options
def import_(
    source: tuple[str, ...],
    layout: str | None,
    prefix: str,
    allow: tuple[str, ...],
    table: str | None,
    url: str,
    as_json: bool,
) -> int:
    """Import an export, or the data of other tools.

    FORMAT is jsonl (the default, written by `export`; PATH - is stdin), strands (a folder or bucket
    of the Strands SDKs), genkit (the folder of Genkit's file store), go-runs (a folder of run
    checkpoints), langgraph-sqlite (the file of a SqliteSaver), langgraph-postgres (the URL of
    a PostgresSaver's database) or openai-sqlite (the file of a SQLiteSession of the OpenAI Agents
    SDK). The store is created if it does not exist. The source is not changed. An import can be
    interrupted and repeated.

    LangGraph values of your own classes are skipped unless --allow names the class. It is imported
    from the installed packages or from the current folder.

    Data that cannot be imported is reported and skipped. The exit code is 1 if something was
    skipped or there was nothing to import, 3 if a scope of the store holds other data, and 5 if the
    export is incomplete.

    \b
    --json: {"format": text, "snapshots": n, "written": n or null,
             "skipped": findings as in `check --json`}

    \b
    Examples:
      limpet import agents.jsonl
      limpet import strands ./sessions
      limpet import langgraph-sqlite checkpoints.db --url postgresql://localhost/agents
      limpet import openai-sqlite conversations.db
    """
    form, path = _parsed(source, layout, prefix, allow, table)
    _check_source(form, path)
    classes = [class_named(each) for each in allow]
    if form == "jsonl":
        done = _from_export(url, path)
    elif form == _OPENAI:
        done = _from_openai(url, path, prefix, table or "agent_messages")
    else:
        done = _from_others(url, form, path, layout, prefix, classes)
    _report(form, url, done, as_json)
    return _exits.FOUND if done.skipped or (form != "jsonl" and not done.snapshots) else _exits.FINE


class _Imported(NamedTuple):
    snapshots: int
    written: int | None  # None where it is not counted
    skipped: Sequence[limpet.Finding]


def _report(form: str, url: str, done: _Imported, as_json: bool) -> None:
    if as_json:
        facts = {"format": form, "snapshots": done.snapshots, "written": done.written}
        echo_json({**facts, "skipped": [finding_json(each) for each in done.skipped]})
        return
    draw_skipped(done.skipped)
    some = f"{done.written:,} written" if done.written else "nothing new"
    new = "" if done.written is None else f", {some}"
    text = f"✓ {count_text(done.snapshots, 'snapshot')} in {visible(masked_url(url))}{new}"
    make_console().print(text, soft_wrap=True)


def _from_export(url: str, path: str) -> _Imported:
    with _lines(path) as lines, limpet.open(url) as store, progress("importing", None) as report:
        done = portable.import_lines(store, lines, report=report)
    return _Imported(done.snapshots, done.written, done.skipped)


def _parsed(
    source: tuple[str, ...],
    layout: str | None,
    prefix: str,
    allow: tuple[str, ...],
    table: str | None,
) -> tuple[str, str]:
    form, *paths = source if source[0] in _FORMATS else ("jsonl", *source)
    if len(paths) != 1:
        raise click.UsageError(f"expected [{'|'.join(_FORMATS)}] PATH")
    if form != "strands" and layout is not None:
        raise click.UsageError("--layout is only for strands")
    if form not in _WITH_PREFIX and prefix:
        raise click.UsageError(f"--prefix is only for {' and '.join(_WITH_PREFIX)}")
    if form not in _SAVERS and allow:
        raise click.UsageError(f"--allow is only for {' and '.join(_SAVERS)}")
    if form != _OPENAI and table is not None:
        raise click.UsageError(f"--table is only for {_OPENAI}")
    return form, paths[0]


def _check_source(form: str, path: str) -> None:
    """Refuse a missing source or package before a store is created."""
    if form in _FOLDERS and "://" not in path and not os.path.isdir(path):
        raise limpet.NotFound(f"there is no such folder. path=`{path}`")
    if form in ("langgraph-sqlite", _OPENAI) and not os.path.isfile(path):
        raise limpet.NotFound(f"there is no such file. path=`{path}`")
    if form in _SAVERS:
        _langgraph()


def _langgraph() -> ModuleType:
    try:
        from limpet.compat.langgraph.migrate import transfer
    except ImportError as cause:  # also of a version that is too old
        fact = "LangGraph is not installed: pip install 'limpet[langgraph]'"
        raise limpet.Unsupported(fact) from cause
    return transfer


def _from_openai(url: str, path: str, prefix: str, table: str) -> _Imported:
    with limpet.open(url) as store:
        done = openai_sqlite.import_sqlite(store, path, prefix=prefix, table=table)
    return _Imported(done.count, None, done.skipped)


def _from_others(
    url: str, form: str, path: str, layout: str | None, prefix: str, classes: Sequence[type]
) -> _Imported:
    with limpet.open(url) as store:
        if form == "genkit":
            done = genkit.import_sessions(store, path)
        elif form == "go-runs":
            done = runs.import_runs(store, path)
        elif form in _SAVERS:
            savers = _langgraph()
            take = savers.import_sqlite if form == "langgraph-sqlite" else savers.import_postgres
            done = take(store, path, prefix=prefix, allow=classes)
        else:
            found = cast(strands.LayoutName, layout) if layout else strands.find_layout(path)
            done = strands.import_sessions(store, path, layout=found, prefix=prefix)
    return _Imported(done.count, None, done.skipped)


@contextmanager
def _lines(path: str) -> Iterator[IO[bytes]]:
    if path == "-":
        yield sys.stdin.buffer
        return
    try:
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        kinds = {FileNotFoundError: limpet.NotFound, IsADirectoryError: limpet.InvalidInput}
        kind = kinds.get(type(error), limpet.Unavailable)
        reason = error.strerror or type(error).__name__
        raise kind(f"cannot read the file: {reason}. path=`{path}`") from error


def class_named(name: str) -> type:
    """Import the class `module:Class`, from an installed package or the current folder."""
    module, _, path = name.partition(":")
    parts = [*module.split("."), *path.split(".")]
    if not all(part.isidentifier() for part in parts):
        raise limpet.InvalidInput(f"--allow takes module:Class. found=`{name}`")
    folder = os.getcwd()
    if folder not in sys.path:
        # Last, so that no file in the folder replaces an installed module.
        sys.path.append(folder)
    try:
        found: Any = importlib.import_module(module)
    except (Exception, SystemExit) as cause:  # importing runs the module, which may raise anything
        fact = f"the module cannot be imported. class=`{name}` error=`{type(cause).__name__}`"
        raise limpet.InvalidInput(fact) from cause
    for part in path.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type):
        raise limpet.InvalidInput(f"the module has no such class. class=`{name}`")
    return found
