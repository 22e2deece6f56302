"""The verb `redact`: content is replaced in all that a scope and its forks hold.

Each snapshot and each note is compared and set, the newest snapshots first. All of it may be
repeated, so a redaction that was interrupted is completed by the next one. What is saved meanwhile
is gone over at the end, until nothing is found.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import starmap
from typing import Any, TypeVar

from limpet.api.opened import ScopeContext
from limpet.api.verbs import Steps, Work, contend, each, each_scope, matching, note, notes_of
from limpet.core import codec, ids, limits, prepare
from limpet.core.codec import escaped
from limpet.core.ids import nonce_of
from limpet.errors import Corrupt, InvalidInput, Unavailable
from limpet.model import JSON, Redacted, ScopeKey, SnapshotInfo
from limpet.protocol import Backend, Commit, NoteWrite, Query, Target

T = TypeVar("T")

_WHOLE = ("", "metadata", "status")
_BEGINNINGS = ("/", "metadata/", "labels/", "notes/")
_PASSES_MAX = 100  # over scopes that other writers keep saving the content to
_PAGE_BYTES_MAX = 32 * limits.MIB  # of states that are redacted at a time, unless one is larger


class _Rule:
    """What to replace, and by what.

    In a state a path is a JSON Pointer: empty, or beginning with `/`. Others begin with what they
    lead into: `metadata/error`, `labels/user`, `status`, `notes/title/author`.
    """

    def __init__(self, what: str | Callable[[str, JSON], bool], replacement: JSON) -> None:
        if not callable(what) and not isinstance(what, str):
            raise InvalidInput(f"give a path or a function. type=`{type(what).__name__}`")
        if isinstance(what, str) and what not in _WHOLE and not what.startswith(_BEGINNINGS):
            raise InvalidInput(
                "a path into the state begins with /, others with metadata/, labels/ or notes/, or "
                f"are metadata or status. path=`{what}`"
            )
        self._what = what
        self._replacement = replacement

    def value(self, path: str, value: Any) -> Any:
        """Return a value with what matches replaced, in it or as a whole; it may be changed."""
        if self._matches(path, value):
            return self._replacement
        if isinstance(value, dict) and self._may_be_in(path):
            for key, each in value.items():
                value[key] = self.value(f"{path}/{escaped(key)}", each)
        elif isinstance(value, list) and self._may_be_in(path):
            for at, each in enumerate(value):
                value[at] = self.value(f"{path}/{at}", each)
        return value

    def metadata(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return metadata, which must be an object."""
        found = self.value("metadata", value)
        return found if isinstance(found, dict) else {}

    def text(self, path: str, value: str) -> str:
        """Return a value that must be a text."""
        found = self.value(path, value)
        return found if isinstance(found, str) else ""

    def labels(self, labels: dict[str, str]) -> dict[str, str]:
        return {name: self.text(f"labels/{escaped(name)}", labels[name]) for name in labels}

    def note(self, name: str, value: JSON) -> JSON:
        return self.value(f"notes/{escaped(name)}", value)

    def _may_be_in(self, path: str) -> bool:
        return not isinstance(self._what, str) or self._what.startswith(f"{path}/")

    def _matches(self, path: str, value: Any) -> bool:
        if isinstance(self._what, str):
            return self._what == path
        answer = self._what(path, value)
        if isinstance(answer, bool):
            return answer
        # A coroutine, for example, would count as true, and all would be replaced.
        raise InvalidInput(
            f"the function must return True or False. type=`{type(answer).__name__}` path=`{path}`"
        )


def redact(
    context: ScopeContext, what: str | Callable[[str, JSON], bool], *, replacement: JSON
) -> Steps[Redacted]:
    """Replace what a path leads to, or what a function says yes to; see `Scope.redact`."""
    scope, tools = context.key, context.tools
    encoded = codec.encode(replacement, what="replacement", default=tools.default)
    rule = _Rule(what, codec.decode(encoded))

    def steps() -> Steps[Redacted]:
        snapshots = notes = 0
        done: set[str] = set()  # by their nonces: writes that were gone over, and own ones
        for _ in range(_PASSES_MAX):
            before = snapshots + notes
            group = yield lambda backend: _fork_group(backend, scope)
            for key in group:
                fence = context.fence if key == scope else None
                one = _Scope(context._replace(key=key, fence=fence), rule, done)
                snapshots += yield from one.go_over_snapshots()
                notes += yield from one.go_over_notes()
                yield one.sweep
            if snapshots + notes == before:
                yield partial(_check_intact, scopes=group)
                return Redacted(snapshots, notes)
        raise Unavailable(
            "other writers keep saving the content: stop them, and repeat it. "
            f"session=`{scope.session_id}` scope=`{scope.scope_id}`"
        )

    return steps()


