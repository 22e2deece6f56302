"""Eight processes do everything at once on one store, and are stopped and killed at random.

In the end nothing that was acknowledged is missing, and nothing is left over.
"""

import asyncio
import json
import os
import random
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import InvalidInput, ScopeKey, Store
from limpet.testing.kit import together
from tests.concurrency import pg_tools
from tests.concurrency.crew import SIZE, Worker
from tests.effort import TORTURE, times
from tests.servers.postgres import with_option
from tests.waiting import until
from tests.watching.soaker import (
    COUNTERS,
    DOOMED,
    RUN,
    SESSION,
    SHARED,
    TALLY,
    Soaker,
    digest,
    is_whole,
    own_scope,
)
from tests.watching.tools import APIS, nothing_left, on

TEMPORARY = ".limpet-"


class Follower(threading.Thread):
    """Watches a scope, by either API, and starts again when it was deleted."""

    def __init__(self, store: Store, key: ScopeKey | None, api: str) -> None:
        super().__init__(daemon=True)
        self.key = key
        self.last: dict[ScopeKey, str] = {}
        self.errors: list[BaseException] = []
        self._store = store
        self._api = api
        self.start()

    def run(self) -> None:
        try:
            while True:
                if self._api == "sync":
                    for info in self._watch(self._store):
                        self.last[info.scope] = info.revision
                else:
                    asyncio.run(self._follow(self._store.aio))
        except InvalidInput:  # the store is closed
            pass
        except BaseException as error:
            self.errors.append(error)

    def has_heard(self, heads: dict[ScopeKey, str]) -> bool:
        """Tell whether these are the last that it heard of, or it has failed."""
        return bool(self.errors) or heads.items() <= dict(self.last).items()

    async def _follow(self, store: Any) -> None:
        async for info in self._watch(store):
            self.last[info.scope] = info.revision

    def _watch(self, store: Any) -> Any:
        if self.key is None:
            return store.watch(session_id=SESSION)
        return store.scope(*self.key).watch()


