"""What one process of a soak does: everything at random, on a store that it shares with others.

Before and after each write it says so in a journal, which outlives it: so it is known in the end
what must be there, what must not, and what may. It goes on until it is told, or killed.
"""

import asyncio
import hashlib
import json
import os
import random
import select
import signal
import sys
from collections.abc import Callable
from typing import Any
from zlib import crc32

import limpet
from limpet import JSON, AsyncStore, Conflict, NotFound, Scope, Snapshot, Store, runs

SESSION = "soak"
DOOMED = "doomed"  # a session that everybody saves in and deletes
SHARED = ("shared-0", "shared-1")
COUNTERS = ("counter-0", "counter-1")
TALLY = "tally"
RUN = "run"
TTL_S = 0.6
OWN_MAX = 12
OWNERS = 8
FORKS_MAX = 4  # of one process at a time
PROSE = random.Random(0).randbytes(10_000).hex()  # which many states share: they are deltas


def digest(state: JSON) -> str:
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()[:16]


def is_whole(state: Any) -> bool:
    """Return whether a state is one that was saved, whatever was appended to it."""
    return bool(state.get("sum", 0) == crc32(state.get("text", "").encode()))


def own_scope(number: int) -> str:
    return f"own-{number}"


def plus(token: str) -> Callable[[Snapshot], Snapshot]:
    return lambda before: before.with_(state={"ops": [*before.state["ops"], token]})


