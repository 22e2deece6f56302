"""`holdfast copy`: from any engine to any other."""

import click
from rich.text import Text

import holdfast
from holdfast import portable
from holdfast.cli import _exits
from holdfast.cli._progress import progress, snapshots_in
from holdfast.cli._shared import echo_json, existing_store, json_option, make_console
from holdfast.cli._transfer import draw_skipped, findings_json
from holdfast.refs import find_session
from holdfast.views.names import masked_url, visible
from holdfast.views.sizes import count_text, size_text


@click.command()
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
@click.option("-s", "--session", metavar="SESSION", help="Copy this session only.")
@click.option("--prefix", default="", metavar="TEXT", help="Copy the sessions that begin so.")
@click.option("--no-verify", is_flag=True, help="Do not read what was written again.")
@json_option
def copy(
    source: str, target: str, session: str | None, prefix: str, no_verify: bool, as_json: bool
) -> int:
    """Copy a store to another one, of whatever engine.

    SOURCE and TARGET are URLs. Ids, order, times, notes and lineage are kept, and everything is
    read again and compared. Stop it at any time: the same command goes on where it was, and later
    brings over what is new. Sessions that only the target has stay as they are.

    Ends with 3 if something else was saved in a scope of the target, and with 5 if something in
    the source is damaged, which is told and left out.

    \b
    --json: {"sessions": n, "scopes": n, "snapshots": n, "notes": n, "written": n,
             "bytes": n, "verified": true or false,
             "skipped": findings as `check --json` tells them}

    \b
    Examples:
      holdfast copy sqlite:///agents.db postgresql://localhost/agents
      holdfast copy s3://bucket/agents sqlite:///backup.db --prefix alice/
    """
    if source == target:
        raise click.UsageError("a store cannot be copied to itself")
    with existing_store(source) as origin, holdfast.open(target) as goal:
        session_id = None if session is None else find_session(origin, session)
        total = None if prefix else snapshots_in(origin, source, session_id)
        with progress("copying", total) as report:
            done = portable.copy(
                origin,
                goal,
                session_id=session_id,
                prefix=prefix,
                verify=not no_verify,
                report=report,
            )
    if as_json:
        echo_json(_shape(done, verified=not no_verify))
    else:
        _draw(target, done, verified=not no_verify)
    return _exits.CORRUPT if done.skipped else _exits.FINE


def _shape(done: portable.Carried, *, verified: bool) -> dict[str, object]:
    return {
        "sessions": done.sessions,
        "scopes": done.scopes,
        "snapshots": done.snapshots,
        "notes": done.notes,
        "written": done.written,
        "bytes": done.bytes,
        "verified": verified,
        "skipped": findings_json(done.skipped),
    }


def _draw(target: str, done: portable.Carried, *, verified: bool) -> None:
    console = make_console()
    draw_skipped(done.skipped)
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
