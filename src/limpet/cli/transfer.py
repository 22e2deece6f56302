"""`limpet export` and `import`: stores as lines and documents, and the data of other tools."""

import importlib
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

import click
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from zstandard import ZstdCompressor, ZstdDecompressor

import limpet
from limpet import portable
from limpet.cli import _exits
from limpet.cli._shared import (
    SKIPPED_SHOWN,
    complete_session,
    echo_json,
    existing_store,
    store_options,
)
from limpet.cli._terminal import make_console, say
from limpet.core.wire import finding_json
from limpet.model import Finding
from limpet.opening import draw, file_of, scheme_of
from limpet.portable import Progress
from limpet.views.format import address_text, count_text, masked_url, size_text, visible
from limpet.views.refs import find_session
from limpet.views.session_document import SessionDocument

if TYPE_CHECKING:
    from limpet.compat.wire import Transfer

_UNLISTED = {"head_missing", "link_skipped"}  # not damage of what listings show
_COUNTED_FAST = frozenset({"memory", "sqlite", "postgresql"})


@contextmanager
def progress(
    verb: str, total: int | None, *, shown: bool = True
) -> Iterator[Callable[[Progress], None]]:
    """Draw a progress bar on stderr if that is a terminal; `total` None means unknown."""
    console = make_console(stderr=True)
    if not (shown and console.is_terminal and sys.stderr.isatty()):
        yield lambda done: None
        return
    bar = Bar(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[done]}", style="quiet"),
        TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task(verb, total=total, done="")

        def report(done: Progress) -> None:
            speed = bar.tasks[0].speed
            rate = f" · {speed:,.0f}/s" if speed else ""
            text = f"{done.snapshots:,} snapshots · {size_text(done.bytes)}{rate}"
            bar.update(task, completed=done.snapshots, done=text)

        yield report


def snapshots_in(store: limpet.Store, url: str, session_id: str | None) -> int | None:
    """Return the number of snapshots, None where counting would take as long as the work."""
    if scheme_of(url) not in _COUNTED_FAST:
        return None
    return store.driver.run(lambda backend: backend.read_stats(session_id, limit=0)).snapshots


def draw_skipped(skipped: Sequence[limpet.Finding]) -> None:
    """Report what was skipped: all of a few, else how many and the first."""
    if len(skipped) > SKIPPED_SHOWN:
        noun = "snapshot" if all(each.id for each in skipped) else "item"
        total = f"{count_text(len(skipped), noun)} skipped; the first {SKIPPED_SHOWN}:"
        say((total, "odd"), stderr=True)
    for each in skipped[:SKIPPED_SHOWN]:
        where = "" if each.scope is None else address_text(each.scope, each.id)
        say(("skipped  ", "odd"), visible(f"{where} {each.message}".strip()), stderr=True)


def code_of_skipped(skipped: Sequence[limpet.Finding]) -> int:
    """Return the exit code of a transfer that left something out."""
    if not skipped:
        return _exits.FINE
    return _exits.FOUND if {each.code for each in skipped} <= _UNLISTED else _exits.CORRUPT


def check_output(path: str, url: str) -> None:
    """Refuse to write to a file of the store that is read, also through a symbolic link."""
    store, target = file_of(url), os.path.realpath(path)
    if store is None:
        return
    store = os.path.realpath(store)
    names = [f"{store}{ending}" for ending in ("", "-wal", "-shm", "-journal")]
    inside = os.path.isdir(store) and os.path.commonpath([store, target]) == store
    if inside or target in names:  # another hard link is replaced, and harms nothing
        raise limpet.InvalidInput(f"the output is a file of the store itself. path=`{path}`")


@contextmanager
def atomic_file(path: str) -> Iterator[IO[bytes]]:
    """Open a file that is replaced as a whole at the end, or stays as it was.

    A link is followed. A pipe or a device is written to directly. Only the owner can read the
    file, as those of stores, also where others could read the one before.
    """
    target = os.path.realpath(path)
    try:
        is_special = os.path.exists(target) and not os.path.isfile(target)
        with open(target, "wb") if is_special else _staged(target) as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise limpet.Unavailable(f"cannot write the file: {reason}. path=`{path}`") from error


