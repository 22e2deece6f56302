"""Who watches over a bucket: what is heard, how soon, what a look costs, what is left behind."""

import gc
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from operator import gt
from pathlib import Path
from typing import Any

import pytest
import watchfiles

from limpet import ScopeKey, Unavailable
from limpet.backends.buckets.directory import listen
from limpet.backends.buckets.directory.bucket import DirectoryBucket
from limpet.backends.buckets.directory.listen import DirectoryListener
from limpet.backends.buckets.protocol import Bucket, KeyPrefix
from limpet.backends.objects.keys import (
    head_key,
    page_key,
    segment_key,
    session_prefix,
    started_key,
)
from limpet.backends.objects.watching import ObjectListener
from limpet.backends.support.polling import Poller
from limpet.engine import Engine
from limpet.model import ANY
from limpet.opening import CLOCK, draw
from limpet.protocol import Claim, Clock, Commit, NoteWrite, Target, Topic
from tests.buckets.counting import CountingBucket
from tests.buckets.opened import engine_on
from tests.servers.service import Service
from tests.waiting import until

SCOPE = ScopeKey("s", "main", "agent")
POLL_S = 0.2
SOON_S = 20.0  # a busy machine is no failure


def now_us() -> int:
    return time.time_ns() // 1000


def folder(path: Path) -> DirectoryBucket:
    return DirectoryBucket(
        str(path), token=lambda: uuid.uuid4().hex, now=now_us, clock=CLOCK, sync=False
    )


def engine(bucket: Bucket, *, poll_s: float = POLL_S) -> Engine:
    return engine_on(bucket, poll_s=poll_s)


@pytest.fixture(params=["told", "polled", pytest.param("seaweedfs", marks=pytest.mark.slow)])
def bucket(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bucket]:
    if request.param == "seaweedfs":
        service: Service = request.getfixturevalue("seaweedfs")
        remote = service.open(f"listening-{uuid.uuid4()}")
        yield remote
        remote.close()
        return
    if request.param == "polled":
        monkeypatch.setattr(listen, "rust_notify", lambda: None)
    yield folder(tmp_path / "store")


def commit(scope: ScopeKey = SCOPE, **facts: Any) -> Commit:
    return Commit(scope, b'{"x":1}', "completed", b"{}", b"{}", draw(), **facts)


# What is heard


class Watcher:
    """Follows topics as whoever watches does: hear, then look, again and again."""

    def __init__(self, backend: Engine, *topics: Topic) -> None:
        self.listener = backend.listen()
        self.listener.follow(topics)

    def hears(self, session_id: str, act: Callable[[], object]) -> float:
        """Return how long after it is done something is heard of it; less than 0 is before."""
        self.settle()
        begun, done = threading.Event(), list[float]()

        def run() -> None:
            begun.set()
            act()
            done.append(time.monotonic())

        thread = threading.Timer(0.05, run)
        thread.start()
        while True:
            heard = self.listener.wait(active=False)
            if begun.is_set() and (heard is None or session_id in heard):
                break
        heard_s = time.monotonic()
        thread.join()
        assert heard_s - done[0] < SOON_S
        return heard_s - done[0]

    def settle(self) -> None:
        """Let what was heard before pass."""
        ends = time.monotonic() + 0.15
        while time.monotonic() < ends:
            timer = threading.Timer(0.05, self.listener.wake)
            timer.start()
            self.listener.wait(active=False)
            timer.join()


@pytest.fixture
def watch(bucket: Bucket) -> Iterator[Callable[..., Watcher]]:
    watchers: list[Watcher] = []

    def begin(*topics: Topic) -> Watcher:
        watchers.append(Watcher(engine(bucket), *topics))
        return watchers[-1]

    yield begin
    for watcher in watchers:
        watcher.listener.close()


def test_a_change_of_the_head_is_noticed(bucket: Bucket, watch: Callable[..., Watcher]) -> None:
    writer = engine(bucket)
    watcher = watch(Topic(Target(SCOPE)))
    watcher.hears("s", lambda: writer.commit(commit()))
    watcher.hears("s", lambda: writer.commit(commit(keep=False)))
    watcher.hears("s", lambda: writer.commit(commit()))
    watcher.hears("s", lambda: writer.delete_session("s"))
    watcher.hears("s", lambda: writer.commit(commit()))


def test_a_change_of_a_snapshot_is_noticed(bucket: Bucket, watch: Callable[..., Watcher]) -> None:
    writer = engine(bucket)
    watcher = watch(Topic(Target(SCOPE, "x")))
    watcher.hears("s", lambda: writer.commit(commit(id="x", head=False)))
    writer.commit(commit())
    before = writer.read_info(SCOPE, "x")
    assert before is not None
    update = commit(id="x", replaces=before.revision)._replace(status="done")
    watcher.hears("s", lambda: writer.commit(update))
    watcher.hears("s", lambda: writer.delete_snapshots(SCOPE, ["x"]))


