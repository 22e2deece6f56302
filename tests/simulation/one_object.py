"""A small correct engine over a bucket: each scope is one object, replaced by compare-and-set.

Too slow for use (every write moves a whole scope), but there is little to get wrong. The checker
must accept it in every mode, and must catch what its variants do wrong.
"""

import pickle
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from limpet.backends.buckets.protocol import Bucket, Moved
from limpet.backends.memory import MemoryStorage
from limpet.errors import Unavailable
from limpet.model import ANY, Expect, Finding, Note, Pruned, ScopeKey, SnapshotInfo
from limpet.protocol import Claim, Clock, Commit, Found, Hold, NoteWrite, Query, Stamp
from tests.memory import Memory

T = TypeVar("T")


class Kept(NamedTuple):
    """What an object holds. `trail` names all writes of it, so that a lost answer can be found."""

    scope: dict[str, Any]
    trail: tuple[str, ...]


class OneObjectBackend:
    """An engine for the simulation, and no more than that."""

    blocking = True
    capabilities = frozenset({"durable", "index"})

    def __init__(self, bucket: Bucket, clock: Clock, draw: Callable[[], Stamp]) -> None:
        self.bucket = bucket
        self.clock = clock
        self.draw = draw

    def _key(self, scope: ScopeKey) -> str:
        return "one/" + "/".join(scope)

    def _get(self, scope: ScopeKey) -> tuple[Kept, str | None]:
        (found,) = self.bucket.get([self._key(scope)])
        if found is None:
            return Kept({}, ()), None
        kept: Kept = pickle.loads(found.data)
        return kept, found.version

    def _memory(self, scope: ScopeKey, kept: Kept) -> Memory:
        memory = Memory()
        if kept.scope:
            storage = memory.storage
            assert isinstance(storage, MemoryStorage)
            storage._scopes[scope] = found = storage.at(scope)
            vars(found).update(kept.scope)
        return memory

    def _kept(self, scope: ScopeKey, memory: Memory) -> dict[str, Any]:
        storage = memory.storage
        assert isinstance(storage, MemoryStorage)
        found = vars(storage._scopes[scope]) if scope in storage._scopes else {}
        return {name: value for name, value in found.items() if name != "_storage"}

    def _change(
        self, scope: ScopeKey, change: Callable[[Memory], T], nonce: str | None = None
    ) -> T:
        nonce = self.draw().nonce if nonce is None else nonce
        while True:
            kept, version = self._get(scope)
            memory = self._memory(scope, kept)
            answer = change(memory)
            stored = Kept(self._kept(scope, memory), (*kept.trail, nonce))
            if self._replace(scope, pickle.dumps(stored), version, nonce):
                return answer

    def _replace(self, scope: ScopeKey, data: bytes, version: str | None, nonce: str) -> bool:
        """Compare-and-set; return whether it was done, and raise if that is unknown."""
        while True:
            try:
                self.bucket.put(self._key(scope), data, expect=version)
            except (Moved, Unavailable):
                pass
            else:
                return True
            try:
                kept, now = self._get(scope)
            except Unavailable as cause:
                raise Unavailable("not known", outcome_known=False) from cause
            if nonce in kept.trail:
                return True
            if now != version:
                self.clock.sleep(0.001)
                return False

    def _look(self, scope: ScopeKey) -> Memory:
        return self._memory(scope, self._get(scope)[0])

    def commit(self, commit: Commit) -> SnapshotInfo:
        nonce = commit.stamp.nonce
        if commit.again and nonce in self._get(commit.scope)[0].trail:
            raise Unavailable("it has happened", outcome_known=False)
        return self._change(commit.scope, lambda memory: memory.commit(commit), nonce)

    def read_snapshots(self, scope: ScopeKey, ids: Sequence[str | None]) -> list[Found]:
        return self._look(scope).read_snapshots(scope, ids)

    def read_info(self, scope: ScopeKey, snapshot_id: str | None) -> SnapshotInfo | None:
        return self._look(scope).read_info(scope, snapshot_id)

    def list_snapshots(self, query: Query, *, limit: int) -> list[SnapshotInfo]:
        if query.scope is not None:
            return self._look(query.scope).list_snapshots(query, limit=limit)
        found: list[SnapshotInfo] = []
        for listed in self.bucket.list("one/", limit=1000):
            scope = ScopeKey(*listed.key.split("/")[1:])
            found += self._look(scope).list_snapshots(query, limit=limit)
        return found[:limit]

    def list_ids(self, scope: ScopeKey, *, after: str, limit: int) -> list[str]:
        return self._look(scope).list_ids(scope, after=after, limit=limit)

    def delete_snapshots(
        self, scope: ScopeKey, ids: Sequence[str], *, spare_head: bool = False
    ) -> Pruned:
        return self._change(
            scope, lambda memory: memory.delete_snapshots(scope, ids, spare_head=spare_head)
        )

    def delete_scope(self, scope: ScopeKey, *, expect: Expect = ANY) -> int:
        return self._change(scope, lambda memory: memory.delete_scope(scope, expect=expect))

    def delete_session(self, session_id: str) -> int:
        return sum(
            self.delete_scope(ScopeKey(*listed.key.split("/")[1:]))
            for listed in self.bucket.list(f"one/{session_id}/", limit=1000)
        )

    def list_notes(
        self,
        scope: ScopeKey,
        *,
        on: Sequence[str | None],
        name: str | None,
        after: str,
        limit: int,
    ) -> list[Note]:
        memory = self._look(scope)
        return memory.list_notes(scope, on=on, name=name, after=after, limit=limit)

    def write_note(self, write: NoteWrite) -> Note:
        change: Callable[[Memory], Note] = lambda memory: memory.write_note(write)  # noqa: E731
        return self._change(write.scope, change, write.stamp.nonce)

    def claim(self, claim: Claim) -> Hold:
        return self._change(claim.scope, lambda memory: memory.claim(claim))

    def renew(self, claim: Claim) -> Hold:
        return self._change(claim.scope, lambda memory: memory.renew(claim))

    def release(self, claim: Claim) -> None:
        self._change(claim.scope, lambda memory: memory.release(claim))

    def delete_note(self, scope: ScopeKey, name: str, *, on: str | None) -> int:
        return self._change(scope, lambda memory: memory.delete_note(scope, name, on=on))

    def compact(self) -> int:
        return 0

    def check(self, after: str, *, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
        return [], None
