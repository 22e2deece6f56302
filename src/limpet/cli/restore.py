"""`limpet restore`: make an earlier state the head again."""

import click
from rich.text import Text

import limpet
from limpet.cli import _exits
from limpet.cli._shared import (
    address_options,
    complete_session,
    confirm,
    echo_json,
    existing_store,
    store_options,
    yes_option,
)
from limpet.cli._terminal import make_console
from limpet.core.wire import info_json
from limpet.views.format import address_text, short_id, visible
from limpet.views.refs import find_snapshot


@click.command()
@click.argument("ref", metavar="REF", shell_complete=complete_session)
@address_options
@click.option(
    "--expect", metavar="REVISION", help="Only if the head still has this revision (from --json)."
)
@yes_option
@store_options
def restore(
    ref: str, expect: str | None, yes: bool, url: str, as_json: bool, **address: str | None
) -> int:
    """Make an earlier state the current one again.

    Saves the state of REF as a new snapshot with REF as its parent. The previous head stays in the
    history; if it is a draft it would be lost, so the command asks first. If another process saves
    at the same time, nothing is changed and the exit code is 3. If REF is the head, nothing
    happens.

    \b
    --json: {"restored": the snapshot REF, "before": the head before, or null,
             "head": the head now, "changed": true or false}

    \b
    Examples:
      limpet restore chat-42@~1
      limpet restore 019ab3f0 -s chat-42
    """
    with existing_store(url) as store:
        source = find_snapshot(store, ref, **address)
        scope = store.scope(*source.scope)
        before = scope.info()
        seen = None if before is None else before.revision
        if expect not in (None, seen):
            raise limpet.Conflict(f"the head has another revision now. revision=`{seen}`")
        head = before if before is not None and before.id == source.id else None
        if head is None:
            if before is not None and not before.kept:
                confirm(
                    f"The head {visible(before.id)} is a draft and will be lost. Continue?", yes=yes
                )
            head = scope.restore(source.id, expect=seen)
    changed = head.revision != seen
    if as_json:
        old = None if before is None else info_json(before)
        shape = {"restored": info_json(source), "before": old, "head": info_json(head)}
        echo_json({**shape, "changed": changed})
    else:
        _report(source, before, head if changed else None)
    return _exits.FINE


def _report(
    source: limpet.SnapshotInfo,
    before: limpet.SnapshotInfo | None,
    head: limpet.SnapshotInfo | None,
) -> None:
    line = Text.assemble((visible(address_text(source.scope)), "title"), "  ")
    if head is None:
        line.append(f"{visible(short_id(source.id))} is already the head; nothing was done")
    else:
        line.append("◆ ", "good").append(visible(short_id(head.id)), "accent")
        line.append(" has the state of ").append(visible(short_id(source.id)), "accent")
        if before is not None:
            fate = "stays in history" if before.kept else "was a draft and is lost"
            line.append(f"; {visible(short_id(before.id))} {fate}", "quiet")
    make_console().print(line, soft_wrap=True)