def test_changes_of_sessions_are_noticed(bucket: Bucket, watch: Callable[..., Watcher]) -> None:
    writer = engine(bucket)
    writer.commit(commit())
    one, all_ = watch(Topic(session_id="s")), watch(Topic(prefix="t"))
    one.hears("s", lambda: writer.commit(commit(ScopeKey("s", "new", "graph"))))
    all_.hears("t1", lambda: writer.commit(commit(ScopeKey("t1"))))
    all_.hears("t1", lambda: writer.commit(commit(ScopeKey("t1"))))
    all_.hears("t2", lambda: writer.commit(commit(ScopeKey("t2"))))


def test_changes_under_long_names_are_noticed(
    bucket: Bucket, watch: Callable[..., Watcher]
) -> None:
    writer, scope = engine(bucket), ScopeKey("É" * 400, "Ö" * 400)
    watcher = watch(Topic(Target(scope)))
    for _ in range(2):
        watcher.hears(scope.session_id, lambda: writer.commit(commit(scope)))
    everything = watch(Topic())
    everything.hears(scope.session_id, lambda: writer.commit(commit(scope)))


def test_a_snapshot_that_may_come_anywhere(bucket: Bucket, watch: Callable[..., Watcher]) -> None:
    writer = engine(bucket)
    watcher = watch(Topic(id="x"))
    watcher.hears("s", lambda: writer.commit(commit(id="x", head=False)))
    watcher.listener.follow([Topic(id="x"), Topic(Target(SCOPE, "x"))])
    changed = commit(id="x", overwrite=True, head=False)._replace(status="changed")
    watcher.hears("s", lambda: writer.commit(changed))
    watcher.hears("s", lambda: writer.delete_snapshots(SCOPE, ["x"]))


def test_more_topics_and_fewer(bucket: Bucket, watch: Callable[..., Watcher]) -> None:
    writer = engine(bucket)
    scopes = [ScopeKey(f"s{number}") for number in range(20)]
    watcher = watch()
    for count in range(1, 21):
        watcher.listener.follow([Topic(Target(scope)) for scope in scopes[:count]])
    watcher.hears("s0", lambda: writer.commit(commit(scopes[0])))
    watcher.hears("s19", lambda: writer.commit(commit(scopes[19])))
    watcher.listener.follow([Topic(Target(scopes[3]))])
    watcher.hears("s3", lambda: writer.commit(commit(scopes[3])))


