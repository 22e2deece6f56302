"""`holdfast import`: from an export, or from the files of other tools."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import IO, cast

import click

import holdfast
from holdfast import portable
from holdfast.cli import _exits
from holdfast.cli._progress import progress
from holdfast.cli._shared import echo_json, json_option, make_console, url_option
from holdfast.cli._transfer import draw_skipped, findings_json
from holdfast.compat import genkit, runs, strands
from holdfast.compat.transfer import Transfer
from holdfast.views.names import masked_url, visible
from holdfast.views.sizes import count_text

_FOLDERS = ("strands", "genkit", "go-runs")
_SAVERS = ("langgraph-sqlite", "langgraph-postgres")
_FORMATS = ("jsonl", *_FOLDERS, *_SAVERS)
_WITH_PREFIX = ("strands", *_SAVERS)
_LAYOUTS = ("classic", "unified", "messages")


@click.command("import")
@click.argument("source", nargs=-1, required=True, metavar="[FORMAT] PATH")
@click.option("--layout", type=click.Choice(_LAYOUTS), help="strands: whose files. Else a look.")
@click.option(
    "--prefix",
    default="",
    metavar="TEXT",
    help="strands, langgraph: the sessions or threads whose id begins so.",
)
@url_option
@json_option
def import_(
    source: tuple[str, ...], layout: str | None, prefix: str, url: str, as_json: bool
) -> int:
    """Read an export, or the files of other tools, into a store.

    FORMAT is jsonl (what `export` writes; PATH may be - for the standard input), strands (a folder
    or bucket of the Strands SDKs), genkit (the folder of Genkit's file store), go-runs (a folder of
    run checkpoints), langgraph-sqlite (the file of a SqliteSaver) or langgraph-postgres (the URL of
    a PostgresSaver's database). The store is created if need be. All of them may be stopped and
    repeated, and change nothing where they read.

    What cannot be carried over is told and left out; then it ends with 1, and so it does if there
    is nothing. It ends with 3 if something else was saved in a scope of the store, and with 5 if
    the export is cut off.

    \b
    --json: {"format": text, "snapshots": n, "written": n or null,
             "skipped": findings as `check --json` tells them}

    \b
    Examples:
      holdfast import agents.jsonl
      holdfast import strands ./sessions
      holdfast import langgraph-sqlite checkpoints.db --url postgresql://localhost/agents
    """
    form, path = _asked(source, layout, prefix)
    _check_place(form, path)
    if form == "jsonl":
        with (
            _lines(path) as lines,
            holdfast.open(url) as store,
            progress("importing", None) as report,
        ):
            done = portable.import_lines(store, lines, report=report)
        count, written, skipped = done.snapshots, done.written, done.skipped
    else:
        with holdfast.open(url) as store:
            other = _from_others(store, form, path, layout, prefix)
        count, skipped = other.count, other.skipped
        written = None
    if as_json:
        facts = {"format": form, "snapshots": count, "written": written}
        echo_json({**facts, "skipped": findings_json(skipped)})
    else:
        draw_skipped(skipped)
        new = "" if written is None else f", {f'{written:,} written' if written else 'nothing new'}"
        text = f"✓ {count_text(count, 'snapshot')} in {visible(masked_url(url))}{new}"
        make_console().print(text, soft_wrap=True)
    return _exits.FOUND if skipped or (form != "jsonl" and not count) else _exits.FINE


def _asked(source: tuple[str, ...], layout: str | None, prefix: str) -> tuple[str, str]:
    """Return the format and the place, if the options are for that format."""
    form, *places = source if source[0] in _FORMATS else ("jsonl", *source)
    if len(places) != 1:
        raise click.UsageError(f"write [{'|'.join(_FORMATS)}] PATH")
    if form != "strands" and layout is not None:
        raise click.UsageError("--layout is for strands")
    if form not in _WITH_PREFIX and prefix:
        raise click.UsageError(f"--prefix is for {' and '.join(_WITH_PREFIX)}")
    return form, places[0]


def _check_place(form: str, path: str) -> None:
    """Refuse what is not there, be it a place or a package, before a store is created."""
    if form in _FOLDERS and "://" not in path and not os.path.isdir(path):
        raise holdfast.NotFound(f"there is no such folder. path=`{path}`")
    if form == "langgraph-sqlite" and not os.path.isfile(path):
        raise holdfast.NotFound(f"there is no such file. path=`{path}`")
    if form in _SAVERS:
        _langgraph()


def _langgraph() -> ModuleType:
    try:
        from holdfast.compat.langgraph import transfer
    except ImportError as cause:
        fact = "LangGraph needs an extra: pip install 'holdfast[langgraph]'"
        raise holdfast.Unsupported(fact) from cause
    return transfer


def _from_others(
    store: holdfast.Store, form: str, path: str, layout: str | None, prefix: str
) -> Transfer:
    if form == "genkit":
        return genkit.import_sessions(store, path)
    if form == "go-runs":
        return runs.import_runs(store, path)
    if form in _SAVERS:
        savers = _langgraph()
        take = savers.import_sqlite if form == "langgraph-sqlite" else savers.import_postgres
        done: Transfer = take(store, path, prefix=prefix)
        return done
    found = cast(strands.Layout, layout) if layout else strands.find_layout(path)
    return strands.import_sessions(store, path, layout=found, prefix=prefix)


@contextmanager
def _lines(path: str) -> Iterator[IO[bytes]]:
    if path == "-":
        yield sys.stdin.buffer
        return
    try:
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        kinds = {FileNotFoundError: holdfast.NotFound, IsADirectoryError: holdfast.InvalidInput}
        kind = kinds.get(type(error), holdfast.Unavailable)
        reason = error.strerror or type(error).__name__
        raise kind(f"cannot read the file: {reason}. path=`{path}`") from error
