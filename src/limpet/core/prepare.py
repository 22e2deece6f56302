"""From a caller's arguments to a `Commit`: every check that needs no storage.

All checks happen before anything is written, so bad input leaves no trace.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from limpet.core import codec, limits, times
from limpet.core.rows import EMPTY
from limpet.errors import InvalidInput
from limpet.model import (
    ANY,
    HEAD,
    JSON,
    Expect,
    Parent,
    ScopeKey,
    Snapshot,
    SnapshotInfo,
    SnapshotLike,
    SnapshotRef,
)
from limpet.protocol import Append, AppendOffsets, Commit, NoteWrite, Stamp

_new = tuple.__new__  # the same as Commit(…), without a call of Python code
_REVISION = re.compile(r"-?[0-9a-f]+\.")  # with which every revision begins


def save(
    scope: ScopeKey,
    state: JSON,
    *,
    stamp: Stamp,
    state_bytes_max: int,
    default: codec.Default | None = None,
    id: str | None = None,
    parent: Parent | SnapshotLike = HEAD,
    keep: bool = True,
    head: bool = True,
    overwrite: bool = False,
    status: str = "",
    labels: Mapping[str, str] | None = None,
    metadata: Mapping[str, JSON] | None = None,
    created_at: datetime | None = None,
    forked_from: SnapshotRef | None = None,
    expect: Expect = ANY,
    fence: str | None = None,
) -> Commit:
    """Return the commit of a save, its state encoded. The defaults are those of `Scope.save`."""
    if type(keep) is not bool or type(head) is not bool or type(overwrite) is not bool:
        for name, value in (("keep", keep), ("head", head), ("overwrite", overwrite)):
            limits.check_flag(name, value)
    if not keep and not head:
        raise InvalidInput("a save must be kept, or become the head, or both")
    if id is not None:
        id = limits.check_id("id", id)
    if parent is not HEAD and parent is not None:
        parent = snapshot_id("parent", parent, scope)
        if parent == id:
            raise InvalidInput(f"a snapshot cannot be its own parent. id=`{id}`")
    body, offsets = codec.encode_state(state, bytes_max=state_bytes_max, default=default)
    if len(body) > state_bytes_max:
        raise _too_large("the state", body, state_bytes_max)
    return _new(
        Commit,
        (
            scope,
            body,
            "" if status == "" else limits.check_status(status),
            EMPTY if labels is None else encode_labels(labels),
            EMPTY if metadata is None else encode_metadata(metadata, state_bytes_max, default),
            stamp,
            *(id, parent, keep, head, overwrite),
            ANY if expect is ANY else check_expect(expect),
            None,  # replaces
            None if created_at is None else times.to_us("created_at", created_at),
            None if forked_from is None else check_ref("forked_from", forked_from),
            fence,
            *(False, None),  # new_scope, source
            offsets,
            *(False, False),  # again, past_damage
        ),
    )


def append(
    scope: ScopeKey,
    key: str,
    items: list[JSON],
    *,
    stamp: Stamp,
    state_bytes_max: int,
    default: codec.Default | None = None,
    keep: bool = True,
    status: str | None = None,
    labels: Mapping[str, str] | None = None,
    metadata: Mapping[str, JSON] | None = None,
    expect: Expect = ANY,
    fence: str | None = None,
) -> Commit:
    """Return the commit of an append. The defaults are those of `Scope.append`."""
    if not isinstance(key, str):
        raise InvalidInput(f"the key must be text. type=`{type(key).__name__}`")
    if not isinstance(items, list | tuple):
        raise InvalidInput(
            f"the items must be a list, as in `[item]`. type=`{type(items).__name__}`"
        )
    key = str.__str__(key)
    encoded = codec.encode_items(key, items, bytes_max=state_bytes_max, default=default)
    return Commit(
        scope=scope,
        body=_new(Append, (key, encoded, state_bytes_max)),
        status=None if status is None else limits.check_status(status),
        labels=EMPTY if labels is None else encode_labels(labels),
        metadata=EMPTY if metadata is None else encode_metadata(metadata, state_bytes_max, default),
        stamp=stamp,
        keep=keep if type(keep) is bool else limits.check_flag("keep", keep),
        expect=ANY if expect is ANY else check_expect(expect),
        fence=fence,
    )


def replacement(
    before: Snapshot,
    after: object,
    *,
    dump: Callable[[Any], JSON],
    fence: str | None,
    stamp: Stamp,
    state_bytes_max: int,
    default: codec.Default | None = None,
) -> Commit:
    """Return the commit of an update, from what the caller's function returned for `before`."""
    if not isinstance(after, Snapshot):
        raise InvalidInput(
            f"the function must return a Snapshot or None. type=`{type(after).__name__}`"
        )
    for name in ("scope", "id", "parent_id", "forked_from", "created_at"):
        if getattr(before, name) != getattr(after, name):
            raise InvalidInput(f"an update cannot change this. field=`{name}` id=`{before.id}`")
    body, offsets = encode_state(dump(after.state), state_bytes_max, default)
    return Commit(
        scope=before.scope,
        body=body,
        append_offsets=offsets,
        status=limits.check_status(after.status),
        labels=encode_labels(after.labels),
        metadata=encode_metadata(after.metadata, state_bytes_max, default),
        stamp=stamp,
        id=before.id,
        replaces=before.revision,
        fence=fence,
    )