class Soak:
    """The processes, and what is done to them."""

    def __init__(self, url: str, folder: Path, seed: int) -> None:
        self._url = url
        self._folder = folder
        self._chance = random.Random(seed)
        self._lives = [0] * SIZE
        self._ready: set[int] = set()
        self.workers: list[Worker] = []
        self.done: Counter[str] = Counter()

    def start(self) -> None:
        self.workers = [self._worker(number) for number in range(SIZE)]
        for number in range(SIZE):
            self._wait_for(number)

    def _worker(self, number: int) -> Worker:
        self._lives[number] += 1
        self._ready.discard(number)
        path = self._folder / f"journal-{number}"
        return Worker("tests.watching.soaker", self._url, number, self._lives[number], path)

    def _wait_for(self, number: int) -> None:
        if number not in self._ready:
            assert self.workers[number].hear() == "ready"
            self._ready.add(number)

    def run(self, seconds: float) -> None:
        """Let them work, and disturb one after another, or several at once; kill all in the end."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            time.sleep(self._chance.uniform(0.02, 0.4))
            what = self._chance.choice(("kill", "interrupt", "stop"))
            chosen = self._chance.sample(range(SIZE), self._chance.choice((1, 1, 3)))
            self.done[what] += len(chosen)
            if what == "stop":
                for number in chosen:
                    self._stop(self.workers[number])
            else:
                self._end(chosen, signal.SIGKILL if what == "kill" else signal.SIGINT)
        self.done["kill"] += SIZE
        self._end(range(SIZE), signal.SIGKILL)

    def _stop(self, worker: Worker) -> None:
        """Let one sleep for longer than its lease lasts, or not quite."""
        worker.process.send_signal(signal.SIGSTOP)
        time.sleep(self._chance.choice((0.05, 0.3, 0.9)))
        worker.process.send_signal(signal.SIGCONT)

    def _end(self, numbers: Sequence[int], how: signal.Signals) -> None:
        """End some together: none outlives another, so as to finish what it had begun."""
        if how is signal.SIGINT:
            for number in numbers:
                self._wait_for(number)  # before that, it would end with the trace of an import
        for number in numbers:
            assert self.workers[number].process.poll() is None, "a process has failed"
            self.workers[number].process.send_signal(how)
        for number in numbers:
            worker = self.workers[number]
            assert worker.process.wait(300) in (-how, 130)
            worker.end()
            self.workers[number] = self._worker(number)  # which starts while the others go on

    def finish(self) -> None:
        """Tell all to end, and see that they end well."""
        for worker in self.workers:
            worker.tell("stop")
        for worker in self.workers:
            worker.end()
        assert [worker.process.returncode for worker in self.workers] == [0] * SIZE

    def kill(self) -> None:
        for worker in self.workers:
            worker.process.kill()
            worker.process.send_signal(signal.SIGCONT)
            worker.end()


def journals(folder: Path) -> Iterator[tuple[int, list[Any]]]:
    for path in folder.glob("journal-*"):
        with path.open() as file:
            lines = [json.loads(line) for line in file if line.endswith("\n")]
        yield int(path.name.rpartition("-")[2]), lines


class Expected:
    """What the journals say that must be there, must not, and may."""

    def __init__(self, folder: Path) -> None:
        self.saves: dict[tuple[str, str], str] = {}
        self.acknowledged: set[tuple[str, str]] = set()
        self.refused: set[tuple[str, str]] = set()
        self.appended: list[tuple[str, str, str]] = []
        self.own: dict[int, dict[str, set[str | None]]] = {}
        self.forks: dict[str, dict[str, str] | None] = {}  # None: it may be deleted
        self.runs: dict[str, set[tuple[str, int]]] = defaultdict(set)  # attempts, by the verb
        self.verbs: Counter[str] = Counter()
        for number, lines in journals(folder):
            self.own[number] = self._read_own(lines)
            for what, *facts in lines:
                self.verbs[what] += 1
                if what == "save":
                    self.saves[facts[0], facts[1]] = facts[2]
                elif what == "count":
                    self.saves[facts[0], facts[1]] = ""
                elif what in ("saved", "counted"):
                    self.acknowledged.add((facts[0], facts[1]))
                elif what == "refused":
                    self.refused.add((facts[0], facts[1]))
                elif what == "forked":
                    self.forks[facts[0]] = facts[1]
                elif what in ("close", "closed", "aborted"):
                    self.runs[what].add((facts[0], facts[1]))
                elif what == "appended":
                    self.appended.append((facts[0], facts[1], facts[2]))

    def _read_own(self, lines: list[Any]) -> dict[str, set[str | None]]:
        """Return for each id what it may be now: one state or another, or gone."""
        ids: dict[str, set[str | None]] = defaultdict(lambda: {None})
        for what, *facts in lines:
            if what == "own":
                ids[facts[0]] = {*ids[facts[0]], facts[1]}
            elif what == "owned":
                ids[facts[0]] = {facts[1]}
            elif what == "forget":
                for possible in ids.values():
                    possible.add(None)
            elif what == "forgot":
                ids.clear()
        return ids

    def check(self, store: Store, *, is_killed: bool) -> None:
        """Objects of writers that were killed may be left over in folders and buckets."""
        self._check_shared(store)
        self._check_runs(store)
        for name in COUNTERS:
            head = store.scope(SESSION, name).load()
            self._check_ops(name, [] if head is None else head.state["ops"])
        tally, note = store.scope(SESSION, TALLY).load(TALLY), store.scope(SESSION, TALLY)
        assert tally is not None
        self._check_ops(TALLY, tally.state["ops"])
        written = note.note("note")
        self._check_ops("note", [] if written is None else written.value)
        for number, ids in self.own.items():
            scope = store.scope(SESSION, own_scope(number))
            found = {each.id: digest(each.state) for each in scope.load_many(scope.ids())}
            assert found.keys() <= ids.keys()
            for id, possible in ids.items():
                assert found.get(id) in possible, f"{id} of {scope}"
        for name, states in self.forks.items():
            scope = store.scope(SESSION, name)
            if states is not None:
                found = {each.id: digest(each.state) for each in scope.load_many(scope.ids())}
                assert found == states, name
        for info in store.scopes(SESSION):
            scope = store.scope(*info.key)
            for each in [scope.load(), *scope.load_many(scope.ids())]:
                assert each is None or is_whole(each.state), each
        left = {each.severity for each in store.check()}
        assert left <= ({"info", "warning"} if is_killed else {"info"}), left

    def _check_shared(self, store: Store) -> None:
        for name in SHARED:
            scope = store.scope(SESSION, name)
            ids = list(scope.ids())
            found = {each.id: each.state for each in scope.load_many(ids)}
            assert list(found) == ids
            assert sorted(info.id for info in scope.history()) == ids
            wanted = {token for where, token in self.acknowledged if where == name}
            assert wanted <= found.keys()
            refused = {token for where, token in self.refused if where == name}
            assert not (refused - wanted) & found.keys()
            for where, token in self.saves:
                if where == name and token in found:
                    assert digest(found[token]) == self.saves[where, token]
            for where, token, id in self.appended:
                assert where != name or found[id]["items"][-1:] == [token]

    def _check_runs(self, store: Store) -> None:
        """What was aborted stays so, unless a later attempt resumed it."""
        scope, aborted = store.scope(RUN, "main", "run"), self.runs["aborted"]
        assert not aborted & self.runs["closed"]
        shown: dict[str, Any] = {}
        for each in [scope.load(), *scope.load_many(info.id for info in scope.history())]:
            facts: Any = each and each.metadata["run"]
            if each is not None and shown.setdefault(facts["started_at"], each) is each:
                attempt = (facts["started_at"], facts["attempt"])
                assert all(attempt[1] >= number for at, number in aborted if at == attempt[0])
                assert attempt not in aborted or each.status == "aborted"
                assert each.status != "completed" or attempt in self.runs["close"]

    def _check_ops(self, name: str, ops: list[str]) -> None:
        assert len(set(ops)) == len(ops)
        asked = {token for where, token in self.saves if where == name}
        assert {token for where, token in self.acknowledged if where == name} <= set(ops) <= asked
        refused = {token for where, token in self.refused - self.acknowledged if where == name}
        assert not refused & set(ops)


def check_followers(store: Store, followers: list[Follower]) -> None:
    """See that each has been told what there is now."""
    heads = {info.key: info.head.revision for info in store.scopes(SESSION) if info.head}
    for each in followers:
        wanted = heads if each.key is None else {each.key: heads.get(each.key)}
        expected = {key: revision for key, revision in wanted.items() if revision is not None}
        until(partial(each.has_heard, expected))
        assert each.errors == []


def check_folder(folder: Path, store: Store, soak: Soak) -> None:
    """No temporary file is left but those of who was killed; and they can be swept away."""
    left = [path for path in folder.rglob(f"{TEMPORARY}*") if path.is_file()]
    assert len(left) <= soak.done["kill"] + soak.done["interrupt"]
    for path in left:
        os.utime(path, (0, 0))  # as it will be before long
    assert {each.severity for each in store.repair()} <= {"info", "warning"}
    assert [path for path in folder.rglob(f"{TEMPORARY}*") if path.is_file()] == []


def keys() -> list[ScopeKey]:
    names = [*SHARED, *COUNTERS, TALLY, *(own_scope(number) for number in range(SIZE))]
    return [*(ScopeKey(SESSION, name) for name in names), ScopeKey(DOOMED, "a")]


@pytest.mark.parametrize(
    ("url", "seconds"),
    [
        pytest.param("sqlite", 4, marks=pytest.mark.slow),
        pytest.param("postgres", 4, marks=pytest.mark.slow),
        pytest.param("directory", 4, marks=pytest.mark.slow),
        pytest.param("s3", 10, marks=pytest.mark.slow),
        *(
            pytest.param(engine, 60, marks=TORTURE)
            for engine in ("sqlite", "directory", "postgres")
        ),
    ],
    indirect=["url"],
)
def test_soak(request: pytest.FixtureRequest, url: str, seconds: int, tmp_path: Path) -> None:
    """Nothing is lost, nothing is left; `-k "soak and directory"` chooses an engine."""
    name = f"soak-{os.getpid()}-{time.monotonic_ns()}"
    named = with_option(url, "application_name", name) if url.startswith("postgres") else url
    soak = Soak(named, tmp_path, seed=int(seconds))
    try:
        with nothing_left(), limpet.open(named) as store:
            store.scope(SESSION, TALLY).save({"ops": []}, id=TALLY)
            followers = [Follower(store, key, api) for key in [*keys(), None] for api in APIS]
            soak.start()
            soak.run(0.8 * seconds)
            soak.run(0.2 * seconds)  # on what all of them have left
            soak.finish()
            check_followers(store, followers)
            expected = Expected(tmp_path)
            expected.check(store, is_killed=url.startswith(("file", "s3")))
            if url.startswith("file"):
                check_folder(tmp_path / "store", store, soak)
            for session in list(store.sessions()):
                store.delete_session(session)
            if url.startswith(("file", "s3")):
                list(store.repair())  # sweeps what killed writers have left
            assert list(store.check()) == []
    finally:
        soak.kill()
    if url.startswith("postgres"):
        pg_tools.assert_none(request.getfixturevalue("postgres"), pg_tools._OPEN, named)
    done = ("saved", "counted", "appended", "owned", "forked", "closed", "aborted")
    assert {each for each in done if not expected.verbs[each]} == set()


@on("sqlite", "postgres", "directory", slow=("postgres",))
def test_threads_share_a_store(url: str, store: Store, tmp_path: Path) -> None:
    """They do the same; what the store remembers of a scope is never another moment's."""

    def soak(number: int) -> None:
        steps = iter(range(times(30, full=200)))
        journal = os.open(tmp_path / f"journal-{number}", os.O_WRONLY | os.O_CREAT)
        Soaker(store, url, number, 1, journal).go(lambda: next(steps, None) is None)
        os.close(journal)

    store.scope(SESSION, TALLY).save({"ops": []}, id=TALLY)
    together(partial(soak, number) for number in range(4))
    Expected(tmp_path).check(store, is_killed=False)