class Said:
    """The listener of a bucket that reports what it is given."""

    def __init__(self, *heard: frozenset[str] | None) -> None:
        self.heard = list(heard)

    def follow(self, topics: Collection[KeyPrefix]) -> None:
        pass

    def wait(self, *, active: bool) -> frozenset[str] | None:
        return self.heard.pop(0)

    def wake(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_sessions_are_recognized_by_their_keys() -> None:
    long = ScopeKey("É" * 400)
    said = Said(
        frozenset({segment_key(SCOPE, "1.2.after-3"), page_key(SCOPE, "1.2.after-3")}),
        frozenset({started_key(SCOPE, "1")}),
        frozenset({head_key(SCOPE), head_key(ScopeKey("t"))}),
        frozenset({session_prefix("s") + "scopes"}),
        frozenset({head_key(long)}),
        frozenset({head_key(ScopeKey("Ä" * 400))}),
        frozenset({"sessions"}),
        frozenset({".limpet/index/x"}),
        frozenset(),
        None,
    )
    listener = ObjectListener(said)
    listener.follow([Topic(Target(long))])
    heard = [listener.wait(active=False) for _ in range(8)]
    assert heard == [{"s", "t"}, {"s"}, {long.session_id}, None, None, None, frozenset(), None]


def test_what_is_not_watched_changes_no_revision(bucket: Bucket) -> None:
    """Notes and leases are in the head, so that is read; no watch yields anything for them."""
    writer, reader = engine(bucket), engine(bucket)
    before = writer.commit(commit()).revision
    targets = [Target(SCOPE)]
    assert reader.read_revisions(targets) == [before]
    for number in range(100):  # more than a head has
        writer.write_note(NoteWrite(SCOPE, f"n{number}", None, b"1", draw()))
    assert reader.read_revisions(targets) == [before]
    writer.claim(Claim(SCOPE, "k", "me", 10**7, draw()))
    assert reader.read_revisions(targets) == [before]


# How soon


def test_a_notification_of_the_system_is_noticed_soon(tmp_path: Path) -> None:
    backend = engine(folder(tmp_path), poll_s=60)
    backend.commit(commit())
    watcher = Watcher(backend, Topic(Target(SCOPE)))
    for _ in range(9):
        watcher.hears("s", lambda: backend.commit(commit()))
    watcher.listener.close()


class Hands:
    """A clock whose hands do not move, and a jitter that is chosen."""

    def __init__(self, jitter: float) -> None:
        self.clock = Clock(lambda: 0.0, lambda _: None, lambda: jitter)


@pytest.mark.parametrize("jitter", [0.0, 0.5, 1.0])
def test_pauses_grow_and_are_bounded(monkeypatch: pytest.MonkeyPatch, jitter: float) -> None:
    poller = Poller(first_s=0.1, poll_s=1.0, clock=Hands(jitter).clock)
    pauses: list[float] = []
    monkeypatch.setattr(poller, "sleep", pauses.append)
    for active in (True, False, False, False, False, False, True, False):
        assert poller.wait(active=active) is None
    whole = [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 0.1, 0.2]
    assert pauses == pytest.approx([pause * (1 - jitter / 4) for pause in whole])


def test_a_wake_does_not_lengthen_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    poller = Poller(first_s=0.1, poll_s=1.0, clock=Hands(0).clock)
    pauses: list[float] = []
    monkeypatch.setattr(poller, "sleep", pauses.append)
    for _ in range(3):
        poller.wake()
        assert poller.wait(active=False) == frozenset()
    assert pauses == [0.1] * 3


# Where the system does not tell


def test_watchfiles_has_what_is_used_of_it(tmp_path: Path) -> None:
    """It is a private class of another package: this fails when a release moves or changes it."""
    notify = listen.rust_notify()
    assert notify is not None, "watchfiles._rust_notify.RustNotify has moved: folders are polled"
    watch = notify([str(tmp_path)], False, False, 0, True, True)
    stop = threading.Event()
    assert watch.watch(16, 8, 50, stop) == "timeout"
    (tmp_path / "file").touch()
    assert (watchfiles.Change.added, str(tmp_path / "file")) in watch.watch(16, 8, 5000, stop)
    (tmp_path / "file").unlink()
    assert (listen._DELETED, str(tmp_path / "file")) in watch.watch(16, 8, 5000, stop)
    stop.set()
    assert watch.watch(16, 8, 5000, stop) == "stop"
    watch.close()
    assert watchfiles.Change.deleted == listen._DELETED


def test_a_watcher_that_cannot_be_had_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no room for another watch")

    monkeypatch.setattr(listen, "rust_notify", lambda: refuse)
    backend = engine(folder(tmp_path), poll_s=0.1)
    backend.commit(commit())
    watcher = Watcher(backend, Topic(Target(SCOPE)))
    watcher.hears("s", lambda: backend.commit(commit()))
    watcher.listener.close()


def test_a_folder_that_is_too_large_is_polled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen, "_FOLDERS_MAX", 3)
    backend = engine(folder(tmp_path), poll_s=0.1)
    for number in range(5):
        backend.commit(commit(ScopeKey(f"s{number}")))
    watcher = Watcher(backend, Topic(prefix="s"))
    watcher.hears("s1", lambda: backend.commit(commit(ScopeKey("s1"))))
    watcher.listener.close()


def test_everything_is_polled_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "_FULL_POLL_S", 0.2)
    backend = engine(folder(tmp_path), poll_s=60)
    backend.commit(commit())
    watcher = Watcher(backend, Topic(Target(SCOPE)))
    watcher.settle()
    begun = time.monotonic()
    while watcher.listener.wait(active=False) is not None:
        pass
    assert time.monotonic() - begun < SOON_S
    watcher.listener.close()


def test_a_folder_that_was_replaced_behind_our_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = engine(folder(tmp_path), poll_s=60)
    backend.commit(commit())
    watcher = Watcher(backend, Topic(session_id="s"))
    watcher.settle()
    session = tmp_path / "sessions" / "s"
    shutil.copytree(session, tmp_path / "other")
    shutil.rmtree(session)
    (tmp_path / "other").rename(session)
    watcher.hears("s", lambda: backend.commit(commit()))
    watcher.listener.close()


# What is left behind


def held() -> tuple[int, int]:
    gc.collect()
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def check_no_more_than(before: tuple[int, int]) -> None:
    until(lambda: not any(map(gt, held(), before)))


@pytest.mark.slow
def test_nothing_is_left_behind(tmp_path: Path) -> None:
    backend = engine(folder(tmp_path))
    backend.commit(commit())
    before = held()
    for _ in range(3):
        watcher = Watcher(backend, Topic(Target(SCOPE)))
        watcher.hears("s", lambda: backend.commit(commit()))
        watcher.listener.follow([Topic(session_id="s"), Topic(Target(ScopeKey("t")))])
        watcher.settle()
        watcher.listener.close()
        watcher.listener.close()
    check_no_more_than(before)


