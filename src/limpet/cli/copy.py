"""`limpet copy`: from one store to another."""

import os
from dataclasses import asdict

import click
from rich.text import Text

import limpet
from limpet import portable
from limpet.cli import _exits
from limpet.cli._shared import echo_json, existing_store, json_option, session_option
from limpet.cli._terminal import make_console
from limpet.cli._transfer import code_of_skipped, draw_skipped, progress, snapshots_in
from limpet.core.wire import finding_json
from limpet.opening import file_of
from limpet.views.format import count_text, masked_url, size_text, visible
from limpet.views.refs import find_session


@click.command()
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
@session_option("Copy only this session.")
@click.option("--prefix", default="", metavar="TEXT", help="Copy only sessions with this prefix.")
@click.option("--no-verify", is_flag=True, help="Do not read the copy back to compare it.")
@json_option
def copy(
    source: str, target: str, session: str | None, prefix: str, no_verify: bool, as_json: bool
) -> int:
    """Copy a store to another one, of any engine.

    SOURCE and TARGET are URLs. Ids, order, times, notes and lineage are preserved. The copy is read
    back and compared. It can be interrupted: run the same command again to continue, or later to
    copy what is new. Sessions that exist only in the target are not changed.

    A scope of the target that holds other snapshots than the source is reported and not changed;
    then the exit code is 3. This also happens after snapshots were deleted in the source. Damaged
    data in the source is reported and skipped; then it is 5. Links in a folder, which are not
    followed, and snapshots whose head is lost are reported, too; if there is nothing worse, it is
    1. Deleted notes stay in the target.

    \b
    --json: {"sessions": n, "scopes": n, "snapshots": n, "notes": n, "written": n,
             "bytes": n, "verified": true or false,
             "conflicts": and "skipped": findings as in `check --json`}

    \b
    Examples:
      limpet copy sqlite:///agents.db postgresql://localhost/agents
      limpet copy s3://bucket/agents sqlite:///backup.db --prefix alice/
    """
    if _location(source) == _location(target):
        raise click.UsageError("a store cannot be copied to itself")
    conflicts: list[limpet.Finding] = []
    with existing_store(source, read_only=True) as origin:
        next(origin.sessions(limit=1), None)  # fail before a target is created
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
    if conflicts and code_of_skipped(done.skipped) != _exits.CORRUPT:
        return _exits.CONFLICT
    return code_of_skipped(done.skipped)


def _location(url: str) -> object:
    path = file_of(url)
    if path is None:
        return url.partition("?")[0].rstrip("/")
    try:
        found = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    return found.st_dev, found.st_ino


def _shape(
    done: portable.Carried, conflicts: list[limpet.Finding], *, verified: bool
) -> dict[str, object]:
    return {
        **asdict(done),
        "verified": verified,
        "conflicts": [finding_json(each) for each in conflicts],
        "skipped": [finding_json(each) for each in done.skipped],
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
            ("✓ ", "good"), " · ".join(parts), " in ", (visible(masked_url(target)), "accent")
        ),
        soft_wrap=True,
    )
    new = "all new" if done.written == done.snapshots + done.notes else ""
    new = new or f"{done.written:,} new"
    checked = ", verified" if verified else ""
    less = f"; {count_text(len(done.skipped), 'finding')} above: not all was copied"
    console.print(Text(f"  {new}{checked}{less if done.skipped else ''}", "quiet"))
