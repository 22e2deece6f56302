"""The verbs, written once for the sync and the async API.

A verb with one backend call is *work*: a function of the backend, which `driver.py` calls in the
caller's thread or in a pool. A verb of several calls is a generator of *steps*: work, a call of the
caller's function, a block of the caller, or a pause; the driver sends the result of each step back
in. A verb with many results is a *walk*: a generator of work, each of which returns one page.
Nothing is held between two steps or two pages.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias, TypeVar

from limpet.api.opened import JSON_MODEL, JsonModel, ScopeContext, Tools
from limpet.backends.support.backoff import Backoff
from limpet.backends.support.located import explained
from limpet.core import codec, ids, limits, prepare
from limpet.errors import Conflict, Corrupt, InvalidInput, NotFound, Unavailable
from limpet.model import (
    ANY,
    JSON,
    Expect,
    Note,
    ScopeInfo,
    ScopeKey,
    Snapshot,
    SnapshotInfo,
    SnapshotLike,
    SnapshotRef,
)
from limpet.protocol import Backend, Commit, Found, Query, Target, Topic

T = TypeVar("T")
U = TypeVar("U")
_FACTS = attrgetter(*SnapshotInfo.__slots__)
_snapshot: Callable[..., Snapshot] = Snapshot
Work: TypeAlias = Callable[[Backend], T]


class Ask(NamedTuple):
    """A call of the caller's function, whose result the async API may await."""

    function: Callable[[Any], Any]
    argument: Any


class Encode(NamedTuple):
    """Encoding without the backend; the async API does not let the loop wait for a large value."""

    value: Any
    encode: Callable[[], Any]


class Pause(NamedTuple):
    """Wait this long before the next step."""

    seconds: float


class Block(NamedTuple):
    """What a `with` block of the caller gets; the verb goes on when the block is left.

    An error that leaves the block is raised here.
    """

    value: Any


Step: TypeAlias = Work[Any] | Ask | Encode | Pause | Block
Steps: TypeAlias = Generator[Step, Any, T]
Walk: TypeAlias = Generator[Work[Sequence[T]], Sequence[T], None]


def contend(tools: Tools, attempt: Callable[[], Steps[T]], changed: Work[bool]) -> Steps[T]:
    """Repeat an attempt while other writers get in first, with jitter, for 30 seconds.

    A Conflict counts as contention only if `changed` returns True: what was compared has changed
    since. Otherwise another condition failed (a lease), and a retry would not help.
    """
    wait_s = limits.CONTENTION_WAIT_S_MAX
    backoff: Backoff | None = None
    while True:
        try:
            return (yield from attempt())
        except Conflict:
            if not (yield changed):
                raise
            if backoff is None:
                backoff = Backoff(tools.clock, first_s=0.001, longest_s=0.1, wait_s=wait_s)
            pause_s = backoff.pause_s()
            if pause_s is None:
                raise Unavailable(
                    f"other writers kept getting in first: retry later. waited_s=`{wait_s:g}`"
                ) from None
        yield Pause(pause_s)


def missing(scope: ScopeKey, snapshot_id: str) -> NotFound:
    return NotFound(
        f"there is no such snapshot: history() lists what there is. id=`{snapshot_id}`",
        scope=scope,
        id=snapshot_id,
    )


def snapshot_of(found: Found, model: JsonModel = JSON_MODEL) -> Snapshot:
    info, body = found
    try:
        state = codec.decode(body) if model is JSON_MODEL else model.load(info, body)
        return _snapshot(*_FACTS(info), state)
    except Corrupt as error:
        raise explained(error, Target(info.scope, info.id)) from error.__cause__


def save(commit: Commit) -> Work[SnapshotInfo]:
    return lambda backend: backend.commit(commit)


def load(
    scope: ScopeKey, snapshot: SnapshotLike | None, model: JsonModel = JSON_MODEL
) -> Work[Snapshot | None]:
    """Read one snapshot with its state; None asks for the head."""
    snapshot_id = _snapshot_id(scope, snapshot)

    def work(backend: Backend) -> Snapshot | None:
        found = backend.read_snapshots(scope, [snapshot_id])
        return snapshot_of(found[0], model) if found else None

    return work


