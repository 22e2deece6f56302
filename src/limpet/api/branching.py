"""The verbs about branches of snapshots: ancestors, leaves, diff, restore and fork."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from limpet.api.opened import ScopeContext, Tools
from limpet.api.verbs import Ask, Encode, Steps, Walk, Work, contend, load, missing, pages, save
from limpet.core import codec, ids, limits, prepare
from limpet.core.diff import diff
from limpet.errors import AlreadyExists, InvalidInput
from limpet.model import (
    HEAD,
    JSON,
    Diff,
    Expect,
    ScopeKey,
    SnapshotInfo,
    SnapshotLike,
    SnapshotRef,
)
from limpet.protocol import AppendOffsets, Backend, Commit, Copy, Found, Query

_NAME_TRIES_MAX = 8
_REACH_FIRST = 16  # snapshots that `ancestors` reads ahead


def ancestors(scope: ScopeKey, snapshot: SnapshotLike) -> Walk[SnapshotInfo]:
    """Walk from a snapshot to its parent and on, until a parent is missing or was seen before."""
    snapshot_id = prepare.snapshot_id("id", snapshot, scope)

    def walk() -> Walk[SnapshotInfo]:
        ancestry = _Ancestry(scope, snapshot_id)
        while not ancestry.ended:
            yield ancestry.read_page

    return walk()


class _Ancestry:
    """A walk along parents that holds no more than a page.

    Parents are older than their children, unless they were saved later (a parent need not exist).
    Only after such a step can a snapshot be met again, so only then are those seen remembered.

    The parent is mostly the snapshot that was saved just before. So some of those are read at once:
    more as long as they are ancestors, fewer if not.
    """

    def __init__(self, scope: ScopeKey, start: str) -> None:
        self._scope = scope
        self._start = start
        self._next: str | None = start
        self._last_seq = ids.SEQ_MAX
        self._seen: set[int] | None = None
        self._ahead: dict[str, SnapshotInfo] = {}
        self._reach = _REACH_FIRST
        self._missed = False  # none of those read ahead was an ancestor
        self.ended = False

    def read_page(self, backend: Backend) -> list[SnapshotInfo]:
        page: list[SnapshotInfo] = []
        self._ahead.clear()  # it may have changed since the last page
        self._missed = False
        while self._next is not None and len(page) < limits.PAGE_ITEMS_MAX:
            info = self._read(backend, self._next)
            if info is None:
                if self._last_seq == ids.SEQ_MAX:
                    raise missing(self._scope, self._start)
                self._next = None
                break
            seq = ids.seq_of(info.revision)
            if seq >= self._last_seq and self._seen is None:
                self._seen = self._seen_before(backend)
            if self._seen is not None:
                if seq in self._seen:
                    self._next = None
                    break
                self._seen.add(seq)
            self._last_seq = seq
            self._next = info.parent_id
            page.append(info)
        self.ended = self._next is None
        return page

    def _read(self, backend: Backend, snapshot_id: str) -> SnapshotInfo | None:
        info = self._ahead.pop(snapshot_id, None)
        if info is not None:
            self._missed = False
            return info
        info = backend.read_info(self._scope, snapshot_id)
        self._reach = max(1, self._reach // 4) if self._missed else self._reach
        if info is None or info.parent_id is None or self._reach == 1:
            return info
        query = Query(self._scope, after=ids.seq_of(info.revision))
        found = backend.list_snapshots(query, limit=self._reach)
        self._ahead = {each.id: each for each in found}
        self._reach = min(2 * self._reach, limits.PAGE_ITEMS_MAX)
        self._missed = True
        return info

    def _seen_before(self, backend: Backend) -> set[int]:
        """Walk the same way again, up to the last snapshot seen."""
        seen: set[int] = set()
        each: str | None = self._start
        while each is not None and self._last_seq not in seen:
            info = backend.read_info(self._scope, each)
            if info is None:
                break
            seq = ids.seq_of(info.revision)
            if seq in seen:
                break  # a cycle that was closed since
            seen.add(seq)
            each = info.parent_id
        return seen


def leaves(scope: ScopeKey) -> Walk[SnapshotInfo]:
    def fetch(backend: Backend, last: SnapshotInfo | None, count: int) -> list[SnapshotInfo]:
        seq = None if last is None else ids.seq_of(last.revision)
        return backend.list_snapshots(Query(scope, leaves=True, after=seq), limit=count)

    return pages(fetch, limit=None)


def difference(scope: ScopeKey, a: SnapshotLike, b: SnapshotLike) -> Work[Diff]:
    """Compare two snapshots; one that is given by more than its id may be of another scope."""
    refs = [prepare.address(each, scope) for each in (a, b)]

    def work(backend: Backend) -> Diff:
        states = []
        for ref in refs:
            found = load(*ref)(backend)
            if found is None:
                raise missing(*ref)
            states.append(found.state)
        return diff(*states)

    return work


def restore(
    context: ScopeContext,
    snapshot: SnapshotLike,
    *,
    labels: Mapping[str, str] | None,
    metadata: Mapping[str, JSON] | None,
    expect: Expect,
) -> Work[SnapshotInfo]:
    scope, tools, _, fence = context
    snapshot_id = prepare.snapshot_id("id", snapshot, scope)
    facts = _encoded(tools, labels, metadata)
    expect = prepare.check_expect(expect)

    def work(backend: Backend) -> SnapshotInfo:
        found = backend.read_snapshots(scope, [snapshot_id])
        if not found:
            raise missing(scope, snapshot_id)
        ((origin, body),) = found
        commit = Commit(
            scope=scope,
            body=body,
            status=origin.status,
            labels=facts.labels_of(origin),
            metadata=facts.metadata_of(origin),
            stamp=tools.draw(),
            parent=origin.id if origin.kept else HEAD,  # a draft is gone when the head moves
            expect=expect,
            fence=fence,
        )
        return backend.commit(commit)

    return work


_State = tuple[bytes | Copy, AppendOffsets | None]
_Patch = Mapping[str, Any] | Callable[[Any], Any]


def fork(
    context: ScopeContext,
    snapshot: SnapshotLike,
    *,
    to: str | None,
    scope_id: str | None,
    patch: _Patch | None,
    labels: Mapping[str, str] | None,
    metadata: Mapping[str, JSON] | None,
) -> Steps[ScopeKey]:
    source, tools, _, _ = context
    snapshot_id = prepare.snapshot_id("id", snapshot, source)
    session_id = source.session_id if to is None else limits.check_id("to", to)
    if patch is not None and not callable(patch) and not isinstance(patch, Mapping):
        raise InvalidInput(f"patch must be a mapping or a function. type=`{type(patch).__name__}`")
    facts = _encoded(tools, labels, metadata)
    is_generated = scope_id is None and session_id == source.session_id
    given_name = source.scope_id if scope_id is None else scope_id
    limits.check_scope(session_id, given_name, source.kind)
    seen: list[str] = []

    def attempt() -> Steps[ScopeKey]:
        info, state = yield from _origin(context, snapshot_id, patch)
        seen[:] = [info.revision]
        for left in reversed(range(_NAME_TRIES_MAX if is_generated else 1)):
            stamp = tools.draw()
            name = ids.fork_name(given_name, stamp.bits) if is_generated else given_name
            scope = limits.check_scope(session_id, name, source.kind)
            commit = Commit(
                scope=scope,
                body=state[0],
                append_offsets=state[1],
                status=info.status,
                labels=facts.labels_of(info),
                metadata=facts.metadata_of(info),
                stamp=stamp,
                parent=None,
                forked_from=SnapshotRef(info.scope, info.id),
                new_scope=True,
                source=info.revision,
            )
            try:
                yield save(commit)
            except AlreadyExists:
                if not left:
                    raise
            else:
                break
        return scope

    def changed(backend: Backend) -> bool:
        info = backend.read_info(source, snapshot_id)
        return [None if info is None else info.revision] != seen

    return contend(tools, attempt, changed)


class _Encoded(NamedTuple):
    """Encoded labels and metadata, which are copied from the origin where they are not given."""

    labels: bytes | None
    metadata: bytes | None

    def labels_of(self, origin: SnapshotInfo) -> bytes:
        return codec.encode(origin.labels) if self.labels is None else self.labels

    def metadata_of(self, origin: SnapshotInfo) -> bytes:
        return codec.encode(origin.metadata) if self.metadata is None else self.metadata


def _encoded(
    tools: Tools, labels: Mapping[str, str] | None, metadata: Mapping[str, JSON] | None
) -> _Encoded:
    given = None
    if metadata is not None:
        given = prepare.encode_metadata(metadata, tools.state_bytes_max, tools.default)
    return _Encoded(None if labels is None else prepare.encode_labels(labels), given)


def _origin(
    context: ScopeContext, snapshot_id: str, patch: _Patch | None
) -> Steps[tuple[SnapshotInfo, _State]]:
    """Read the snapshot that a fork begins with, and patch its state."""
    source, tools, model, _ = context
    if patch is None:  # then the state need not be read
        info: SnapshotInfo | None = yield lambda backend: backend.read_info(source, snapshot_id)
        found: list[Found] = [] if info is None else [(info, b"")]
    else:
        found = yield lambda backend: backend.read_snapshots(source, [snapshot_id])
    if not found:
        raise missing(source, snapshot_id)
    ((origin, body),) = found
    if patch is None:
        return origin, (Copy(), None)
    if callable(patch):
        patched = yield Ask(patch, model.load(origin, body))

        def encode() -> _State:
            return prepare.encode_state(model.dump(patched), tools.state_bytes_max, tools.default)

        return origin, (yield Encode(patched, encode))
    state = codec.decode(body)
    if isinstance(state, dict):
        state |= [model.dump_member(*each) for each in patch.items()]
    else:
        raise InvalidInput(
            f"a mapping can patch only an object: give a function. type=`{type(state).__name__}`"
        )
    encoded = partial(prepare.encode_state, state, tools.state_bytes_max, tools.default)
    return origin, (yield Encode(state, encoded))