@contextmanager
def _staged(path: str) -> Iterator[IO[bytes]]:
    staged = f"{path}.{draw().nonce}.part"
    try:
        with open(staged, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(staged, path)
    finally:
        with suppress(OSError):
            os.unlink(staged)


_FORMATS = ("jsonl", "markdown", "html")
_SQLITE, _ZSTD = b"SQLite format 3\0", b"\x28\xb5\x2f\xfd"
_SHOWN_BYTES_MIN = 16 * 1024**2
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
@click.option("--zstd", is_flag=True, help="Compress it; `import` reads it as it is.")
@click.option("--images", is_flag=True, help="HTML: embed small images in the page.")
@store_options
def export(
    session: str | None,
    output: str | None,
    form: str | None,
    prefix: str,
    zstd: bool,
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
      limpet export --zstd -o agents.jsonl.zst
    """
    output = None if output == "-" else output
    form = _form(form, session, prefix, output, as_json, zstd)
    if output is not None:
        check_output(output, url)
    with existing_store(url, read_only=True) as store:
        session_id = None if session is None else find_session(store, session)
        if session_id is None or form == "jsonl":
            total = None if prefix else snapshots_in(store, url, session_id)
            if total is not None:
                _say_size(store, session_id)
            done = _write_lines(store, session_id, prefix, output, total, zstd=zstd)
        else:
            done = _write_document(store, session_id, form, output, images=images)
    if output is not None and as_json:
        counts = {**done._asdict(), "skipped": [finding_json(each) for each in done.skipped]}
        echo_json({"path": output, "format": form, **counts})
    else:
        draw_skipped(done.skipped)
        if output is not None:
            say(f"✓ {visible(output)}: {amounts(done)}", stderr=not sys.stdout.isatty())
    return code_of_skipped(done.skipped)


def _form(
    form: str | None,
    session: str | None,
    prefix: str,
    output: str | None,
    as_json: bool,
    zstd: bool,
) -> str:
    form = form or _ENDINGS.get(os.path.splitext(output or "")[1].lower(), "jsonl")
    if form != "jsonl" and (session is None or prefix):
        raise click.UsageError(f"{form} needs one SESSION")
    if zstd and (form != "jsonl" or (output is None and sys.stdout.isatty())):
        raise click.UsageError("--zstd is for jsonl, with -o FILE or a pipe")
    if form != "jsonl" and as_json and output is None:
        raise click.UsageError(f"--json with {form} needs -o FILE")
    return form


class _Exported(NamedTuple):
    sessions: int
    snapshots: int
    bytes: int
    skipped: list[Finding]


def _say_size(store: limpet.Store, session_id: str | None) -> None:
    """Say how large an export is going to be, if it is large."""
    size = store.stats(session_id).logical_bytes
    if size >= _SHOWN_BYTES_MIN:
        advice = "every snapshot is written whole; `limpet backup` is as small as the store"
        say((f"about {size_text(size)} of JSON: {advice}", "quiet"), stderr=True)


def _write_lines(
    store: limpet.Store,
    session_id: str | None,
    prefix: str,
    output: str | None,
    total: int | None,
    *,
    zstd: bool,
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
        size = _write(_compressed(lines) if zstd else lines, output)
    return _Exported(last.sessions, last.snapshots, size, skipped)


def _write_document(
    store: limpet.Store, session_id: str, form: str, output: str | None, *, images: bool
) -> _Exported:
    document = SessionDocument(store, session_id, form, images)
    size = _write((part.encode("utf-8", "replace") for part in document.parts()), output)
    return _Exported(1, document.snapshots, size, document.skipped)


def _compressed(lines: Iterator[bytes]) -> Iterator[bytes]:
    writer = ZstdCompressor(level=3).compressobj()
    for line in lines:
        yield writer.compress(line)
    yield writer.flush()


def _write(parts: Iterator[bytes], output: str | None) -> int:
    size = 0
    if output is None and sys.stdout.isatty():  # JSON escapes only some control characters
        parts = (visible(part.decode(), kept="\n\t").encode() for part in parts)
    with nullcontext(sys.stdout.buffer) if output is None else atomic_file(output) as file:
        for part in parts:
            size += file.write(part)
        file.flush()
    return size


def amounts(done: _Exported | portable.Carried) -> str:
    notes = getattr(done, "notes", 0)
    counts = [count_text(done.sessions, "session"), count_text(done.snapshots, "snapshot")]
    counts += [count_text(notes, "note")] if notes else []
    return " · ".join([*counts, size_text(done.bytes)])


_FOLDERS = ("strands", "genkit", "go-runs")
_SAVERS = ("langgraph-sqlite", "langgraph-postgres")
_OPENAI = "openai-sqlite"
_SOURCES = ("jsonl", *_FOLDERS, *_SAVERS, _OPENAI)
_ONLY_FOR = {
    "layout": ("strands",),
    "prefix": ("strands", *_SAVERS, _OPENAI),
    "allow": _SAVERS,
    "table": (_OPENAI,),
}
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
def import_(source: tuple[str, ...], url: str, as_json: bool, **options: Any) -> int:
    """Import a backup, an export, or the data of other tools.

    FORMAT is jsonl (the default: a file of `backup`, or of `export`, also compressed; PATH - is
    stdin), strands (a folder or bucket
    of the Strands SDKs), genkit (the folder of Genkit's file store), go-runs (a folder of run
    checkpoints), langgraph-sqlite (the file of a SqliteSaver), langgraph-postgres (the URL of
    a PostgresSaver's database) or openai-sqlite (the file of a SQLiteSession of the OpenAI Agents
    SDK). The store is created if it does not exist. The source is not changed. An import can be
    interrupted and repeated.

    LangGraph values of your own classes are skipped unless --allow names the class. It is imported
    from the installed packages or from the current folder.

    Data that cannot be imported is reported and skipped. The exit code is 1 if something was
    skipped or there was nothing to import, 3 if a scope of the store holds other data, and 5 if the
    export is incomplete, or something in the backup is damaged.

    \b
    --json: {"format": text, "snapshots": n, "written": n,
             "skipped": findings as in `check --json`}

    \b
    Examples:
      limpet import agents.jsonl
      limpet import strands ./sessions
      limpet import langgraph-sqlite checkpoints.db --url postgresql://localhost/agents
      limpet import openai-sqlite conversations.db
    """
    conflicts: list[Finding] = []
    form, *paths = source if source[0] in _SOURCES else ("jsonl", *source)
    if len(paths) != 1:
        raise click.UsageError(f"expected [{'|'.join(_SOURCES)}] PATH")
    given = {name: value for name, value in options.items() if value}
    for name in given:
        if form not in _ONLY_FOR[name]:
            raise click.UsageError(f"--{name} is only for {' and '.join(_ONLY_FOR[name])}")
    _check_source(form, paths[0])
    if "allow" in given:
        given["allow"] = [class_named(each) for each in given["allow"]]
    if form == "jsonl":
        carried = _from_export(url, paths[0], conflicts)
        snapshots, written = carried.snapshots, carried.written
        skipped: Sequence[Finding] = (*conflicts, *carried.skipped)
    else:
        done = _from_others(form, url, paths[0], given)
        snapshots, written, skipped = done.count + done.unchanged, done.count, done.skipped
    if as_json:
        facts = {"format": form, "snapshots": snapshots, "written": written}
        echo_json({**facts, "skipped": [finding_json(each) for each in skipped]})
    else:
        draw_skipped(skipped)
        new = f", {written:,} written" if written else ", nothing new"
        say(f"✓ {count_text(snapshots, 'snapshot')} in {visible(masked_url(url))}{new}")
    if form == "jsonl":
        return _exits.CONFLICT if conflicts else code_of_skipped(skipped)
    return _exits.FINE if snapshots and not skipped else _exits.FOUND


def _from_export(url: str, path: str, conflicts: list[Finding]) -> portable.Carried:
    with _lines_of(path) as lines, limpet.open(url) as store, progress("importing", None) as report:
        begin = lines.peek(len(_SQLITE))
        if begin.startswith(_SQLITE):
            if path == "-":
                raise limpet.InvalidInput("a backup is imported from a file, not from stdin")
            return portable.restore(store, path, conflicts=conflicts.append, report=report)
        if begin.startswith(_ZSTD):
            lines = io.BufferedReader(
                ZstdDecompressor().stream_reader(lines, read_across_frames=True)
            )
        return portable.import_lines(store, lines, report=report)


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
        return importlib.import_module("limpet.compat.langgraph.migrate")
    except ImportError as cause:  # also of a version that is too old
        fact = "LangGraph is not installed: pip install 'limpet[langgraph]'"
        raise limpet.Unsupported(fact) from cause


def _from_others(form: str, url: str, path: str, options: dict[str, Any]) -> "Transfer":
    from limpet.compat import genkit, openai_sqlite, runs, strands

    importers: dict[str, Callable[..., Transfer]] = {
        "genkit": genkit.import_sessions,
        "go-runs": runs.import_runs,
        "openai-sqlite": openai_sqlite.import_sqlite,
        "strands": strands.import_sessions,
    }
    if form in _SAVERS:
        importers[form] = getattr(_langgraph(), f"import_{form.partition('-')[2]}")
    if form == "strands" and "layout" not in options:
        options = {"layout": strands.find_layout(path), **options}
    with limpet.open(url) as store:
        return importers[form](store, path, **options)


@contextmanager
def _lines_of(path: str) -> Iterator[io.BufferedReader]:
    if path == "-":
        yield cast(io.BufferedReader, sys.stdin.buffer)
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
