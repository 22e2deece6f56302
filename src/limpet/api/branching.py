"""The verbs about lines of snapshots: ancestors, leaves, differences, restores and forks."""

from collections.abc import Callable, Mapping
from typing import Any

from limpet.api.opened import Tools
from limpet.api.verbs import Ask, Steps, Walk, Work, contend, load, pages
from limpet.core import codec, ids, limits, prepare
from limpet.core.diff import diff as compare
from limpet.errors import AlreadyExists, InvalidInput, NotFound
from limpet.model import HEAD, JSON, Diff, Expect, ScopeKey, SnapshotInfo, SnapshotRef
from limpet.protocol import AppendOffsets, Backend, Commit, Copy, Found, Query, Stamp

_NAME_TRIES_MAX = 8


def ancestors(scope: ScopeKey, snapshot_id: str) -> Walk[SnapshotInfo]:
    """Walk from a snapshot to its parent and on, until a parent is missing or met again."""
    snapshot_id = limits.check_id("id", snapshot_id)

    def walk() -> Walk[SnapshotInfo]:
        climb = _Climb(scope, snapshot_id)
        while not climb.ended:
            yield climb.some

    return walk()


class _Climb:
    """A walk along parents that holds no more than a page.

    Parents are older than their children, but for those that were saved later (a parent is only a
    statement). Only behind such a step can a snapshot be met again, so only then is it remembered
    which ones were.
    """

    def __init__(self, scope: ScopeKey, start: str) -> None:
        self._scope = scope
        self._start = start
        self._next: str | None = start
        self._last_seq = ids.SEQ_MAX
        self._met: set[int] | None = None
        self.ended = False

    def some(self, backend: Backend) -> list[SnapshotInfo]:
        """Return the next page."""
        page: list[SnapshotInfo] = []
        while self._next is not None and len(page) < limits.PAGE_ITEMS_MAX:
            info = backend.read_info(self._scope, self._next)
            if info is None:
                if self._last_seq == ids.SEQ_MAX:
                    raise NotFound(f"there is no such snapshot. id=`{self._start}`")
                break
            seq = ids.seq_of(info.revision)
            if seq >= self._last_seq and self._met is None:
                self._met = self._met_before(backend, self._last_seq)
            if self._met is not None:
                if seq in self._met:
                    break
                self._met.add(seq)
            self._last_seq = seq
            self._next = info.parent_id
            page.append(info)
        else:
            self.ended = self._next is None
            return page
        self.ended = True
        return page

    def _met_before(self, backend: Backend, last_seq: int) -> set[int]:
        """Go over the same way once more, up to the last one met."""
        met: set[int] = set()
        each: str | None = self._start
        while each is not None and last_seq not in met:
            info = backend.read_info(self._scope, each)
            if info is None:
                break
            seq = ids.seq_of(info.revision)
            if seq in met:
                break  # a circle that was closed since the walk came along here
            met.add(seq)
            each = info.parent_id
        return met


def leaves(scope: ScopeKey) -> Walk[SnapshotInfo]:
    """Walk the kept snapshots that no other kept one of the scope follows, newest first."""

    def fetch(backend: Backend, last: SnapshotInfo | None, count: int) -> list[SnapshotInfo]:
        place = None if last is None else ids.seq_of(last.revision)
        return backend.list_snapshots(Query(scope, leaves=True, after=place), limit=count)

    return pages(fetch, limit=None)


def difference(scope: ScopeKey, a: str, b: str) -> Work[Diff]:
    """Compare the states of two snapshots."""
    reads = [(each, load(scope, limits.check_id("id", each))) for each in (a, b)]

    def work(backend: Backend) -> Diff:
        states = []
        for each, read in reads:
            found = read(backend)
            if found is None:
                raise NotFound(f"there is no such snapshot. id=`{each}`")
            states.append(found.state)
        return compare(*states)

    return work


def restore(
    tools: Tools,
    scope: ScopeKey,
    snapshot_id: str,
    facts: tuple[Mapping[str, str] | None, Mapping[str, JSON] | None],
    *,
    expect: Expect,
    fence: str | None,
) -> Work[SnapshotInfo]:
    """Save the state of an earlier snapshot as a new head that follows it.

    `facts` are labels and metadata, None for those of the snapshot.
    """
    snapshot_id = limits.check_id("id", snapshot_id)
    labels, metadata = _encoded(tools, *facts)
    expect = prepare.check_expect(expect)

    def work(backend: Backend) -> SnapshotInfo:
        found = backend.read_snapshots(scope, [snapshot_id])
        if not found:
            raise NotFound(f"there is no such snapshot. id=`{snapshot_id}`")
        ((origin, body),) = found
        commit = Commit(
            scope=scope,
            body=body,
            status=origin.status,
            labels=codec.encode(origin.labels) if labels is None else labels,
            metadata=codec.encode(origin.metadata) if metadata is None else metadata,
            stamp=tools.draw(),
            parent=origin.id if origin.kept else HEAD,  # a draft is gone when the head moves
            expect=expect,
            fence=fence,
        )
        return backend.commit(commit)

    return work


