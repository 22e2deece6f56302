"""`limpet backup` and `copy`: stores and sessions as they are, in a file or another engine."""

import os
from dataclasses import asdict, replace

import click

import limpet
from limpet import portable
from limpet.cli import _exits
from limpet.cli._shared import (
    complete_session,
    echo_json,
    existing_store,
    json_option,
    session_option,
    store_options,
)
from limpet.cli._terminal import say
from limpet.cli.transfer import (
    amounts,
    check_output,
    code_of_skipped,
    draw_skipped,
    progress,
    snapshots_in,
)
from limpet.core.wire import finding_json
from limpet.opening import file_of
from limpet.views.format import count_text, masked_url, visible
from limpet.views.refs import find_session


@click.command()
@click.argument("path", metavar="FILE")
@click.argument("sessions", nargs=-1, metavar="[SESSION]...", shell_complete=complete_session)
@click.option("--verify", is_flag=True, help="Read everything again, in the store and in the file.")
@store_options
def backup(path: str, sessions: tuple[str, ...], verify: bool, url: str, as_json: bool) -> int:
    """Back a store up to one FILE, or some sessions of it.

    Of any engine, with ids, order and revisions, and about as large as the store. Backing up to the
    same FILE again writes what has changed, and removes what was deleted; with a SESSION, only in
    that one. The file is replaced as a whole at the end; interrupted, the same command goes on. It
    is encrypted with the keys of the store. `limpet import FILE` restores it, `limpet ls --url
    sqlite:///FILE` shows what is in it.

    Damaged data is reported, and the exit code is 5: of that, FILE keeps what it had. Snapshots
    whose head is lost and links in a folder are reported, too; without damage it is then 1. It is 4
    if another backup is being written to FILE.

    \b
    --json: {"path": text, "sessions": n, "scopes": n, "snapshots": n, "notes": n, "written": n,
             "bytes": n, "verified": true or false, "skipped": findings as in `check --json`};
            bytes is the size of FILE

    \b
    Examples:
      limpet backup agents.limpet
      limpet backup agents.limpet alice/chat-1 --verify
    """
    check_output(path, url)
    with existing_store(url, read_only=True) as store:
        names = [find_session(store, each) for each in sessions]
        total = None if names else snapshots_in(store, url, None)
        with progress("backing up", total) as report:
            done = portable.backup(store, path, sessions=names, verify=verify, report=report)
    done = replace(done, bytes=os.path.getsize(path))
    if as_json:
        skipped = [finding_json(each) for each in done.skipped]
        echo_json({"path": path, **asdict(done), "verified": verify, "skipped": skipped})
    else:
        draw_skipped(done.skipped)
        _draw_copied(visible(path), done, verified=verify)
    return code_of_skipped(done.skipped)


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
        found = {"conflicts": conflicts, "skipped": done.skipped}
        shown = {name: [finding_json(each) for each in some] for name, some in found.items()}
        echo_json({**asdict(done), "verified": not no_verify, **shown})
    else:
        draw_skipped([*conflicts, *done.skipped])
        _draw_copied(visible(masked_url(target)), done, verified=not no_verify)
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


def _draw_copied(target: str, done: portable.Carried, *, verified: bool) -> None:
    where = (target, "accent")
    say(("✓ ", "good"), amounts(done), " in ", where)
    is_new = done.written == done.snapshots + done.notes
    new = "all new" if is_new else f"{done.written:,} new"
    checked = ", verified" if verified else ""
    less = f"; {count_text(len(done.skipped), 'finding')} above: not all was copied"
    say((f"  {new}{checked}{less if done.skipped else ''}", "quiet"))