def load_many(
    scope: ScopeKey, snapshot_ids: Iterable[SnapshotLike], model: JsonModel
) -> Walk[Snapshot]:
    if isinstance(snapshot_ids, str | SnapshotRef) or not isinstance(snapshot_ids, Iterable):
        raise InvalidInput(f"ids must be an iterable of ids. type=`{type(snapshot_ids).__name__}`")
    remaining = iter(snapshot_ids)

    def read(page: list[str]) -> Work[list[Snapshot]]:
        return lambda backend: [
            snapshot_of(each, model) for each in backend.read_snapshots(scope, page)
        ]

    def walk() -> Walk[Snapshot]:
        while page := list(islice(remaining, limits.PAGE_STATES_MAX)):
            yield read([prepare.snapshot_id("id", each, scope) for each in page])

    return walk()


def info(scope: ScopeKey, snapshot: SnapshotLike | None) -> Work[SnapshotInfo | None]:
    """Read one snapshot without its state; None asks for the head."""
    snapshot_id = _snapshot_id(scope, snapshot)
    return lambda backend: backend.read_info(scope, snapshot_id)


def pages(fetch: Callable[[Backend, T | None, int], Sequence[T]], *, limit: int | None) -> Walk[T]:
    """Walk a listing: each page begins after the last item of the previous one."""

    def work(last: T | None, count: int) -> Work[Sequence[T]]:
        return lambda backend: fetch(backend, last, count)

    remaining = limit
    last: T | None = None
    while remaining is None or remaining > 0:
        wanted = limits.PAGE_ITEMS_MAX if remaining is None else remaining
        wanted = min(wanted, limits.PAGE_ITEMS_MAX)
        page = yield work(last, wanted)
        if len(page) < wanted:
            return
        last = page[-1]
        if remaining is not None:
            remaining -= len(page)


def converted(walk: Walk[T], convert: Callable[[Backend, Sequence[T]], Sequence[U]]) -> Walk[U]:
    """Walk a listing of which each page is converted, inside the work that reads it."""
    page: Sequence[T] | None = None
    while True:
        try:
            read = next(walk) if page is None else walk.send(page)
        except StopIteration:
            return

        def work(backend: Backend, read: Work[Sequence[T]] = read) -> Sequence[U]:
            nonlocal page
            page = read(backend)
            return convert(backend, page)

        yield work


def each(backend: Backend, walk: Walk[T]) -> Iterator[T]:
    """Yield all items of a listing, inside one work."""
    return streamed(lambda work: work(backend), walk)


def streamed(run: Callable[[Work[Sequence[T]]], Sequence[T]], walk: Walk[T]) -> Iterator[T]:
    """Yield all items of a listing, with a function that runs the work of each page."""
    page: Sequence[T] | None = None
    while True:
        try:
            work = next(walk) if page is None else walk.send(page)
        except StopIteration:
            return
        page = run(work)
        yield from page


def _text_pages(
    fetch: Callable[[Backend, str, int], list[str]], after: str | None, limit: int | None
) -> Walk[str]:
    start = "" if after is None else check_prefix(after, "after")
    return pages(
        lambda backend, last, count: fetch(backend, last or start, count),
        limit=limits.check_count("limit", limit),
    )


def matching(query: Query) -> Walk[SnapshotInfo]:
    """Walk the kept snapshots that a query finds, the last saved first."""

    def fetch(backend: Backend, last: SnapshotInfo | None, count: int) -> list[SnapshotInfo]:
        after = query.after if last is None else ids.seq_of(last.revision)
        return backend.list_snapshots(query._replace(after=after), limit=count)

    return pages(fetch, limit=None)


def history(
    scope: ScopeKey | None,
    *,
    limit: int | None,
    after: SnapshotLike | None,
    labels: Mapping[str, str] | None,
    status: str | None,
    prefix: str = "",
) -> Walk[SnapshotInfo]:
    limit = limits.check_count("limit", limit)
    cursor = prepare.check_cursor(after, scope)
    wanted = tuple(limits.check_labels(labels).items())
    status = None if status is None else limits.check_status(status)
    prefix = check_prefix(prefix)

    def fetch(backend: Backend, last: SnapshotInfo | None, count: int) -> list[SnapshotInfo]:
        previous = last or cursor
        if isinstance(previous, SnapshotRef):
            after_id = previous.id
            previous = backend.read_info(*previous)
            if previous is None:
                raise NotFound(
                    f"there is no such snapshot to continue after. id=`{after_id}`",
                    scope=scope,
                    id=after_id,
                )
        seq = None if previous is None else ids.seq_of(previous.revision)
        query = Query(scope, prefix=prefix, labels=wanted, status=status, after=seq)
        return backend.list_snapshots(query, limit=count)

    return pages(fetch, limit=limit)


