"""`limpet rm`: delete sessions, a scope, or one snapshot."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain

import click
from rich.console import Console
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
from limpet.views.format import count_text, size_text, visible
from limpet.views.refs import find_snapshot

_STEPS_BACK = re.compile(r"~\d{1,7}$")
_GAP = re.compile(r"…|\.{2,3}")
_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class _Doomed:
    """Something to delete: its address, its size (None if damaged), and how."""

    delete: Callable[[], int]
    session_id: str
    scope_id: str | None = None
    kind: str | None = None
    id: str | None = None
    snapshots: int | None = None
    bytes: int | None = None

    @property
    def name(self) -> str:
        place = visible(self.session_id)
        if self.scope_id is None:
            return f"session {place}"
        place = f"{place}:{visible(self.scope_id)}"
        if self.id is None:
            return f"scope {place} ({visible(self.kind or '')})"
        return f"snapshot {place}@{visible(self.id)}"


@click.command()
@click.argument("sessions", metavar="[SESSION]...", nargs=-1, shell_complete=complete_session)
@click.option("--prefix", metavar="TEXT", help="Every session with this prefix.")
@click.option("--snapshot", "ref", metavar="REF", help="Only this snapshot.")
@address_options
@yes_option
@store_options
def rm(
    sessions: tuple[str, ...],
    prefix: str | None,
    ref: str | None,
    yes: bool,
    url: str,
    as_json: bool,
    **address: str | None,
) -> int:
    """Delete sessions, or one scope, or one snapshot.

    Shows what will be deleted and asks; without a terminal --yes is required. Sessions and scopes
    must be written in full. Each is reported when it is deleted: after an interruption, run the
    command again for the rest.

    \b
    --json: a line for each session, scope or snapshot, as it is deleted:
            {"session_id": text, "scope_id": text or null, "kind": text or null,
             "id": text or null, "snapshots": how many were deleted}

    \b
    Examples:
      limpet rm chat-42 chat-43
      limpet rm -s chat-42 --scope planner
      limpet rm --snapshot chat-42@~3
      limpet rm --prefix alice/ --yes
    """
    forms = (bool(sessions), prefix is not None, ref is not None or bool(address["scope"]))
    if sum(forms) != 1 or prefix == "" or (forms[0] and (address["session"] or address["kind"])):
        raise click.UsageError("give one of SESSION..., --prefix, -s with --scope, or --snapshot")
    with existing_store(url) as store:
        if ref is not None:
            doomed = [_one_snapshot(store, ref, address)]
        elif address["scope"]:
            doomed = [_one_scope(store, address)]
        else:
            names = sessions if prefix is None else store.sessions(prefix=prefix)
            doomed = [_one_session(store, name) for name in dict.fromkeys(names)]
        if not doomed:
            raise limpet.NotFound(f"there is no such session. prefix=`{prefix}`")
        if not yes:
            _announce(make_console(stderr=True), doomed)
        confirm("Delete for good?", yes=yes)
        _delete(doomed, as_json=as_json)
    return _exits.FINE


def _one_session(store: limpet.Store, session_id: str) -> _Doomed:
    if next(iter(store.scopes(session_id)), None) is None:
        raise limpet.NotFound(f"there is no such session. session_id=`{session_id}`")
    delete = partial(store.delete_session, session_id)
    try:
        found = store.stats(session_id)
    except limpet.Corrupt:
        return _Doomed(delete, session_id)
    return _Doomed(delete, session_id, snapshots=found.snapshots, bytes=found.logical_bytes)


def _one_scope(store: limpet.Store, address: dict[str, str | None]) -> _Doomed:
    session_id, scope_id = address["session"], address["scope"]
    if not session_id:
        raise click.UsageError("--scope needs -s SESSION")
    scopes = store.scopes(session_id, kind=address["kind"])
    found = [each for each in scopes if each.key.scope_id == scope_id]
    where = f"session_id=`{session_id}` scope_id=`{scope_id}`"
    if not found:
        raise limpet.NotFound(f"there is no such scope. {where}")
    if len(found) > 1:
        kinds = ", ".join(each.key.kind for each in found)
        raise limpet.InvalidInput(
            f"several scopes have this name: give --kind. {where} found=`{kinds}`"
        )
    key, head = found[0].key, found[0].head
    scope = store.scope(*key)
    # A save after this listing was not confirmed for deletion: it makes this a Conflict.
    delete = partial(scope.delete, expect=limpet.ANY if head is None else head.revision)
    draft = [head] if head is not None and not head.kept else []
    count = size = 0
    try:
        for info in chain(draft, scope.history()):
            count, size = count + 1, size + info.size
    except limpet.Corrupt:
        return _Doomed(delete, *key)
    return _Doomed(delete, *key, snapshots=count, bytes=size)


def _one_snapshot(store: limpet.Store, ref: str, address: dict[str, str | None]) -> _Doomed:
    info = find_snapshot(store, ref, **address)
    if not _is_exact(store, ref, info, address):
        raise limpet.InvalidInput(
            f"write the snapshot, its session and its scope in full. ref=`{ref}`"
        )
    delete = partial(store.scope(*info.scope).delete_snapshot, info.id)
    return _Doomed(delete, *info.scope, info.id, 1, info.size)


def _is_exact(
    store: limpet.Store, ref: str, info: limpet.SnapshotInfo, address: dict[str, str | None]
) -> bool:
    """Tell whether a REF names its session and scope in full, as far as it names them.

    A snapshot id may be shortened: the question shows the whole id.
    """
    session_id, scope_id, _ = info.scope
    named = (address["session"] or session_id, address["scope"] or scope_id)
    if named != (session_id, scope_id):
        return False
    place, at, _ = ref.rpartition("@")
    if ref == info.id or (at and place in ("", session_id, f"{session_id}:{scope_id}")):
        return True
    start = _STEPS_BACK.sub("", ref)
    if start != ref:
        return _is_exact(store, start, find_snapshot(store, start, **address), address)
    return not at and info.id.startswith(_GAP.split(ref)[0])  # else it is a shortened session


def _announce(console: Console, doomed: list[_Doomed]) -> None:
    for each in doomed[:_SHOWN_MAX]:
        line = Text.assemble(("- ", "bad"), f"{each.name}  ", (_amount([each]), "quiet"))
        console.print(line, soft_wrap=True)
    if len(doomed) > _SHOWN_MAX:
        console.print(Text(f"  … and {len(doomed) - _SHOWN_MAX:,} more", "quiet"))
    if len(doomed) > 1:
        total = f"{count_text(len(doomed), 'session')}, {_amount(doomed)}"
        console.print(Text(total, "title"))


def _amount(doomed: list[_Doomed]) -> str:
    snapshots = sum(each.snapshots or 0 for each in doomed)
    size = sum(each.bytes or 0 for each in doomed)
    unknown = ", and damaged data" if any(each.snapshots is None for each in doomed) else ""
    return f"{count_text(snapshots, 'snapshot')}, {size_text(size)}{unknown}"


def _delete(doomed: list[_Doomed], *, as_json: bool) -> None:
    console = make_console()
    for each in doomed:
        count = each.delete()
        if as_json:
            fields = ("session_id", "scope_id", "kind", "id")
            shape = {name: getattr(each, name) for name in fields}
            echo_json({**shape, "snapshots": count}, indent=None)
            continue
        line = Text(f"deleted {each.name}")
        line.append(f"  {count_text(count, 'snapshot')}", "quiet")
        console.print(line, soft_wrap=True)
