"""Scenes of a watch in a process of its own that forks."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

import limpet
from limpet import SnapshotInfo, Store
from tests.concurrency.forker import fork, join
from tests.waiting import WAIT_S_MAX


def hears(watch: Iterator[SnapshotInfo], revision: str) -> None:
    """Read on until a revision is heard of; an alarm ends what waits for ever."""
    for info in watch:
        if info.revision == revision:
            return
    raise AssertionError("the watch ended")


def fork_in_a_loop(store: Store) -> None:
    """A child goes on with the watch, and begins one of its own; its parent goes on too."""
    scope = store.scope("s")
    first = scope.save({"n": 1})
    watch = scope.watch()
    hears(watch, first.revision)
    other = store.scope("other").watch()
    read, write = os.pipe()

    def child() -> None:
        own = store.scope("s").watch()
        hears(own, first.revision)
        os.write(write, b".")
        for each in (watch, own):
            second = next(each)
            assert second.revision != first.revision
        saved = store.scope("other").save({"by": "child"})
        hears(store.scope("other").watch(), saved.revision)
        store.close()

    pid = fork(child)
    os.read(read, 1)
    second = scope.save({"n": 2})
    hears(watch, second.revision)
    next(other)  # what the child saved
    join(pid)
    third = scope.save({"n": 3})
    hears(watch, third.revision)


def fork_beside_watchers(store: Store) -> None:
    """Children of a process in which threads watch and hold leases: none hangs, none disturbs."""
    scope = store.scope("s")
    first = scope.save({"n": 0})
    seen: list[str] = []
    told = seen.append

    def follow() -> None:
        for info in scope.watch():
            told(info.revision)

    for _ in range(4):
        threading.Thread(target=follow, daemon=True).start()
    while len(seen) < 4:
        time.sleep(0.01)

    def child() -> None:
        hears(store.scope("s").watch(), first.revision)
        with store.scope("c").claim(owner="child", ttl_s=5, wait_s=WAIT_S_MAX) as lease:
            lease.save({"by": os.getpid()})

    with scope.claim(owner="parent", ttl_s=1) as lease:
        for pid in [fork(child) for _ in range(5)]:
            join(pid)
        time.sleep(1.2)  # longer than it lasts: it must have been renewed here
        last = lease.save({"n": 1}).revision
    while seen.count(last) < 4:
        time.sleep(0.01)
    assert len(list(store.scope("c").history())) == 5


SCENES = {scene.__name__: scene for scene in (fork_in_a_loop, fork_beside_watchers)}


if __name__ == "__main__":
    signal.alarm(300)
    with limpet.open(sys.argv[2]) as opened:
        SCENES[sys.argv[1]](opened)
    assert not [each for each in threading.enumerate() if each.name.startswith("limpet")]