_State = tuple[bytes | Copy, AppendOffsets | None]


def fork(
    tools: Tools,
    source: ScopeKey,
    snapshot_id: str,
    *,
    to: str | None,
    scope_id: str | None,
    patch: Mapping[str, JSON] | Callable[[JSON], Any] | None,
    labels: Mapping[str, str] | None,
    metadata: Mapping[str, JSON] | None,
) -> Steps[ScopeKey]:
    """Begin a new scope with the state of a snapshot, patched if asked; return its key."""
    snapshot_id = limits.check_id("id", snapshot_id)
    session_id = source.session_id if to is None else limits.check_id("to", to)
    if patch is not None and not callable(patch) and not isinstance(patch, Mapping):
        raise InvalidInput(f"patch must be a mapping or a function. type=`{type(patch).__name__}`")
    facts = _encoded(tools, labels, metadata)
    minted = scope_id is None and session_id == source.session_id
    named = source.scope_id if scope_id is None else scope_id
    limits.check_scope(session_id, named, source.kind)
    seen: list[str] = []

    def attempt() -> Steps[ScopeKey]:
        info, state = yield from _origin(source, snapshot_id, patch, tools.state_bytes_max)
        seen[:] = [info.revision]
        for left in reversed(range(_NAME_TRIES_MAX if minted else 1)):
            stamp = tools.draw()
            name = ids.fork_name(named, stamp.bits) if minted else named
            scope = limits.check_scope(session_id, name, source.kind)
            commit = _first(scope, info, state, facts, stamp)
            try:
                yield lambda backend, commit=commit: backend.commit(commit)  # type: ignore[misc]
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


def _encoded(
    tools: Tools, labels: Mapping[str, str] | None, metadata: Mapping[str, JSON] | None
) -> tuple[bytes | None, bytes | None]:
    """Return labels and metadata encoded, where they are given."""
    return (
        None if labels is None else prepare.encode_labels(labels),
        None if metadata is None else prepare.encode_metadata(metadata, tools.state_bytes_max),
    )


def _first(
    scope: ScopeKey,
    source: SnapshotInfo,
    state: _State,
    facts: tuple[bytes | None, bytes | None],
    stamp: Stamp,
) -> Commit:
    """Return the first commit of a fork; its labels and metadata are copied unless given."""
    labels, metadata = facts
    return Commit(
        scope=scope,
        body=state[0],
        append_offsets=state[1],
        status=source.status,
        labels=codec.encode(source.labels) if labels is None else labels,
        metadata=codec.encode(source.metadata) if metadata is None else metadata,
        stamp=stamp,
        parent=None,
        forked_from=SnapshotRef(source.scope, source.id),
        new_scope=True,
        source=source.revision,
    )


def _origin(
    source: ScopeKey,
    snapshot_id: str,
    patch: Mapping[str, JSON] | Callable[[JSON], Any] | None,
    bytes_max: int,
) -> Steps[tuple[SnapshotInfo, _State]]:
    """Read where a fork begins, and patch the state; without a patch it need not be read."""
    if patch is None:
        info: SnapshotInfo | None = yield lambda backend: backend.read_info(source, snapshot_id)
        found: list[Found] = [] if info is None else [(info, b"")]
    else:
        found = yield lambda backend: backend.read_snapshots(source, [snapshot_id])
    if not found:
        raise NotFound(f"there is no such snapshot. id=`{snapshot_id}`")
    ((origin, body),) = found
    if patch is None:
        return origin, (Copy(), None)
    return origin, (yield from _patched(body, patch, bytes_max))


def _patched(
    body: bytes, patch: Mapping[str, JSON] | Callable[[JSON], Any], bytes_max: int
) -> Steps[_State]:
    """Return the encoded state that a patch makes: of a mapping's keys, or of a function."""
    state = codec.decode(body)
    if callable(patch):
        state = yield Ask(patch, state)
    elif isinstance(state, dict):
        state |= patch
    else:
        raise InvalidInput(f"a mapping patches only objects. type=`{type(state).__name__}`")
    return prepare.encode_state(state, bytes_max)
