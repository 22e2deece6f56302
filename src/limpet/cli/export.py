"""`limpet export`: as lines of JSON for programs, or as a document for people."""

import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import NamedTuple

import click

import limpet
from limpet import portable
from limpet.cli._shared import (
    complete_session,
    echo_json,
    existing_store,
    store_options,
)
from limpet.cli._terminal import make_console
from limpet.cli._transfer import (
    atomic_file,
    check_output,
    code_of_skipped,
    draw_skipped,
    progress,
    snapshots_in,
)
from limpet.core.wire import finding_json
from limpet.model import Finding
from limpet.views.format import count_text, size_text, visible
from limpet.views.refs import find_session
from limpet.views.session_document import SessionDocument

_FORMATS = ("jsonl", "markdown", "html")
_ENDINGS = {".md": "markdown", ".markdown": "markdown", ".html": "html", ".htm": "html"}


@click.command()
@click.argument("session", required=False, shell_complete=complete_session)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write to a file, which is replaced as a whole; - is stdout.",
)
@click.option("--format", "form", type=click.Choice(_FORMATS), help="Default: by the file ending.")
@click.option(
    "--prefix", default="", metavar="TEXT", help="Only sessions whose id begins with TEXT."
)
@click.option("--images", is_flag=True, help="HTML: embed small images in the page.")
@store_options
def export(
    session: str | None,
    output: str | None,
    form: str | None,
    prefix: str,
    images: bool,
    url: str,
    as_json: bool,
) -> int:
    """Export a store, or one SESSION.

    jsonl, which `import` reads, has a line for each scope, snapshot and note. It does not depend on
    the storage engine: stores with the same content give the same bytes. markdown and html need
    a SESSION, and are one document with its conversations, its states and its history.

    Damaged data is reported and skipped; then the exit code is 5. Links in a folder, which are not
    followed, and snapshots whose head is lost are reported, too; without damage it is then 1.
    Only the owner can read the file, also if others could before. A file of the store itself is not
    overwritten.

    \b
    --json: with -o, what was written: {"path": text, "format": text, "sessions": n,
            "snapshots": n, "bytes": n, "skipped": findings as in `check --json`};
            without, the same as --format jsonl

    \b
    Examples:
      limpet export -o agents.jsonl
      limpet export alice/chat-1 -o chat.html
      limpet export | zstd > agents.jsonl.zst
    """
    output = None if output == "-" else output
    form = _form(form, session, prefix, output, as_json)
    if output is not None:
        check_output(output, url)
    with existing_store(url, read_only=True) as store:
        session_id = None if session is None else find_session(store, session)
        if session_id is None or form == "jsonl":
            total = None if prefix else snapshots_in(store, url, session_id)
            done = _lines(store, session_id, prefix, output, total)
        else:
            done = _document(store, session_id, form, output, images=images)
    if output is not None and as_json:
        counts = {**done._asdict(), "skipped": [finding_json(each) for each in done.skipped]}
        echo_json({"path": output, "format": form, **counts})
    else:
        draw_skipped(done.skipped)
        if output is not None:
            _draw(output, done)
    return code_of_skipped(done.skipped)


def _form(
    form: str | None, session: str | None, prefix: str, output: str | None, as_json: bool
) -> str:
    form = form or _ENDINGS.get(os.path.splitext(output or "")[1].lower(), "jsonl")
    if form != "jsonl" and (session is None or prefix):
        raise click.UsageError(f"{form} needs one SESSION")
    if form != "jsonl" and as_json and output is None:
        raise click.UsageError(f"--json with {form} needs -o FILE")
    return form


class _Exported(NamedTuple):
    sessions: int
    snapshots: int
    bytes: int
    skipped: list[Finding]


def _lines(
    store: limpet.Store, session_id: str | None, prefix: str, output: str | None, total: int | None
) -> _Exported:
    skipped: list[Finding] = []
    last = portable.Progress(0, 0, 0)
    with progress("exporting", total, shown=output is not None) as draw:

        def report(done: portable.Progress) -> None:
            nonlocal last
            last = done
            draw(done)

        lines = portable.export_lines(
            store, session_id=session_id, prefix=prefix, skipped=skipped.append, report=report
        )
        size = _write(lines, output)
    return _Exported(last.sessions, last.snapshots, size, skipped)


def _document(
    store: limpet.Store, session_id: str, form: str, output: str | None, *, images: bool
) -> _Exported:
    document = SessionDocument(store, session_id, form, images)
    size = _write((part.encode("utf-8", "replace") for part in document.parts()), output)
    return _Exported(1, document.snapshots, size, document.skipped)


def _write(parts: Iterator[bytes], output: str | None) -> int:
    size = 0
    if output is None and sys.stdout.isatty():  # JSON escapes only some control characters
        parts = (visible(part.decode(), kept="\n\t").encode() for part in parts)
    with nullcontext(sys.stdout.buffer) if output is None else atomic_file(output) as file:
        for part in parts:
            size += file.write(part)
        file.flush()
    return size


def _draw(output: str, done: _Exported) -> None:
    counts = [
        count_text(done.sessions, "session"),
        count_text(done.snapshots, "snapshot"),
        size_text(done.bytes),
    ]
    console = make_console(stderr=not sys.stdout.isatty())
    console.print(f"✓ {visible(output)}: {' · '.join(counts)}", soft_wrap=True)
