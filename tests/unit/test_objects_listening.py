"""Watching over a bucket: what is reported, what a poll costs, what is left behind."""

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import watchfiles

from limpet import ScopeKey, opening
from limpet.backends.buckets.directory import listen
from limpet.backends.buckets.protocol import Bucket
from limpet.backends.objects import keys
from limpet.backends.objects.watching import ObjectListener
from limpet.backends.support.polling import Poller
from limpet.engine import Engine
from limpet.model import ANY
from limpet.opening import draw
from limpet.protocol import Clock, Commit, Target, Topic
from tests.buckets.counting import CountingBucket
from tests.buckets.opened import engine_on
from tests.cases import for_each

SCOPE = ScopeKey("s", "main", "agent")
LONG = ScopeKey("É" * 400, "Ö" * 400)
SOON_S = 300.0  # a busy machine is no failure


def folder(path: Path) -> Bucket:
    return opening.open_files(f"file://{path}", sync=False)


def engine(bucket: Bucket, *, poll_s: float = 0.2) -> Engine:
    return engine_on(bucket, poll_s=poll_s)


def commit(scope: ScopeKey = SCOPE, **facts: Any) -> Commit:
    return Commit(scope, b'{"x":1}', "completed", b"{}", b"{}", draw(), **facts)


class Watcher:
    """Follows topics as `watch` does: wait until something is reported, then read."""

    def __init__(self, backend: Engine, *topics: Topic) -> None:
        self.backend = backend
        self.listener = backend.listen()
        self.listener.follow(topics)

    def __enter__(self) -> "Watcher":
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.close()

    def notices(self, *commits: Commit) -> None:
        for each in commits:
            self.notices_that(each.scope.session_id, lambda each=each: self.backend.commit(each))  # type: ignore[misc]

    def notices_that(self, session_id: str, act: Callable[[], object]) -> None:
        self.settle()
        begun, done = threading.Event(), list[float]()

        def run() -> None:
            begun.set()
            act()
            done.append(time.monotonic())

        thread = threading.Timer(0.05, run)
        thread.start()
        while True:
            reported = self.listener.wait(active=False)
            if begun.is_set() and (reported is None or session_id in reported):
                break
        reported_s = time.monotonic()
        thread.join()
        assert reported_s - done[0] < SOON_S

    def settle(self) -> None:
        """Let what was reported before pass."""
        ends = time.monotonic() + 0.15
        while time.monotonic() < ends:
            timer = threading.Timer(0.05, self.listener.wake)
            timer.start()
            self.listener.wait(active=False)
            timer.join()


def test_changes_are_noticed(tmp_path: Path) -> None:
    """Of scopes and sessions that are there, that come, and whose names are long."""
    backend = engine(folder(tmp_path), poll_s=6000)
    with Watcher(backend, Topic(Target(SCOPE))) as watcher:
        watcher.notices(commit(), commit(keep=False))
        watcher.notices_that("s", lambda: backend.delete_session("s"))
        watcher.notices(commit())
    with Watcher(backend, Topic(id="x")) as watcher:
        watcher.notices(commit(id="x", head=False))
        watcher.listener.follow([Topic(id="x"), Topic(Target(SCOPE, "x"))])
        watcher.notices_that("s", lambda: backend.delete_snapshots(SCOPE, ["x"]))
    for topic in (Topic(Target(LONG)), Topic()):
        with Watcher(backend, topic) as watcher:
            watcher.notices(commit(LONG))
    scopes = [ScopeKey(f"s{number}") for number in range(20)]
    with Watcher(backend) as watcher:
        for count in range(1, 21):
            watcher.listener.follow([Topic(Target(scope)) for scope in scopes[:count]])
        watcher.notices(commit(scopes[0]), commit(scopes[19]))
        watcher.listener.follow([Topic(Target(scopes[3]))])
        watcher.notices(commit(scopes[3]))


class Reporting:
    """The listener of a bucket that reports what it is given."""

    def __init__(self, *reported: frozenset[str] | None) -> None:
        self.reported = list(reported)

    def wait(self, *, active: bool) -> frozenset[str] | None:
        return self.reported.pop(0)

    def follow(self, topics: object) -> None:
        pass

    wake = close = lambda self: None


