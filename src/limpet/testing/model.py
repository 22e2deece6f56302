"""The model: what a store means, in dictionaries, as the documentation of `Store` and `Scope` says.

Written independently of the engine. It shares none of its decisions and none of the layers above,
so that both would have to be wrong in the same way. Only two things are taken over from the engine
under test, since nothing else says them: the ids that it mints, and the places in history that its
revisions name. The model sees that both grow.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson

from limpet import (
    ANY,
    HEAD,
    JSON,
    AlreadyExists,
    Conflict,
    Diff,
    Finding,
    InvalidInput,
    Note,
    NotFound,
    Pruned,
    Redacted,
    ScopeInfo,
    ScopeKey,
    Snapshot,
    SnapshotInfo,
    SnapshotRef,
    Stats,
)
from limpet.core.diff import diff as compare

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SUFFIX: Final = re.compile(
    r"(?<=.)~[a-z0-9]{8}\Z", re.DOTALL
)  # of a fork whose name was generated


class Contents:
    """One scope: snapshots by id, notes by owner and name, and the id of the head."""

    def __init__(self) -> None:
        self.snapshots: dict[str, Snapshot] = {}
        self.notes: dict[tuple[str | None, str], Note] = {}
        self.head: str | None = None
        self.last_place = -1
        self.last_minted = ""

    def holds_anything(self) -> bool:
        return bool(self.snapshots or self.notes)

    def kept(self) -> list[Snapshot]:
        """Return the snapshots in history, newest first."""
        kept = (each for each in self.snapshots.values() if each.kept)
        return sorted(kept, key=place, reverse=True)

    def remove(self, id: str) -> None:
        """Remove a snapshot and the notes on its id; the newest kept one becomes the head."""
        self.notes = {at: note for at, note in self.notes.items() if note.snapshot_id != id}
        if self.snapshots.pop(id, None) is not None and id == self.head:
            self.head = next((each.id for each in self.kept()), None)


class Model:
    """A store that is called as `Store` is. Each call happens at `now_us`."""

    def __init__(self) -> None:
        self.contents: dict[ScopeKey, Contents] = {}
        self.now_us = 0
        self.stored: list[SnapshotInfo] = []
        """What the engine under test stored in this step: the place and id of what is new."""
        self._writes = 0

    def now(self) -> datetime:
        return _EPOCH + timedelta(microseconds=self.now_us)

    def revision(self, place: int) -> str:
        self._writes += 1
        return f"{place:x}.{self._writes:x}.model"

    def scope(self, session_id: str, scope_id: str = "main", kind: str = "agent") -> "ModelScope":
        return ModelScope(self, ScopeKey(session_id, scope_id, kind))

    def filled(self, prefix: str = "") -> list[tuple[ScopeKey, Contents]]:
        """Return the scopes that hold something, in the order of listings."""
        found = (
            (key, held)
            for key, held in self.contents.items()
            if held.holds_anything() and key.session_id.startswith(prefix)
        )
        return sorted(found, key=lambda each: listing_order(each[0]))

    def sessions(
        self, *, limit: int | None = None, after: str | None = None, prefix: str = ""
    ) -> list[str]:
        names = sorted({key.session_id for key, _ in self.filled(prefix)})
        return [each for each in names if after is None or each > after][:limit]

    def scopes(
        self, session_id: str | None = None, *, kind: str | None = None, prefix: str = ""
    ) -> list[ScopeInfo]:
        return [
            ScopeInfo(key, self.scope(*key).info())
            for key, _ in self.filled(prefix)
            if session_id in (None, key.session_id) and kind in (None, key.kind)
        ]

    def history(
        self, *, limit: int | None = None, after: SnapshotInfo | None = None, **wanted: Any
    ) -> list[SnapshotInfo]:
        prefix = wanted.pop("prefix", "")
        found = [each for _, held in self.filled(prefix) for each in held.kept()]
        found.sort(key=place, reverse=True)
        return _page(found, limit, None if after is None else place(after), **wanted)

    def find(self, id: str, *, prefix: str = "") -> SnapshotInfo | None:
        return next((each for each in self.history(prefix=prefix) if each.id == id), None)

    def stats(self, session_id: str | None = None) -> Stats:
        found = [(key, held) for key, held in self.filled() if session_id in (None, key.session_id)]
        sizes = [each.size for _, held in found for each in held.snapshots.values()]
        sessions = {key.session_id for key, _ in found}
        return Stats(len(sessions), len(found), len(sizes), sum(sizes), sum(sizes), ())

    def delete_session(self, session_id: str) -> int:
        keys = [key for key in self.contents if key.session_id == session_id]
        return sum(self.scope(*key).delete() for key in keys)

    def compact(self) -> int:
        return 0

    def check(self) -> list[Finding]:
        return []

    repair = check


class ModelScope:
    """A scope that is called as `Scope` is."""

    def __init__(self, model: Model, key: ScopeKey) -> None:
        self._model = model
        self.key = key

    @property
    def _contents(self) -> Contents:
        return self._model.contents.setdefault(self.key, Contents())

    def _found(self, id: str) -> Snapshot:
        found = self._contents.snapshots.get(id)
        if found is None:
            raise NotFound("no such snapshot")
        return found

    def _expected(self, expect: Any) -> None:
        head = self.info()
        if expect is not ANY and expect != (None if head is None else head.revision):
            raise Conflict("the head has moved")

    # Writing

    def save(
        self,
        state: JSON,
        *,
        id: str | None = None,
        parent: Any = HEAD,
        keep: bool = True,
        head: bool = True,
        overwrite: bool = False,
        status: str = "",
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, JSON] | None = None,
        created_at: datetime | None = None,
        forked_from: SnapshotRef | None = None,
        expect: Any = ANY,
    ) -> SnapshotInfo:
        if (not keep and not head) or (id is not None and parent == id):
            raise InvalidInput("neither kept nor the head, or its own parent")
        facts = _facts(state, status, labels, metadata)
        existing = None if id is None else self._contents.snapshots.get(id)
        if existing is not None:
            same = text(facts) == text(_facts_of(existing)) and parent in (HEAD, existing.parent_id)
            if same and (existing.kept or not keep):
                return info_of(existing)
            if not same and not overwrite:
                raise AlreadyExists("another body")
        self._expected(expect)
        if existing is not None:
            return self._rewrite(
                existing,
                **facts,
                kept=existing.kept or keep,
                parent_id=existing.parent_id if parent is HEAD else parent,
                forked_from=forked_from or existing.forked_from,
            )
        parent_id = self._default_parent(id) if parent is HEAD else parent
        at = self._model.now() if created_at is None else created_at.astimezone(UTC)
        return self._insert(id, parent_id, forked_from, facts, at, keep=keep, head=head)

    def _default_parent(self, own_id: str | None) -> str | None:
        """The head if kept; else the parent of the draft; else the newest kept; never itself."""
        held = self._contents
        head = held.snapshots[held.head] if held.head else None
        choices = [] if head is None else [head.id if head.kept else head.parent_id]
        named = next((each for each in choices if each not in (None, own_id)), None)
        if named is not None:
            return named
        newest = next((each.id for each in held.kept()), None)
        return None if newest == own_id else newest

    def _insert(
        self,
        id: str | None,
        parent_id: str | None,
        forked_from: SnapshotRef | None,
        facts: dict[str, Any],
        created_at: datetime,
        *,
        keep: bool,
        head: bool,
    ) -> SnapshotInfo:
        held, stored = self._contents, self._model.stored[-1:]
        at = place(stored[0]) if stored else held.last_place + 1
        assert at > held.last_place, "a place in history that is not the last"
        held.last_place = at
        if id is None:
            id = stored[0].id if stored else "minted"
            assert id > held.last_minted, "a minted id that does not grow"
            held.last_minted = id
        covered = held.snapshots.get(held.head or "")
        if head:
            if covered is not None and not covered.kept:
                del held.snapshots[covered.id]  # a draft goes when the head moves; its notes stay
            held.head = id
        made = Snapshot(
            scope=self.key,
            id=id,
            parent_id=parent_id,
            forked_from=forked_from,
            created_at=created_at,
            updated_at=self._model.now(),
            revision=self._model.revision(at),
            kept=keep,
            size=size_of(facts["state"]),
            **facts,
        )
        held.snapshots[id] = made
        return info_of(made)

    def _rewrite(self, existing: Snapshot, **changes: Any) -> SnapshotInfo:
        made: Snapshot = replace(
            existing,
            **changes,
            updated_at=self._model.now(),
            revision=self._model.revision(place(existing)),
        )
        made = replace(made, size=size_of(made.state))
        self._contents.snapshots[made.id] = made
        return info_of(made)

    def append(
        self,
        key: str,
        items: list[JSON],
        *,
        keep: bool = True,
        status: str | None = None,
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, JSON] | None = None,
        expect: Any = ANY,
    ) -> SnapshotInfo:
        self._expected(expect)
        head = self.load()
        state = {} if head is None else head.state
        if not isinstance(state, dict) or not isinstance(state.get(key, []), list):
            raise InvalidInput("no list in an object")
        state[key] = [*state.get(key, []), *items]
        if status is None:
            status = "" if head is None else head.status
        return self.save(state, keep=keep, status=status, labels=labels, metadata=metadata)

    def update(self, id: str, fn: Callable[[Snapshot], Snapshot | None]) -> SnapshotInfo | None:
        changed = fn(copied(self._found(id)))
        if changed is None:
            return None
        return self._rewrite(self._contents.snapshots[id], **_facts_of(changed))

    def restore(self, id: str, **options: Any) -> SnapshotInfo:
        origin = self._found(id)
        options = {"labels": origin.labels, "metadata": origin.metadata, **options}
        parent = origin.id if origin.kept else HEAD
        return self.save(origin.state, status=origin.status, parent=parent, **options)

    def fork(
        self,
        id: str,
        *,
        to: str | None = None,
        scope_id: str | None = None,
        patch: Any = None,
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, JSON] | None = None,
    ) -> "ModelScope":
        origin = copied(self._found(id))
        state = patch(origin.state) if callable(patch) else origin.state
        if isinstance(patch, Mapping):
            if not isinstance(state, dict):
                raise InvalidInput("only an object is patched by a mapping")
            state.update(patch)
        session = self.key.session_id if to is None else to
        name = scope_id or self.key.scope_id
        if scope_id is None and session == self.key.session_id:
            stored = self._model.stored[-1:]
            name = stored[0].scope.scope_id if stored else "generated"
            assert _SUFFIX.sub("", name) == _SUFFIX.sub("", self.key.scope_id)[:503] != name
        fork = self._model.scope(session, name, self.key.kind)
        if fork._contents.holds_anything():
            raise AlreadyExists("the scope exists already")
        fork.save(
            state,
            parent=None,
            status=origin.status,
            labels=origin.labels if labels is None else labels,
            metadata=origin.metadata if metadata is None else metadata,
            forked_from=SnapshotRef(self.key, id),
        )
        return fork

    # Deleting and redacting

    def delete_snapshot(self, id: str) -> int:
        count = int(id in self._contents.snapshots)
        self._contents.remove(id)
        return count

    def delete(self, *, expect: Any = ANY) -> int:
        self._expected(expect)
        return len(self._model.contents.pop(self.key).snapshots)

    def prune(
        self,
        *,
        keep_last: int | None = None,
        older_than: timedelta | None = None,
        dry_run: bool = False,
    ) -> Pruned:
        if keep_last is None and older_than is None:
            raise InvalidInput("no limit")
        doomed = [
            each
            for each in self._contents.kept()[keep_last or 0 :]
            if (older_than is None or self._model.now() - each.created_at > older_than)
            and each.id != self._contents.head
        ]
        if not dry_run:
            for each in doomed:
                self._contents.remove(each.id)
        return Pruned(len(doomed), sum(each.size for each in doomed))

    def redact(
        self, what: str | Callable[[str, JSON], bool], *, replacement: JSON = None
    ) -> Redacted:
        """Go over the scope and the forks of its session."""
        is_match = what if callable(what) else lambda path, value: path == what

        def redacted(path: str, value: JSON) -> JSON:
            if is_match(path, value):
                return replacement
            if isinstance(value, dict):
                return {key: redacted(f"{path}/{_escaped(key)}", value[key]) for key in value}
            if isinstance(value, list):
                return [redacted(f"{path}/{at}", each) for at, each in enumerate(value)]
            return value

        def redacted_text(path: str, value: str) -> str:
            found = redacted(path, value)
            return found if isinstance(found, str) else ""

        snapshots = notes = 0
        for scope in self._fork_group():
            for one in list(scope._contents.snapshots.values()):
                metadata = redacted("metadata", one.metadata)
                changed = _facts(
                    redacted("", one.state),
                    redacted_text("status", one.status),
                    {k: redacted_text(f"labels/{_escaped(k)}", v) for k, v in one.labels.items()},
                    metadata if isinstance(metadata, dict) else {},
                )
                if text(changed) != text(_facts_of(one)):
                    scope._rewrite(one, **changed)
                    snapshots += 1
            for note in list(scope._contents.notes.values()):
                value = redacted(f"notes/{_escaped(note.name)}", note.value)
                if text(value) != text(note.value):
                    scope.set_note(note.name, value, on=note.snapshot_id)
                    notes += 1
        return Redacted(snapshots, notes)

    def _fork_group(self) -> "list[ModelScope]":
        """Return the scope and all of its session that are forks of each other."""
        near: defaultdict[ScopeKey, set[ScopeKey]] = defaultdict(set)
        session_id, filled = self.key.session_id, self._model.filled()
        scopes = {key: held for key, held in filled if key.session_id == session_id}
        for key, held in scopes.items():
            origins = {key._replace(scope_id=_SUFFIX.sub("", key.scope_id))}
            origins |= {one.forked_from.scope for one in held.snapshots.values() if one.forked_from}
            for origin in origins:
                near[key].add(origin)
                near[origin].add(key)
        group, waiting = {self.key}, [self.key]
        while waiting:
            fresh = near[waiting.pop()] - group
            group |= fresh
            waiting += fresh
        return [self._model.scope(*key) for key in group & scopes.keys()]

    # Notes

    def note(self, name: str, *, on: str | None = None) -> Note | None:
        return self._contents.notes.get((on, name))

    def notes(self, *, on: str | Iterable[str] | None = None) -> list[Note]:
        owners = [on] if on is None or isinstance(on, str) else dict.fromkeys(on)
        found = sorted(self._contents.notes.values(), key=lambda note: note.name)
        return [note for owner in owners for note in found if note.snapshot_id == owner]

    def noted_ids(self, *, after: str | None = None, limit: int | None = None) -> list[str]:
        owners = sorted({owner for owner, _ in self._contents.notes if owner is not None})
        return [each for each in owners if after is None or each > after][:limit]

    def set_note(
        self, name: str, value_or_fn: Any, *, on: str | None = None, expect: Any = ANY
    ) -> Note | None:
        before = self.note(name, on=on)
        if expect is not ANY and expect != (None if before is None else before.revision):
            raise Conflict("the note has changed")
        value = value_or_fn
        if callable(value_or_fn):
            value = value_or_fn(None if before is None else copied_json(before.value))
            if value is None:
                return None
        revision = self._model.revision(0)
        note = Note(name, copied_json(value), revision, self._model.now(), on)
        self._contents.notes[on, name] = note
        return note

    def delete_note(self, name: str, *, on: str | None = None) -> int:
        return int(self._contents.notes.pop((on, name), None) is not None)

    # Reading

    def load(self, id: str | None = None) -> Snapshot | None:
        found = self._contents.snapshots.get((self._contents.head or "") if id is None else id)
        return None if found is None else copied(found)

    def info(self, id: str | None = None) -> SnapshotInfo | None:
        found = self._contents.snapshots.get((self._contents.head or "") if id is None else id)
        return None if found is None else info_of(found)

    def load_many(self, ids: Iterable[str]) -> list[Snapshot]:
        return [found for each in ids if (found := self.load(each)) is not None]

    def history(
        self, *, limit: int | None = None, after: str | SnapshotInfo | None = None, **wanted: Any
    ) -> list[SnapshotInfo]:
        if limit == 0:
            return []  # whatever `after` is: nothing is read
        if isinstance(after, str):
            after = self._found(after)
        seq = None if after is None else place(after)
        return _page(self._contents.kept(), limit, seq, **wanted)

    def ids(self, *, after: str | None = None, limit: int | None = None) -> list[str]:
        kept = sorted(each.id for each in self._contents.kept())
        return [each for each in kept if after is None or each > after][:limit]

    def ancestors(self, id: str) -> list[SnapshotInfo]:
        found, seen = self._found(id), dict[str, SnapshotInfo]()
        while found is not None and found.id not in seen:
            seen[found.id] = info_of(found)
            found = self._contents.snapshots.get(found.parent_id or "")  # type: ignore[assignment]
        return list(seen.values())

    def leaves(self) -> list[SnapshotInfo]:
        kept = self._contents.kept()
        parents = {each.parent_id for each in kept}
        return [info_of(each) for each in kept if each.id not in parents]

    def diff(self, a: str, b: str) -> Diff:
        return compare(self._found(a).state, self._found(b).state)


def listing_order(key: ScopeKey) -> tuple[str, str, str]:
    return key.session_id, key.kind, key.scope_id


def place(info: SnapshotInfo) -> int:
    """Return the place in history, with which every revision begins."""
    return int(info.revision.partition(".")[0], 16)


def info_of(snapshot: SnapshotInfo) -> SnapshotInfo:
    return SnapshotInfo(*(getattr(snapshot, name) for name in SnapshotInfo.__slots__))


def text(value: JSON) -> str:
    """Return a text that differs where JSON does: 1, 1.0 and True; the order of keys."""
    return json.dumps(value)


def copied_json(value: JSON) -> JSON:
    return json.loads(text(value))


def copied(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, **_facts_of(snapshot))


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def size_of(state: JSON) -> int:
    """Return the bytes of the compact JSON; a mark is stored before integers beyond 64 bits."""
    try:
        return len(orjson.dumps(state))
    except TypeError:
        plain = json.dumps(state, ensure_ascii=False, separators=(",", ":"))
        return 1 + len(plain.encode())


def _facts(
    state: JSON,
    status: str,
    labels: Mapping[str, str] | None,
    metadata: Mapping[str, JSON] | None,
) -> dict[str, Any]:
    given = {"state": state, "status": status, "metadata": dict(metadata or {})}
    facts: dict[str, Any] = copied_json(given | {"labels": dict(sorted((labels or {}).items()))})
    return facts


def _facts_of(one: Snapshot) -> dict[str, Any]:
    return _facts(one.state, one.status, one.labels, one.metadata)


def _page(
    newest_first: list[Snapshot],
    limit: int | None,
    after: int | None,
    labels: Mapping[str, str] | None = None,
    status: str | None = None,
) -> list[SnapshotInfo]:
    found = (
        info_of(each)
        for each in newest_first
        if (after is None or place(each) < after)
        and status in (None, each.status)
        and (labels or {}).items() <= each.labels.items()
    )
    return list(found)[:limit]
