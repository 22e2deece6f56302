"""Scenes with `os.fork` in a process of their own, which talks to a test in lines of JSON.

A child ends by `os._exit`, as after a real fork, and an alarm ends one that hangs.
"""

import asyncio
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import limpet
from limpet import AsyncStore, Store
from limpet.backends.sqlite.transaction import WRITE

CHILD_S_MAX = 300
FORK_S_MAX = 300


def say(message: Any) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def hear() -> Any:
    return json.loads(sys.stdin.readline())


def save(store: Store, name: str, count: int) -> None:
    """Save into a scope of one's own, and read back each time."""
    scope = store.scope("s", name)
    begin = sum(1 for _ in scope.ids())
    for number in range(begin, begin + count):
        scope.save({"n": number}, id=f"{number:04}")
        found = scope.load()
        assert found is not None
        assert found.state == {"n": number}


def fork(work: Callable[[], None]) -> int:
    """Do some work in a child; return its process id."""
    pid = os.fork()
    if pid:
        return pid
    signal.alarm(CHILD_S_MAX)
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def join(pid: int) -> None:
    _, status = os.waitpid(pid, 0)
    ended = os.waitstatus_to_exitcode(status)
    assert ended != -signal.SIGALRM, "the child hung"
    assert ended == 0, f"the child failed: {ended}"


def use_many_connections(store: Store, count: int = 4) -> None:
    """Leave several idle connections in the pool."""
    begin = threading.Barrier(count)

    def work(number: int) -> None:
        begin.wait()
        save(store, f"thread-{number}", 5)

    in_threads(work, count)


def in_threads(work: Callable[[int], None], count: int) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def both_go_on(store: Store) -> None:
    """Parent and child write at the same time, after a fork with idle connections.

    It harms neither that a child closes the store, nor that it just ends, nor that its parent does.
    """
    use_many_connections(store)
    save(store, "parent", 10)

    def work() -> None:
        save(store, "child", 20)
        store.close()

    child = fork(work)
    save(store, "parent", 15)
    join(child)
    join(fork(lambda: save(store, "child", 10)))
    save(store, "parent", 15)
    to_child, to_parent = os.pipe(), os.pipe()

    def outlive() -> None:
        save(store, "child", 1)
        os.write(to_parent[1], b".")
        os.read(to_child[0], 1)
        save(store, "child", 9)

    child = fork(outlive)
    os.read(to_parent[0], 1)
    store.close()
    os.write(to_child[1], b".")
    join(child)


def parent_ends(store: Store) -> None:
    """The child goes on when the parent is gone, and a process opens the file meanwhile."""
    save(store, "parent", 40)

    def work() -> None:
        save(store, "child", 20)
        say("child")
        assert hear() == "go on"
        save(store, "child", 20)
        say("done")

    fork(work)
    os._exit(0)


def threads_are_writing(store: Store) -> None:
    """Children are made at any moment of other threads' calls, and write in threads themselves."""
    stop = threading.Event()
    counts = [0] * 4

    def write(number: int) -> None:
        while not stop.is_set():
            save(store, f"thread-{number}", 1)
            counts[number] += 1

    def work() -> None:
        in_threads(lambda number: save(store, f"child-{os.getpid()}-{number}", 5), 2)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(len(counts))]
    for thread in threads:
        thread.start()
    try:
        children = []
        for _ in range(12):
            children.append(fork(work))
            join(children[-1])
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    for number, count in enumerate(counts):
        check(store, f"thread-{number}", count)
    for pid in children:
        check(store, f"child-{pid}-0", 5)
        check(store, f"child-{pid}-1", 5)


def threads_fork(store: Store) -> None:
    """Two threads fork at the same time, while others write."""
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            store.scope("s", "busy").save({}, keep=False)

    def fork_often(number: int) -> None:
        for turn in range(20):
            join(fork(lambda turn=turn: save(store, f"child-{number}-{turn}", 2)))  # type: ignore[misc]

    writer = threading.Thread(target=write)
    writer.start()
    try:
        in_threads(fork_often, 2)
    finally:
        stop.set()
        writer.join()
    for number in range(2):
        for turn in range(20):
            check(store, f"child-{number}-{turn}", 2)


def long_transaction(store: Store) -> None:
    """A fork does not wait for long; its child refuses to use a file that it cannot lock."""
    file = store.driver.opened.backend.storage._file  # type: ignore[attr-defined]
    begun, ended = threading.Event(), threading.Event()

    def write() -> None:
        def wait(conn: Any, _: None) -> None:
            begun.set()
            ended.wait()

        file.run(WRITE, wait, None)

    def work() -> None:
        for use in (store, limpet.open):
            try:
                save(store if use is store else limpet.open(sys.argv[2]), "child", 1)
            except limpet.Unavailable:
                continue
            raise AssertionError("the child wrote without a lock")

    thread = threading.Thread(target=write)
    thread.start()
    begun.wait()
    start = time.monotonic()
    child = fork(work)
    assert time.monotonic() - start < FORK_S_MAX
    ended.set()
    thread.join()
    join(child)
    save(store, "parent", 10)
    join(fork(lambda: save(store, "child", 10)))


def async_face(store: Store) -> None:
    """A child runs an event loop of its own over the store whose pool the parent has used."""

    async def work(aio: AsyncStore, name: str) -> None:
        scope = aio.scope("s", name)
        await asyncio.gather(*(scope.append("items", [n]) for n in range(20)))
        found = await scope.load()
        assert found is not None
        assert sorted(found.state["items"]) == list(range(20))

    asyncio.run(work(store.aio, "before"))

    def in_child() -> None:
        asyncio.run(work(store.aio, "in child"))
        asyncio.run(store.aio.close())

    child = fork(in_child)
    asyncio.run(work(store.aio, "in parent"))
    join(child)
    asyncio.run(work(store.aio, "after"))


def check(store: Store, name: str, count: int) -> None:
    """See that exactly what was acknowledged is there, in order."""
    scope = store.scope("s", name)
    assert [info.id for info in scope.history()] == [f"{n:04}" for n in reversed(range(count))]
    states = [found.state for found in scope.load_many(scope.ids())]
    assert states == [{"n": number} for number in range(count)]


SCENES: dict[str, Callable[[Store], None]] = {
    scene.__name__: scene
    for scene in (
        both_go_on,
        parent_ends,
        threads_are_writing,
        threads_fork,
        long_transaction,
        async_face,
    )
}


def main() -> None:
    scene, url = sys.argv[1:]
    with limpet.open(url) as store:
        SCENES[scene](store)
    say("done")


if __name__ == "__main__":
    main()