def test_sessions_are_recognized_by_their_keys() -> None:
    """Segments and pages of notes are not watched; None means that anything may have changed."""
    part = "1.2.after-3"
    cases: list[tuple[set[str] | None, set[str] | None]] = [
        ({keys.head_key(SCOPE), keys.head_key(ScopeKey("t"))}, {"s", "t"}),
        ({keys.session_prefix("s") + "scopes"}, {"s"}),
        ({keys.head_key(LONG)}, {LONG.session_id}),
        ({keys.head_key(ScopeKey("Ä" * 400))}, None),
        ({"sessions"}, None),
        ({".limpet/index/x"}, None),
        (set(), set()),
        (None, None),
    ]
    unwatched = frozenset(
        {keys.segment_key(SCOPE, part), keys.page_key(SCOPE, part), keys.started_key(SCOPE, "1")}
    )
    for reported, expected in cases:
        given = None if reported is None else frozenset(reported)
        listener = ObjectListener(Reporting(unwatched, given))
        listener.follow([Topic(Target(LONG))])
        assert listener.wait(active=False) == expected, reported


# How soon


@for_each("jitter", [0.0, 0.5, 1.0])
def test_pauses_grow_and_are_bounded(monkeypatch: pytest.MonkeyPatch, jitter: float) -> None:
    poller = Poller(
        first_s=0.1, poll_s=1.0, clock=Clock(lambda: 0.0, lambda _: None, lambda: jitter)
    )
    pauses: list[float] = []
    monkeypatch.setattr(poller, "sleep", pauses.append)
    for active in (True, False, False, False, False, False, True, False):
        assert poller.wait(active=active) is None
    for _ in range(2):  # a wake does not lengthen the pause
        poller.wake()
        assert poller.wait(active=True) == frozenset()
    whole = [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 0.1, 0.2, 0.1, 0.1]
    assert pauses == pytest.approx([pause * (1 - jitter / 4) for pause in whole])


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


def refuse(*_: object) -> None:
    raise OSError("no room for another watch")


@for_each(
    "name, value",
    [
        ("rust_notify", lambda: None),  # it is not installed
        ("rust_notify", lambda: refuse),
        ("_FOLDERS_MAX", 3),  # the folder is too large
    ],
)
def test_without_a_watch_there_are_polls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: Any
) -> None:
    monkeypatch.setattr(listen, name, value)
    backend = engine(folder(tmp_path), poll_s=0.1)
    for number in range(5):
        backend.commit(commit(ScopeKey(f"s{number}")))
    with Watcher(backend, Topic(prefix="s")) as watcher:
        watcher.notices(commit(ScopeKey("s1")))


def test_everything_is_polled_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "_FULL_POLL_S", 0.2)
    backend = engine(folder(tmp_path), poll_s=6000)
    backend.commit(commit())
    with Watcher(backend, Topic(Target(SCOPE))) as watcher:
        watcher.settle()
        begun = time.monotonic()
        while watcher.listener.wait(active=False) is not None:
            pass
        assert time.monotonic() - begun < SOON_S


def test_a_folder_that_was_replaced_by_another(tmp_path: Path) -> None:
    backend = engine(folder(tmp_path), poll_s=6000)
    backend.commit(commit())
    with Watcher(backend, Topic(session_id="s")) as watcher:
        watcher.settle()
        session = tmp_path / "sessions" / "s"
        shutil.copytree(session, tmp_path / "other")
        shutil.rmtree(session)
        (tmp_path / "other").rename(session)
        watcher.notices(commit())


# What a poll costs, and tells


@pytest.fixture
def bucket() -> CountingBucket:
    return CountingBucket()


def test_one_that_is_damaged_does_not_stop_the_others(bucket: CountingBucket) -> None:
    writer, reader = engine(bucket), engine(bucket)
    fine = writer.commit(commit(ScopeKey("fine"))).revision
    writer.commit(commit(id="x"))
    found: set[str | None] = set()
    for damage in (b"", b"{", b'{"data":'):
        bucket.put(keys.head_key(SCOPE), damage, expect=ANY)
        targets = [Target(SCOPE), Target(ScopeKey("fine")), Target(SCOPE, "x")]
        first, second, _ = reader.read_revisions(targets)
        assert second == fine
        found.add(first)
    assert len(found - {None}) == 3


def test_a_poll_without_a_change_reads_nothing(bucket: CountingBucket) -> None:
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
