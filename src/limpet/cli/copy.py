"""`limpet copy`: from any engine to any other."""

import os

import click
from rich.text import Text

import limpet
from limpet import portable
from limpet.cli import _exits
from limpet.cli._progress import progress, snapshots_in
from limpet.cli._shared import (
    echo_json,
    existing_store,
    json_option,
    make_console,
    session_option,
)
from limpet.cli._transfer import draw_skipped, findings_json
from limpet.opening import file_of
from limpet.views.refs import find_session
from limpet.views.sizes import count_text, masked_url, size_text, visible


@click.command()
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
@session_option("Copy this session only.")
@click.option("--prefix", default="", metavar="TEXT", help="Copy the sessions whose id begins so.")
@click.option("--no-verify", is_flag=True, help="Do not read what was written again.")
@json_option
def copy(
    source: str, target: str, session: str | None, prefix: str, no_verify: bool, as_json: bool
) -> int:
    """Copy a store to another one, of whatever engine.

    SOURCE and TARGET are URLs. Ids, order, times, notes and lineage are kept, and everything is
    read again and compared. Stop it at any time: the same command goes on where it was, and later
    brings over what is new. Sessions that only the target has stay as they are.

    A scope of the target in which something else was saved, or from whose source something was
    deleted since, stays as it is and is told; then it ends with 3. What is damaged in the source is
    told and left out; then it ends with 5. Notes that were deleted in the source stay here.

    \b
    --json: {"sessions": n, "scopes": n, "snapshots": n, "notes": n, "written": n,
             "bytes": n, "verified": true or false,
             "conflicts": and "skipped": findings as `check --json` tells them}

    \b
    Examples:
      limpet copy sqlite:///agents.db postgresql://localhost/agents
      limpet copy s3://bucket/agents sqlite:///backup.db --prefix alice/
    """
    if _place(source) == _place(target):
        raise click.UsageError("a store cannot be copied to itself")
    conflicts: list[limpet.Finding] = []
    with existing_store(source) as origin:
        next(origin.sessions(limit=1), None)  # before a target is made for what cannot be read
        session_id = None if session is None else find_session(origin, session)
        total = None if prefix else snapshots_in(origin, source, session_id)
        with limpet.open(target) as goal, progress("copying", total) as report:
            done = portable.copy(
                origin,
                goal,
                session_id=session_id,
                prefix=prefix,
                verify=not no_verify,
                conflicts=conflicts.append,
                report=report,
            )
    if as_json:
        echo_json(_shape(done, conflicts, verified=not no_verify))
    else:
        draw_skipped([*conflicts, *done.skipped])
        _draw(target, done, verified=not no_verify)
    if done.skipped:
        return _exits.CORRUPT
    return _exits.CONFLICT if conflicts else _exits.FINE


def _place(url: str) -> str:
    """Return where a store is, by whatever name it is called: a file, or an address."""
    path = file_of(url)
    return url.partition("?")[0].rstrip("/") if path is None else os.path.realpath(path)


def _shape(
    done: portable.Carried, conflicts: list[limpet.Finding], *, verified: bool
) -> dict[str, object]:
    return {
        "sessions": done.sessions,
        "scopes": done.scopes,
        "snapshots": done.snapshots,
        "notes": done.notes,
        "written": done.written,
        "bytes": done.bytes,
        "verified": verified,
        "conflicts": findings_json(conflicts),
        "skipped": findings_json(done.skipped),
    }


def _draw(target: str, done: portable.Carried, *, verified: bool) -> None:
    console = make_console()
    parts = [
        count_text(done.sessions, "session"),
        count_text(done.snapshots, "snapshot"),
        *([count_text(done.notes, "note")] if done.notes else []),
        size_text(done.bytes),
    ]
    console.print(
        Text.assemble(
            ("✓ ", "good"),
            " · ".join(parts),
            " in ",
            (visible(masked_url(target)), "accent"),
        ),
        soft_wrap=True,
    )
    new = "all of it new" if done.written == done.snapshots + done.notes else ""
    new = new or f"{done.written:,} of them new"
    console.print(Text(f"  {new}{', all of it verified' if verified else ''}", "quiet"))
