"""`limpet export`: as lines of JSON for programs, or as a document for people."""

import os
import sys
from collections.abc import Callable, Iterator
from typing import IO, NamedTuple

import click

import limpet
from limpet import portable
from limpet.cli import _exits
from limpet.cli._documents import Document
from limpet.cli._progress import progress, snapshots_in
from limpet.cli._shared import echo_json, existing_store, json_option, make_console, url_option
from limpet.cli._transfer import draw_skipped, findings_json, whole_file
from limpet.cli.completion import complete_session
from limpet.views.refs import find_session
from limpet.views.sizes import count_text, size_text, visible

_FORMATS = ("jsonl", "markdown", "html")
_ENDINGS = {".md": "markdown", ".markdown": "markdown", ".html": "html", ".htm": "html"}


@click.command()
@click.argument("session", required=False, shell_complete=complete_session)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write to a file, which is whole or not there; - is the output.",
)
@click.option("--format", "form", type=click.Choice(_FORMATS), help="Else by the name of the file.")
@click.option("--prefix", default="", metavar="TEXT", help="The sessions whose id begins so.")
@click.option("--images", is_flag=True, help="HTML: put small images into the page.")
@url_option
@json_option
def export(
    session: str | None,
    output: str | None,
    form: str | None,
    prefix: str,
    images: bool,
    url: str,
    as_json: bool,
) -> int:
    """Write a store, or one SESSION, for programs or for people.

    As jsonl, which `import` reads, a line for each scope, snapshot and note: everything but what
    is the engine's own, in an order that does not depend on it, so that two stores that hold the
    same give the same bytes. As markdown or html, which need a SESSION, one document that shows
    its conversations, its states and its history.

    What is damaged is told and left out; then it ends with 5.

    \b
    --json: with -o, what was written: {"path": text, "format": text, "sessions": n,
            "snapshots": n, "bytes": n, "skipped": findings as `check --json` tells them};
            without, the same as --format jsonl

    \b
    Examples:
      limpet export -o agents.jsonl
      limpet export alice/chat-1 -o chat.html
      limpet export | zstd > agents.jsonl.zst
    """
    output = None if output == "-" else output
    form = _form(form, session, prefix, output, as_json)
    with existing_store(url) as store:
        session_id = None if session is None else find_session(store, session)
        if session_id is None or form == "jsonl":
            total = None if prefix else snapshots_in(store, url, session_id)
            done = _lines(store, session_id, prefix, output, total)
        else:
            done = _document(store, session_id, form, output, images=images)
    if output is not None and as_json:
        facts = {"path": output, "format": form, **done.counts, "bytes": done.bytes}
        echo_json({**facts, "skipped": findings_json(done.skipped)})
    else:
        draw_skipped(done.skipped)
        if output is not None:
            _draw(output, done)
    return _exits.CORRUPT if done.skipped else _exits.FINE


def _form(
    form: str | None, session: str | None, prefix: str, output: str | None, as_json: bool
) -> str:
    """Return the format that is asked for, if it fits what else is asked."""
    form = form or _ENDINGS.get(os.path.splitext(output or "")[1].lower(), "jsonl")
    if form != "jsonl" and (session is None or prefix):
        raise click.UsageError(f"{form} shows one session: name it")
    if form != "jsonl" and as_json and output is None:
        raise click.UsageError("--json and another format cannot both be printed: write to a file")
    return form


class _Done(NamedTuple):
    """What was written: how many sessions and snapshots, the bytes, and what was left out."""

    counts: dict[str, int]
    bytes: int
    skipped: list[limpet.Finding]


def _lines(
    store: limpet.Store,
    session_id: str | None,
    prefix: str,
    output: str | None,
    total: int | None,
) -> _Done:
    skipped: list[limpet.Finding] = []
    with progress("exporting", total, seen=output is not None) as report:
        last = _Last(report)
        lines = portable.export_lines(
            store, session_id=session_id, prefix=prefix, skipped=skipped.append, report=last
        )
        size = _write(lines, output)
    counts = {"sessions": last.told.sessions, "snapshots": last.told.snapshots}
    return _Done(counts, size, skipped)


def _document(
    store: limpet.Store, session_id: str, form: str, output: str | None, *, images: bool
) -> _Done:
    page = Document(store, session_id)
    parts = page.parts(form, images=images)
    size = _write((part.encode("utf-8", "replace") for part in parts), output)
    return _Done({"sessions": 1, "snapshots": page.snapshots}, size, page.skipped)


class _Last:
    """Remembers how far it got, for those who ask afterwards."""

    def __init__(self, report: Callable[[portable.Progress], None]) -> None:
        self._report = report
        self.told = portable.Progress(0, 0, 0)

    def __call__(self, told: portable.Progress) -> None:
        self.told = told
        self._report(told)


def _write(parts: Iterator[bytes], output: str | None) -> int:
    if output is None:
        return _into(sys.stdout.buffer, parts)
    with whole_file(output) as file:
        return _into(file, parts)


def _into(file: IO[bytes], parts: Iterator[bytes]) -> int:
    size = 0
    for part in parts:
        size += file.write(part)
    file.flush()
    return size


def _draw(output: str, done: _Done) -> None:
    counts = [
        count_text(done.counts["sessions"], "session"),
        count_text(done.counts["snapshots"], "snapshot"),
        size_text(done.bytes),
    ]
    console = make_console(stderr=not sys.stdout.isatty())
    console.print(f"✓ {visible(output)}: {' · '.join(counts)}", soft_wrap=True)