def list_ids(scope: ScopeKey, *, after: SnapshotLike | None, limit: int | None) -> Walk[str]:
    return _text_pages(
        lambda backend, last, count: backend.list_ids(scope, after=last, limit=count),
        _text_cursor(scope, after),
        limit,
    )


def noted_ids(scope: ScopeKey, *, after: SnapshotLike | None, limit: int | None) -> Walk[str]:
    return _text_pages(
        lambda backend, last, count: backend.list_noted(scope, after=last, limit=count),
        _text_cursor(scope, after),
        limit,
    )


def _text_cursor(scope: ScopeKey, after: SnapshotLike | None) -> str | None:
    """Return a cursor as text, which need not be an id: the empty text comes before all ids."""
    if after is None or isinstance(after, str):
        return after
    return prepare.snapshot_id("after", after, scope)


def update(
    context: ScopeContext, snapshot: SnapshotLike, function: Callable[[Snapshot[Any]], Any]
) -> Steps[SnapshotInfo | None]:
    """Read, call the caller's function, and compare-and-set, until no writer came in between."""
    if not callable(function):
        raise InvalidInput(f"update needs a function. type=`{type(function).__name__}`")
    scope, tools, model, _ = context
    snapshot_id = prepare.snapshot_id("id", snapshot, scope)
    read = load(scope, snapshot_id, model)
    seen: list[str] = []

    def attempt() -> Steps[SnapshotInfo | None]:
        before = yield read
        if before is None:
            raise missing(scope, snapshot_id)
        seen[:] = [before.revision]
        after = yield Ask(function, before)
        if after is None:
            return None
        encode = partial(prepare.replacement, before, after, dump=model.dump, **context.of_write())
        commit = yield Encode(getattr(after, "state", None), encode)
        stored: SnapshotInfo = yield save(commit)
        return stored

    def changed(backend: Backend) -> bool:
        now = backend.read_info(scope, snapshot_id)
        return now is None or [now.revision] != seen

    return contend(tools, attempt, changed)


def find(snapshot: SnapshotLike, prefix: str) -> Work[SnapshotInfo | None]:
    prefix = check_prefix(prefix)
    query = Query(prefix=prefix, id=prepare.snapshot_id("id", snapshot, None))
    if not isinstance(snapshot, str):
        return _found_again(prepare.check_ref("id", (snapshot.scope, snapshot.id)), prefix)

    def work(backend: Backend) -> SnapshotInfo | None:
        return next(iter(backend.list_snapshots(query, limit=1)), None)

    return work


def _found_again(ref: SnapshotRef, prefix: str) -> Work[SnapshotInfo | None]:
    def work(backend: Backend) -> SnapshotInfo | None:
        found = backend.read_info(*ref) if ref.scope.session_id.startswith(prefix) else None
        return found if found is not None and found.kept else None

    return work


def topic(session_id: str | None, snapshot: SnapshotLike | None, prefix: str) -> Topic:
    """Return the topic of `Store.watch`: a session, a snapshot, or everything."""
    if session_id is not None and snapshot is not None:
        raise InvalidInput("give session_id or snapshot_id, not both")
    prefix = check_prefix(prefix)
    if isinstance(snapshot, SnapshotInfo | SnapshotRef):
        ref = prepare.check_ref("snapshot_id", (snapshot.scope, snapshot.id))
        if not ref.scope.session_id.startswith(prefix):
            raise InvalidInput(f"the snapshot's session does not begin with prefix. id=`{ref.id}`")
        return Topic(Target(*ref))
    return Topic(
        session_id=check_optional_id("session_id", session_id),
        id=check_optional_id("snapshot_id", snapshot),
        prefix=prefix,
    )


def scope_topic(scope: ScopeKey, snapshot: SnapshotLike | None) -> Topic:
    return Topic(Target(scope, _snapshot_id(scope, snapshot)))