def test_a_child_does_not_use_what_its_parent_hears_by(tmp_path: Path) -> None:
    backend = engine(folder(tmp_path))
    backend.commit(commit())
    watcher = Watcher(backend, Topic(Target(SCOPE)))
    watcher.hears("s", lambda: backend.commit(commit()))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            try:
                watcher.listener.wait(active=False)
            except Unavailable:
                code = 2
            watcher.listener.close()
            del watcher
            gc.collect()
            own = Watcher(backend, Topic(Target(SCOPE)))
            own.hears("s", lambda: backend.commit(commit()))
            backend.read_revisions([Target(SCOPE)])
            own.listener.close()
            code = 0 if code == 2 else 3
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    watcher.hears("s", lambda: backend.commit(commit()))
    watcher.listener.close()


def test_a_closed_watcher_says_so(tmp_path: Path) -> None:
    listener = DirectoryListener(str(tmp_path), poll_s=1, clock=CLOCK)
    listener.follow([KeyPrefix("")])
    while listener._watch is None:
        listener.wait(active=False)
    listener._watch.close()
    with pytest.raises(Unavailable):
        listener.wait(active=False)
    listener.close()


# What a look costs, and tells


def marks(backend: Engine, *targets: Target) -> list[str | None]:
    return backend.read_revisions(targets)


def test_marks_are_revisions(bucket: Bucket) -> None:
    writer, reader = engine(bucket), engine(bucket)
    targets = [Target(SCOPE), Target(SCOPE, "a"), Target(SCOPE, "b"), Target(ScopeKey("none"))]
    seen: list[list[str | None]] = []

    def step(act: Callable[[], object]) -> None:
        act()
        infos = [writer.read_info(*target) for target in targets]
        expected = [None if info is None else info.revision for info in infos]
        for _ in range(2):
            assert reader.read_revisions(targets) == expected
        assert engine(bucket).read_revisions(targets) == expected
        seen.append(expected)

    def update(id: str, status: str) -> None:
        info = writer.read_info(SCOPE, id)
        assert info is not None
        writer.commit(commit(id=id, replaces=info.revision)._replace(status=status))

    step(lambda: None)
    step(lambda: writer.commit(commit(id="a")))
    step(lambda: writer.commit(commit(id="b")))
    step(lambda: update("a", "one"))
    step(lambda: update("b", "two"))
    step(lambda: writer.commit(commit(id="b", overwrite=True, parent=None)._replace(status="3")))
    step(lambda: writer.commit(commit(keep=False)))
    step(lambda: writer.delete_snapshots(SCOPE, ["b"]))
    step(lambda: delete_head(writer))
    step(lambda: update("a", "what is shown now"))
    step(lambda: writer.claim(Claim(SCOPE, "k", "me", 10**7, draw())))
    step(lambda: writer.delete_snapshots(SCOPE, ["a"]))
    step(lambda: writer.commit(commit(id="a")))
    step(lambda: writer.delete_session("s"))
    assert seen[0] == seen[-1] == [None] * 4
    assert len({mark for row in seen for mark in row}) > 8


def delete_head(writer: Engine) -> None:
    info = writer.read_info(SCOPE, None)
    assert info is not None
    writer.delete_snapshots(SCOPE, [info.id])


def test_one_that_is_damaged_does_not_stop_the_others(bucket: Bucket) -> None:
    writer, reader = engine(bucket), engine(bucket)
    fine = writer.commit(commit(ScopeKey("fine"))).revision
    writer.commit(commit(id="x"))
    targets = [Target(SCOPE), Target(ScopeKey("fine")), Target(SCOPE, "x")]
    told: list[str | None] = []
    for damage in (b"", b"{", b'{"data":'):
        bucket.put(head_key(SCOPE), damage, expect=ANY)
        first, second, _ = reader.read_revisions(targets)
        assert second == fine
        told.append(first)
    assert None not in told
    assert len(set(told)) == 3


def test_a_poll_without_a_change_reads_nothing() -> None:
    bucket = CountingBucket()
    backend = engine(bucket)
    scopes = [ScopeKey(f"s{number}") for number in range(50)]
    for scope in scopes:
        backend.commit(commit(scope))
    targets = [Target(scope) for scope in scopes]
    first = backend.read_revisions(targets)
    bucket.take()
    assert backend.read_revisions(targets) == first
    assert bucket.take() == {"GET": 50}  # by a condition, a byte of each
    backend.commit(commit(scopes[7]))
    assert bucket.take() == {"PUT": 1}
    moved = backend.read_revisions(targets)
    assert [at for at in range(50) if moved[at] != first[at]] == [7]
    assert bucket.take() == {"GET": 51}