class _Scope:
    """One scope that is redacted."""

    def __init__(self, context: ScopeContext, rule: _Rule, done: set[str]) -> None:
        self._key, self._tools, _, self._fence = context
        self._rule = rule
        self._done = done
        self._count = 0
        self._changed: Work[bool] = lambda backend: False  # since the last write was prepared

    def go_over_snapshots(self) -> Steps[int]:
        """Redact the draft and the snapshots that are not done; return how many."""
        before, after = self._count, None
        yield from self._contend(self._redact_draft)
        while True:

            def redact_page(backend: Backend, after: int | None = after) -> int | None:
                query = Query(self._key, after=after)
                page = backend.list_snapshots(query, limit=limits.PAGE_ITEMS_MAX)
                due = [one for one in page if nonce_of(one.revision) not in self._done]
                some = _first(due)
                self._redact(backend, [one.id for one in some])
                last = some if len(some) < len(due) else page
                return ids.seq_of(last[-1].revision) if last else None

            after = yield from self._contend(redact_page)
            if after is None:
                return self._count - before

    def go_over_notes(self) -> Steps[int]:
        """Redact the notes of the scope, and of its snapshots; return how many."""
        before = self._count
        yield from self._contend(lambda backend: self._redact_notes(backend, [None]))
        after: str | None = ""
        while after is not None:

            def redact_page(backend: Backend, after: str = after) -> str | None:
                page = backend.list_noted(self._key, after=after, limit=limits.PAGE_ITEMS_MAX)
                self._redact_notes(backend, page)
                return page[-1] if page else None

            after = yield from self._contend(redact_page)
        return self._count - before

    def sweep(self, backend: Backend) -> None:
        """Remove what replaced drafts have left: others may be stored as changes of them."""
        backend.delete_snapshots(self._key, [], fence=self._fence)

    def _contend(self, work: Work[T]) -> Steps[T]:
        """Do something again if another writer came between a read and a write of it."""

        def attempt() -> Steps[T]:
            answer: T = yield work
            return answer

        return contend(self._tools, attempt, lambda backend: self._changed(backend))

    def _redact_draft(self, backend: Backend) -> None:
        head = backend.read_info(self._key, None)
        if head is not None and not head.kept and nonce_of(head.revision) not in self._done:
            self._redact(backend, [head.id])

    def _redact(self, backend: Backend, wanted: Sequence[str]) -> None:
        if not wanted:
            return
        found = backend.read_snapshots(self._key, wanted)
        commits = [one for one in starmap(self._commit, found) if one is not None]
        targets = [Target(self._key, one.id) for one in commits]
        revisions = [one.replaces for one in commits]
        self._changed = lambda backend: backend.read_revisions(targets) != revisions
        self._done.update(one.stamp.nonce for one in commits)
        if commits:
            self._count += backend.replace_snapshots(commits)
        self._done.update(nonce_of(info.revision) for info, _ in found)

    def _commit(self, found: SnapshotInfo, body: bytes) -> Commit | None:
        """Return the commit that redacts a snapshot, or None if there is nothing to redact."""
        bytes_max = max(self._tools.state_bytes_max, len(body))
        before = (body, found.status, codec.encode(found.labels), codec.encode(found.metadata))
        rule = self._rule
        state, offsets = prepare.encode_state(rule.value("", codec.decode(body)), bytes_max)
        status = limits.check_status(rule.text("status", found.status))
        labels = prepare.encode_labels(rule.labels(found.labels))
        metadata = prepare.encode_metadata(rule.metadata(found.metadata), bytes_max)
        if (state, status, labels, metadata) == before:
            return None
        return Commit(
            scope=self._key,
            body=state,
            append_offsets=offsets,
            status=status,
            labels=labels,
            metadata=metadata,
            stamp=self._tools.draw(),
            id=found.id,
            replaces=found.revision,
            fence=self._fence,
        )

    def _redact_notes(self, backend: Backend, owners: Sequence[str | None]) -> None:
        for found in each(backend, notes_of(self._key, owners)):
            if nonce_of(found.revision) in self._done:
                continue
            before = codec.encode(found.value)
            write = prepare.note_write(
                self._key,
                found.name,
                self._rule.note(found.name, found.value),
                on=found.snapshot_id,
                expect=found.revision,
                fence=self._fence,
                stamp=self._tools.draw(),
                state_bytes_max=max(self._tools.state_bytes_max, len(before)),
            )
            if write.value != before:
                self._changed = partial(self._is_other_note, write)
                self._done.add(nonce_of(backend.write_note(write).revision))
                self._count += 1

    def _is_other_note(self, write: NoteWrite, backend: Backend) -> bool:
        now = note(self._key, write.name, write.on)(backend)
        return now is None or now.revision != write.expect


def _first(found: Iterable[SnapshotInfo]) -> list[SnapshotInfo]:
    """Return the first of some snapshots, as many as are redacted at a time."""
    some: list[SnapshotInfo] = []
    for one in found:
        if some and sum(other.size for other in some) + one.size > _PAGE_BYTES_MAX:
            break
        some.append(one)
    return some


def _fork_group(backend: Backend, scope: ScopeKey) -> list[ScopeKey]:
    """Return a scope and all of its session that are forks of each other.

    A fork whose first snapshot was deleted is known only by its name, if that was generated.
    """
    near: defaultdict[ScopeKey, set[ScopeKey]] = defaultdict(set)
    listed = [scope]
    for found in each_scope(backend, session_id=scope.session_id):
        key = found.key
        listed.append(key)
        infos = [one for one in each(backend, matching(Query(key))) if one.forked_from is not None]
        if found.head is not None:
            infos.append(found.head)
        origins = {one.forked_from.scope for one in infos if one.forked_from is not None}
        for other in (*origins, key._replace(scope_id=ids.fork_base(key.scope_id))):
            near[key].add(other)
            near[other].add(key)
    group, waiting = {scope}, [scope]
    while waiting:
        fresh = near[waiting.pop()] - group
        group |= fresh
        waiting += fresh
    return sorted(group.intersection(listed))


def _check_intact(backend: Backend, scopes: Iterable[ScopeKey]) -> None:
    """Raise Corrupt if something is so damaged that listings omit it."""
    for scope in scopes:
        if backend.list_damage(scope):
            raise Corrupt(
                "something is damaged, and may hold the content: run `limpet check`, and delete "
                f"it. session=`{scope.session_id}` scope=`{scope.scope_id}`",
                scope=scope,
            )