def sessions(*, limit: int | None, after: str | None, prefix: str) -> Walk[str]:
    prefix = check_prefix(prefix)
    return _text_pages(
        lambda backend, last, count: backend.list_sessions(prefix=prefix, after=last, limit=count),
        after,
        limit,
    )


def scopes(session_id: str | None, *, kind: str | None, prefix: str) -> Walk[ScopeInfo]:
    session_id = check_optional_id("session_id", session_id)
    if kind is not None:
        kind = limits.check_scope("s", "s", kind).kind
    prefix = check_prefix(prefix)
    return pages(
        lambda backend, last, count: backend.list_scopes(
            session_id=session_id,
            kind=kind,
            prefix=prefix,
            after=None if last is None else last.key,
            limit=count,
        ),
        limit=None,
    )


def each_scope(
    backend: Backend, *, session_id: str | None, prefix: str = ""
) -> Iterator[ScopeInfo]:
    """Yield all scopes of a session, or of sessions with a prefix, inside one work."""
    return each(backend, scopes(session_id, kind=None, prefix=prefix))


def note(scope: ScopeKey, name: str, on: SnapshotLike | None) -> Work[Note | None]:
    name, owner = prepare.note_address(scope, name, on)

    def work(backend: Backend) -> Note | None:
        found = backend.list_notes(scope, on=[owner], name=name, after="", limit=1)
        return found[0] if found else None

    return work


def notes(scope: ScopeKey, on: SnapshotLike | Iterable[SnapshotLike] | None) -> Walk[Note]:
    return notes_of(scope, prepare.note_owners(scope, on))


def notes_of(scope: ScopeKey, owners: Sequence[str | None]) -> Walk[Note]:
    """Walk the notes of snapshot ids in their order, by name; None means those of the scope."""

    def fetch(backend: Backend, last: Note | None, count: int) -> list[Note]:
        rest = owners if last is None else owners[owners.index(last.snapshot_id) :]
        after = "" if last is None else last.name
        return backend.list_notes(scope, on=rest, name=None, after=after, limit=count)

    return pages(fetch, limit=None)


def _write_note(
    context: ScopeContext, name: str, value: JSON, on: str | None, expect: Expect
) -> Steps[Note]:
    given = {"on": on, "expect": expect, **context.of_write()}
    encode = partial(prepare.note_write, context.key, name, value, **given)
    draft = yield Encode(value, encode)
    written: Note = yield lambda backend: backend.write_note(draft)
    return written


def set_note(
    context: ScopeContext, name: str, value: Any, *, on: SnapshotLike | None, expect: Expect
) -> Steps[Note | None]:
    """Write a note; with a function: read, call it for the next value, and compare-and-set."""
    scope = context.key
    name, owner = prepare.note_address(scope, name, on)
    expect = prepare.check_expect(expect)
    if not callable(value):
        return _write_note(context, name, value, owner, expect)
    read = note(scope, name, owner)
    seen: list[str | None] = []

    def attempt() -> Steps[Note | None]:
        before = yield read
        revision = None if before is None else before.revision
        seen[:] = [revision]
        if expect is not ANY and expect != revision:
            raise Conflict(
                f"the note has another revision. name=`{name}` found=`{revision}`",
                scope=scope,
                id=owner,
                expected=expect,
                found=revision,
            )
        after = yield Ask(value, None if before is None else before.value)
        if after is None:
            return None
        return (yield from _write_note(context, name, after, owner, revision))

    def changed(backend: Backend) -> bool:
        # If the caller gave `expect`, a Conflict is the caller's to resolve.
        now = read(backend)
        return expect is ANY and [None if now is None else now.revision] != seen

    return contend(context.tools, attempt, changed)


def _snapshot_id(scope: ScopeKey, snapshot: SnapshotLike | None) -> str | None:
    return None if snapshot is None else prepare.snapshot_id("id", snapshot, scope)


def check_optional_id(name: str, value: str | None) -> str | None:
    return None if value is None else limits.check_id(name, value)


def check_prefix(value: object, name: str = "prefix") -> str:
    """Check a prefix or cursor, which may be empty and need not be an id."""
    return limits.check_text(name, value, chars_max=limits.ID_CHARS_MAX)