class Soaker:
    """One life of one process."""

    def __init__(self, store: Store, url: str, number: int, life: int, journal: int) -> None:
        self._store = store
        self._is_sql = url.startswith(("sqlite", "postgres"))
        self._name = f"{number}.{life}"
        self._own = store.scope(SESSION, own_scope(number))
        self._journal = journal
        self._chance = random.Random(self._name)
        self._made = 0
        self._forks: list[Scope] = []

    def go(self, is_over: Callable[[], object]) -> None:
        verbs = {
            self.save: 8, self.append: 4, self.tally: 4, self.note: 2, self.count: 8, self.own: 10,
            self.forget: 0.3, self.doom: 4, self.watch: 3, self.watch_async: 1, self.grab: 1,
            self.read: 4, self.run: 6, self.abort: 6, self.fork: 4, self.mend: 0.5,
        }  # fmt: skip
        while not is_over():
            (verb,) = self._chance.choices(list(verbs), list(verbs.values()))
            verb()

    def _say(self, *facts: Any) -> None:
        os.write(self._journal, json.dumps(facts).encode() + b"\n")

    def _token(self) -> str:
        self._made += 1
        return f"{self._name}.{self._made}"

    def _state(self, token: str) -> dict[str, Any]:
        text = PROSE[: self._chance.choice((0, 5_000, len(PROSE)))]
        text += self._chance.randbytes(self._chance.choice((5, 50, 3000))).hex()
        return {"token": token, "sum": crc32(text.encode()), "text": text, "items": []}

    def _any(self) -> Scope:
        names = [*SHARED, *COUNTERS, TALLY, self._own.scope_id]
        return self._store.scope(SESSION, self._chance.choice(names))

    # What must be exact

    def save(self) -> None:
        """A snapshot that nobody deletes, plainly or under a lease that is not waited for."""
        scope, token = self._store.scope(SESSION, self._chance.choice(SHARED)), self._token()
        state = self._state(token)
        if self._chance.random() < 0.7:
            self._say("save", scope.scope_id, token, digest(state))
            scope.save(state, id=token)
            self._say("saved", scope.scope_id, token)
            return
        try:
            with scope.claim(owner=self._name, ttl_s=TTL_S) as lease:
                self._say("save", scope.scope_id, token, digest(state))
                lease.save(state, id=token)
                self._say("saved", scope.scope_id, token)
        except Conflict:
            self._say("refused", scope.scope_id, token)

    def append(self) -> None:
        scope, token = self._store.scope(SESSION, self._chance.choice(SHARED)), self._token()
        made = scope.append("items", [token])
        self._say("appended", scope.scope_id, token, made.id)

    def tally(self) -> None:
        """An update that all make of one snapshot."""
        token = self._token()
        self._say("count", TALLY, token)
        assert self._store.scope(SESSION, TALLY).update(TALLY, plus(token)) is not None
        self._say("counted", TALLY, token)

    def note(self) -> None:
        token = self._token()
        self._say("count", "note", token)
        scope = self._store.scope(SESSION, TALLY)
        assert scope.set_note("note", lambda ops: [*(ops or []), token]) is not None
        self._say("counted", "note", token)

    def count(self) -> None:
        """Read and write under a lease: only that keeps others from doing it at the same time."""
        scope, token = self._store.scope(SESSION, self._chance.choice(COUNTERS)), self._token()
        try:
            with scope.claim(owner=self._name, ttl_s=TTL_S, wait_s=1) as lease:
                head = lease.load()
                ops = [] if head is None else head.state["ops"]
                state = {"ops": [*ops, token]}
                self._say("count", scope.scope_id, token)
                lease.save(state, keep=self._chance.random() < 0.2)
                self._say("counted", scope.scope_id, token)
        except Conflict:
            self._say("refused", scope.scope_id, token)

    def own(self) -> None:
        """A scope that nobody else changes: new ones, other ones, drafts, and none."""
        ids = list(self._own.ids())
        if not ids or self._chance.random() < 0.5:
            token = self._token()
            state = self._state(token)
            self._say("own", token, digest(state))
            self._own.save(state, id=token)
            self._say("owned", token, digest(state))
            return
        id = self._chance.choice(ids)
        if self._chance.random() < 0.4 or len(ids) > OWN_MAX:
            self._say("own", id, None)
            assert self._own.delete_snapshot(id) == 1
            self._say("owned", id, None)
        elif self._chance.random() < 0.3:
            self._own.save(self._state("draft"), keep=False)
        else:
            state = self._state(id)
            self._say("own", id, digest(state))
            if self._chance.random() < 0.5:
                assert self._own.update(id, lambda s: s.with_(state=state)) is not None
            else:
                self._own.save(state, id=id, overwrite=True)
            self._say("owned", id, digest(state))

    def forget(self) -> None:
        """The whole scope of one's own."""
        self._say("forget")
        self._own.delete()
        self._say("forgot")

    def fork(self) -> None:
        """A line that begins at what anybody has saved, or at a fork, and outlives its parts.

        It may begin at what its owner is about to change, or to delete.
        """
        names = [*SHARED, *(own_scope(number) for number in range(OWNERS))]
        anyones = [self._store.scope(SESSION, name) for name in names]
        source = self._chance.choice([*anyones, *self._forks])
        ids = list(source.ids())
        found = source.load(self._chance.choice(ids)) if ids else None
        if found is None:
            return
        patch = self._chance.choice((None, {"patched": self._token()}))
        try:
            line = source.fork(found.id, scope_id=f"fork-{self._token()}", patch=patch)
        except NotFound:
            assert source.scope_id.startswith("own-")
            return
        first = line.load()
        assert first is not None
        assert is_whole(first.state)
        if not source.scope_id.startswith("own-"):
            assert first.state == {**found.state, **(patch or {})}
        kept, digests = [first.id], {first.id: digest(first.state)}
        for _ in range(self._chance.choice((1, 3, 20))):
            state = self._state("x")
            kept.append(line.save(state, id=self._token()).id)
            digests[kept[-1]] = digest(state)
            line.save(self._state("x"), keep=False)
        throw = self._chance.random()
        if throw < 0.3:
            line.prune(keep_last=2)
            kept = kept[-2:]
        elif throw < 0.6:
            assert line.delete_snapshot(kept.pop(0)) == 1
        assert [info.id for info in line.history()] == kept[::-1]
        assert all(is_whole(each.state) for each in line.load_many(kept))
        self._say("forked", line.scope_id, {id: digests[id] for id in kept})
        self._forks.append(line)
        if len(self._forks) > FORKS_MAX:
            oldest = self._forks.pop(0)
            self._say("forked", oldest.scope_id, None)
            assert oldest.delete() > 0

    def run(self) -> None:
        """Some steps of a run that others begin and abort as well."""
        try:
            with runs.start(self._store, RUN, owner=self._name, ttl_s=TTL_S, again=True) as run:
                facts: Any = run.info.metadata["run"]
                attempt = (facts["started_at"], facts["attempt"])
                for left in reversed(range(self._chance.randint(1, 5))):
                    # The last one is kept: so what it did is still known when another has begun.
                    run.step(self._token(), keep=left == 0)
                select.select([], [], [], self._chance.choice((0, 0.05)))  # it may be aborted
                self._say("close", *attempt)
            self._say("closed", *attempt)
        except (Conflict, NotFound):
            pass

    def abort(self) -> None:
        try:
            found = runs.abort(self._store, RUN)
        except NotFound:
            return
        if found.status == "aborted":
            self._say("aborted", found.started_at.isoformat(), found.attempt)

    # What is in the way

    def doom(self) -> None:
        """Saves and deletes in scopes where nobody knows what comes of it."""
        scope = self._store.scope(DOOMED, self._chance.choice("abc"))
        verb = self._chance.random()
        if verb < 0.5:
            scope.save(self._state("x"), keep=verb < 0.3)
        elif verb < 0.7:
            scope.delete()
        elif verb < 0.75:
            self._store.delete_session(DOOMED)
        else:
            try:
                with scope.claim(owner=self._name, ttl_s=TTL_S) as lease:
                    lease.append("items", [1])
                    if verb > 0.9:
                        lease.delete()
            except Conflict:
                pass

    def watch(self) -> None:
        for _ in zip(self._any().watch(timeout_s=0.05), range(3), strict=False):
            pass

    def watch_async(self) -> None:
        async def look(store: AsyncStore) -> None:
            watch = store.watch(session_id=SESSION, timeout_s=0.05)
            seen = 0
            async for _ in watch:
                seen += 1
                if seen == 8:
                    break

        asyncio.run(look(self._store.aio))

    def grab(self) -> None:
        """A lease that is held for a moment without need."""
        try:
            with self._any().claim(owner=self._name, ttl_s=TTL_S):
                select.select([], [], [], self._chance.uniform(0, 0.1))
        except Conflict:
            pass

    def read(self) -> None:
        scope = self._any()
        some = [scope.load(), *(scope.load(info.id) for info in scope.history(limit=5))]
        assert all(found is None or is_whole(found.state) for found in some)

    def mend(self) -> None:
        """Nothing that others are about to write looks like damage, or is mended."""
        self._store.compact()
        for finding in (*self._store.check(), *self._store.repair()):
            # In a folder or a bucket it sees what others have under way; in tables whole commits.
            assert finding.severity == "info" or (
                finding.severity == "warning" and not self._is_sql
            ), finding
            assert not (finding.repaired and self._is_sql), finding


def main() -> None:
    url, number, life, path = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    journal = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with limpet.open(url) as store:
        os.write(1, b'"ready"\n')
        soaker = Soaker(store, url, int(number), int(life), journal)
        soaker.go(lambda: select.select([sys.stdin], [], [], 0)[0])


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