def note_write(
    scope: ScopeKey,
    name: str,
    value: JSON,
    *,
    on: str | None,
    expect: Expect,
    fence: str | None,
    stamp: Stamp,
    state_bytes_max: int,
    default: codec.Default | None = None,
) -> NoteWrite:
    encoded = codec.encode(value, what="note", bytes_max=state_bytes_max, default=default)
    _check_size("the note", encoded, state_bytes_max)
    return NoteWrite(scope, name, on, encoded, stamp, expect, fence)


def snapshot_id(name: str, given: object, scope: ScopeKey | None) -> str:
    """Return the id of a snapshot that was given as its id, its info or its address.

    Raises:
        InvalidInput: it is of another scope, where the id alone would mean another snapshot.
    """
    if isinstance(given, SnapshotInfo | SnapshotRef):
        if scope is not None and given.scope != scope:
            raise InvalidInput(
                f"{name} is a snapshot of another scope: use store.scope(*it.scope), since only "
                f"diff looks across scopes. id=`{given.id}` scope=`{tuple(given.scope)}`"
            )
        given = given.id
    return limits.check_id(name, given)


def address(given: object, scope: ScopeKey) -> SnapshotRef:
    """Return the address of a snapshot of any scope; an id alone is one of `scope`."""
    if isinstance(given, SnapshotInfo | SnapshotRef):
        return check_ref("id", (given.scope, given.id))
    return SnapshotRef(scope, limits.check_id("id", given))


def note_address(scope: ScopeKey, name: object, on: object) -> tuple[str, str | None]:
    where = None if on is None else snapshot_id("on", on, scope)
    return limits.check_id("note name", name), where


def note_owners(
    scope: ScopeKey, on: SnapshotLike | Iterable[SnapshotLike] | None
) -> list[str | None]:
    """Check which notes to list: of the scope itself (None), of one snapshot, or of several."""
    if on is None:
        return [None]
    if isinstance(on, str | SnapshotInfo | SnapshotRef):
        return [snapshot_id("on", on, scope)]
    if not isinstance(on, Iterable):
        raise InvalidInput(f"on must be one id or several. type=`{type(on).__name__}`")
    return list(dict.fromkeys(snapshot_id("on", each, scope) for each in on))


def encode_state(
    state: JSON, state_bytes_max: int, default: codec.Default | None = None
) -> tuple[bytes, AppendOffsets | None]:
    """Return the encoded state and its append offsets; InvalidInput if not JSON or too large."""
    encoded, offsets = codec.encode_state(state, bytes_max=state_bytes_max, default=default)
    _check_size("the state", encoded, state_bytes_max)
    return encoded, offsets


def encode_labels(labels: Mapping[str, str] | None) -> bytes:
    plain = limits.check_labels(labels)
    return codec.encode(plain, what="labels") if plain else EMPTY


def encode_metadata(
    metadata: Mapping[str, JSON] | None,
    state_bytes_max: int,
    default: codec.Default | None = None,
) -> bytes:
    """Return encoded metadata. What a facade stores under its key may be as large as a state."""
    if metadata is None:
        return EMPTY
    if not isinstance(metadata, Mapping):
        raise InvalidInput(f"metadata must be a mapping. type=`{type(metadata).__name__}`")
    encoded = codec.encode(
        dict(metadata), what="metadata", bytes_max=state_bytes_max, default=default
    )
    if len(encoded) > limits.METADATA_BYTES_MAX:
        _check_size("the metadata of a facade", encoded, state_bytes_max)
        stored = codec.decode(encoded)  # the caller may have changed it since
        ours = {k: v for k, v in stored.items() if k not in limits.FACADE_KEYS}
        _check_size("the metadata", codec.encode(ours), limits.METADATA_BYTES_MAX)
    return encoded


def _check_size(what: str, encoded: bytes, bytes_max: int) -> None:
    if len(encoded) > bytes_max:
        raise _too_large(what, encoded, bytes_max)


def _too_large(what: str, encoded: bytes, bytes_max: int) -> InvalidInput:
    return InvalidInput(f"{what} is too large. bytes=`{len(encoded)}` max=`{bytes_max}`")


def check_expect(expect: Expect) -> Expect:
    """Return a revision, None or ANY. Passing an id or a whole snapshot is a common mistake."""
    if expect is ANY or expect is None:
        return expect
    if isinstance(expect, str):
        if _REVISION.match(expect):
            return expect
        # As a conflict it would be tried again, and fail again.
        raise InvalidInput(
            f"expect must be a revision, as in `expect=info.revision`. expect=`{expect!a}`"
        )
    raise InvalidInput(f"expect must be a revision, None or ANY. type=`{type(expect).__name__}`")


def check_ref(name: str, ref: object) -> SnapshotRef:
    match ref:
        case ((session_id, scope_id, kind), snapshot_id):
            scope = limits.check_scope(session_id, scope_id, kind)
            return SnapshotRef(scope, limits.check_id(name, snapshot_id))
    raise InvalidInput(f"{name} must be a SnapshotRef. type=`{type(ref).__name__}`")


def check_cursor(after: object, scope: ScopeKey | None) -> SnapshotRef | SnapshotInfo | None:
    """Return the cursor of a history of one scope, or of all (None), where an id is not enough."""
    if after is None:
        return None
    if scope is not None:
        found = snapshot_id("after", after, scope)
        return after if isinstance(after, SnapshotInfo) else SnapshotRef(scope, found)
    if isinstance(after, SnapshotInfo):
        return after
    if isinstance(after, SnapshotRef):
        return check_ref("after", after)
    raise InvalidInput(
        f"after must be a SnapshotInfo or a SnapshotRef. type=`{type(after).__name__}`"
    )
