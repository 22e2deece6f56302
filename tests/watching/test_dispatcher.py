"""One dispatcher for all who watch a store in one process: a thousand, and some that fail."""

import asyncio
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

import limpet
from limpet import AsyncStore, Store
from limpet.api.watching import Subscription
from tests.waiting import WAIT_S_MAX, until
from tests.watching.tools import APIS, Watching, nothing_left, on, watchers

ENGINES = ("sqlite", "directory", "postgres")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often watchers were woken, by the session that they watch."""
    told: Counter[str] = Counter()
    real = Subscription._call

    def call(subscription: Subscription) -> None:
        assert subscription.topic.target is not None
        told[subscription.topic.target.scope.session_id] += 1
        real(subscription)

    monkeypatch.setattr(Subscription, "_call", call)
    return told


@on(*ENGINES, slow=("postgres",))
def test_a_thousand_watchers(url: str, store: Store, told: Counter[str]) -> None:
    """All learn of a change of theirs, and only they are woken."""
    count, threads = 1000, 50
    seen: Counter[str] = Counter()
    scopes = 50

    async def follow(store: AsyncStore, session: str) -> None:
        async for info in store.scope(session).watch():
            assert info.session_id == session
            seen[session] += 1

    async def main() -> None:
        tasks = [asyncio.create_task(follow(store.aio, f"a{n % scopes}")) for n in range(count)]
        for each in first:
            await store.aio.run(lambda store, each=each: store.scope(each).save({"n": 0}))  # type: ignore[misc]
        await _until(lambda: len(seen) == scopes and min(seen.values()) == count // scopes)
        await _until(lambda: all(len(each.seen) == 1 for each in others))
        told.clear()
        for each in changed:
            await store.aio.run(lambda store, each=each: store.scope(each).save({"n": 1}))  # type: ignore[misc]
        await _until(lambda: all(seen[each] == 2 * (count // scopes) for each in changed[:3]))
        await _until(lambda: len(others[7].seen) == 2)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    first = [f"a{number}" for number in range(scopes)] + [f"s{number}" for number in range(threads)]
    changed = ["a3", "a20", "a49", "s7"]
    others = [
        Watching(store, lambda store, n=n: store.scope(f"s{n}").watch())  # type: ignore[misc]
        for n in range(threads)
    ]
    asyncio.run(main())

    assert dict(told) == {"a3": 20, "a20": 20, "a49": 20, "s7": 1}
    assert [each.is_alive() for each in others] == [True] * threads
    store.close()
    for each in others:
        each.wait_for_end()
        assert len(each.seen) == (2 if each is others[7] else 1)


async def _until(condition: Any) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not happen"
        await asyncio.sleep(0.01)


@on(*ENGINES, slow=("postgres",))
@nothing_left()
def test_a_loop_that_is_left_leaves_nothing(url: str) -> None:
    """By either API, at once or after a change, with the others still there or not."""
    with limpet.open(url) as warm:  # what is made once and stays, as a module's own
        assert list(warm.scope("s").watch(timeout_s=0.1)) == []
    for _ in range(3):
        with limpet.open(url) as store:
            saved = store.scope("s").save({"n": 1})
            for info in store.scope("s").watch():
                assert info == saved
                break
            asyncio.run(_look_once(store.aio))
            watch = store.scope("s").watch()
            next(watch)
            abandoned = store.scope("s").watch()
            next(abandoned)
            del abandoned
            until(lambda store=store: watchers(store) == 1)  # type: ignore[misc]
        assert list(watch) == []  # ended with the store


async def _look_once(store: AsyncStore) -> None:
    async for _ in store.scope("s").watch():
        break


@on(*ENGINES, slow=("postgres",))
@nothing_left()
def test_a_task_that_is_cancelled_ends_at_once(url: str) -> None:
    """While it waits for the first, and for a later change; the others go on."""

    async def follow(store: AsyncStore, seen: list[str]) -> None:
        async for info in store.scope("s").watch():
            seen += [info.id]

    async def main() -> None:
        async with limpet.open_async(url) as store:
            early: list[str] = []
            seen: list[str] = []
            tasks = [asyncio.create_task(follow(store, each)) for each in (early, seen, seen)]
            await asyncio.sleep(0)
            await _cancel(tasks[0])
            await store.scope("s").save({"n": 1}, id="one")
            await _until(lambda: seen == ["one", "one"])
            await _cancel(tasks[1])
            await store.scope("s").save({"n": 2}, id="two")
            await _until(lambda: seen == ["one", "one", "two"])
            tasks.append(asyncio.create_task(follow(store, early)))
            await _until(lambda: early == ["two"])
            for each in tasks[2:]:
                await _cancel(each)

    async def _cancel(task: "asyncio.Task[None]") -> None:
        begun = time.monotonic()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert time.monotonic() - begun < WAIT_S_MAX

    with limpet.open(url) as warm:
        assert list(warm.scope("s").watch(timeout_s=0.1)) == []
    asyncio.run(main())


@on(*ENGINES, slow=("postgres",))
def test_one_that_fails_stops_no_other(url: str, store: Store) -> None:
    """A loop whose body raises, an event loop that was closed, a call that raises."""
    scope = store.scope("s")
    first = scope.save({"n": 1})
    good = [Watching(store, lambda store: store.scope("s").watch(), api=api) for api in APIS]
    for each in good:
        each.wait_for(first.revision)

    def fail() -> None:
        for _ in store.scope("s").watch():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    loop = asyncio.new_event_loop()
    watch = store.aio.scope("s").watch()
    loop.run_until_complete(anext(watch))
    loop.close()  # without ending what goes on in it
    second = scope.save({"n": 2})
    for each in good:
        each.wait_for(second.revision)
    assert [each.error for each in good] == [None, None]
    with suppress(RuntimeError):
        asyncio.run(watch.aclose())  # type: ignore[attr-defined]
