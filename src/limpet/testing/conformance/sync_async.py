"""Chapter: sync and async API of one opened store: `aio`, `sync`, `run`, closing, real tasks."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from limpet import (
    JSON,
    AsyncScope,
    AsyncStore,
    Conflict,
    InvalidInput,
    Scope,
    Snapshot,
    SnapshotInfo,
    Store,
)
from limpet.opening import store_over
from limpet.protocol import Backend
from limpet.testing.conformance.comfort import ONLY_IN_ITS_SCOPE
from limpet.testing.conformance.leasing import WRITES
from limpet.testing.kit import (
    ClosedMeanwhile,
    Gated,
    Kit,
    Stores,
    case,
    dump,
    is_durable,
    names,
    present,
)

_OF_A_STORE: dict[str, Callable[[Store], object]] = {
    "find": lambda store: store.find("a"),
    "sessions": lambda store: list(store.sessions()),
    "scopes": lambda store: list(store.scopes()),
    "history of all": lambda store: list(store.history()),
    "compact": lambda store: store.compact(),
    "stats": lambda store: store.stats(),
    "stats of a session": lambda store: store.stats("s"),
    "check": lambda store: list(store.check()),
    "repair": lambda store: list(store.repair()),
    "delete_session": lambda store: store.delete_session("s"),
    "leaves": lambda store: list(store.scope("s").leaves()),
    "save a repetition": lambda store: store.scope("s").save(1, id="a"),
}


def _with_async_api(backend: Backend, use: Callable[[AsyncStore], Awaitable[None]]) -> None:
    async def main() -> None:
        async with store_over(backend).aio as aio:
            await use(aio)

    asyncio.run(main())


async def _listed(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


class SyncAsync(Kit):
    """One engine behind both APIs."""

    def test_each_api_leads_to_the_other(self, backend: Backend) -> None:
        with store_over(backend) as store:
            assert isinstance(store.aio, AsyncStore)
            assert store.sync is store
            assert store.aio is store.aio
            assert store.aio.aio is store.aio
            assert store.aio.sync is store

    def test_run_does_composite_work_with_the_sync_api(self, backend: Backend) -> None:
        def work(store: Store) -> list[str]:
            scope = store.scope("s")
            scope.save(1, id="a")
            scope.save(2, id="b")
            return names(scope.history())

        def fail(store: Store) -> None:
            raise ZeroDivisionError

        async def use(aio: AsyncStore) -> None:
            assert await aio.run(work) == ["b", "a"]
            assert await aio.run(lambda store: store is aio.sync)
            with pytest.raises(ZeroDivisionError):
                await aio.run(fail)

        _with_async_api(backend, use)

    def test_run_never_holds_the_loop(self, backend: Backend) -> None:
        """Its function runs in another thread on every engine, and may even run out of items."""

        async def use(store: AsyncStore) -> None:
            assert await store.run(lambda _: threading.get_ident()) != threading.get_ident()
            with pytest.raises(RuntimeError, match="StopIteration"):
                await store.run(lambda sync: next(sync.scope("empty").history()))

        _with_async_api(backend, use)

    def test_a_cancelled_close_closes(self, backend: Backend) -> None:
        """It waits behind no other work, and goes on after its caller was cancelled."""
        store = store_over(backend, workers=1)

        async def main() -> None:
            leave = threading.Event()
            busy = asyncio.ensure_future(store.aio.run(lambda _: leave.wait()))
            closing = asyncio.ensure_future(store.aio.close())
            while not busy.done() and not closing.done():
                await asyncio.sleep(0)
                closing.cancel()
            leave.set()
            await busy

        asyncio.run(main())
        with pytest.raises(InvalidInput):
            store.scope("s").load()

    def test_tasks_contend_exactly(self, backend: Backend) -> None:
        async def add(snapshot: Snapshot) -> Snapshot:
            await asyncio.sleep(0)
            return snapshot.with_(state=snapshot.state + 1)

        async def more(value: JSON) -> JSON:
            await asyncio.sleep(0)
            return (value or 0) + 1

        async def use(aio: AsyncStore) -> None:
            scope = aio.scope("s")
            await scope.save(0, id="a")
            tasks: list[Any] = [scope.update("a", add) for _ in range(8)]
            tasks += [scope.set_note("n", more) for _ in range(8)]
            tasks += [aio.scope("t").append("items", [n]) for n in range(8)]
            await asyncio.gather(*tasks)
            assert present(await scope.load("a")).state == 8
            assert present(await scope.note("n")).value == 8
            items = present(await aio.scope("t").load()).state["items"]
            assert sorted(items) == list(range(8))

        _with_async_api(backend, use)

    def test_tasks_have_one_winner(self, backend: Backend) -> None:
        async def use(aio: AsyncStore) -> None:
            scope = aio.scope("s")
            attempts = [scope.save(n, expect=None) for n in range(6)]
            answers = await asyncio.gather(*attempts, return_exceptions=True)
            won = [answer for answer in answers if isinstance(answer, SnapshotInfo)]
            assert len(won) == 1
            assert sum(isinstance(answer, Conflict) for answer in answers) == 5
            assert await _listed(scope.history()) == won

        _with_async_api(backend, use)

    def test_a_cancelled_await_does_not_stop_a_write(self, backend: Backend) -> None:
        gated = Gated(backend)

        async def use(aio: AsyncStore) -> None:
            scope = aio.scope("s")
            task = asyncio.create_task(_saved(scope))
            await asyncio.to_thread(gated.begun.wait, 30)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await scope.info("a") is None
            gated.gate.set()
            await asyncio.to_thread(gated.ended.wait, 30)
            assert present(await scope.load("a")).state == {"n": 1}

        _with_async_api(gated.backend, use)

    def test_arguments_are_read_before_the_first_await(self, backend: Backend) -> None:
        gated = Gated(backend)
        state = {"items": [1]}

        async def use(aio: AsyncStore) -> None:
            scope = aio.scope("s")
            task = asyncio.create_task(_saved(scope, state))
            await asyncio.to_thread(gated.begun.wait, 30)
            state["items"].append(2)
            gated.gate.set()
            await task
            assert present(await scope.load("a")).state == {"items": [1]}

        _with_async_api(gated.backend, use)

    def test_a_blocking_engine_does_not_hold_the_loop(self, backend: Backend) -> None:
        gated = Gated(backend)

        async def use(aio: AsyncStore) -> None:
            task = asyncio.create_task(_saved(aio.scope("s")))
            await asyncio.to_thread(gated.begun.wait, 30)
            assert await aio.scope("t").load() is None
            assert not task.done()
            gated.gate.set()
            assert (await task).id == "a"

        _with_async_api(gated.backend, use)

    def test_use_after_close_is_refused(
        self, backend: Backend, stores: Stores, reopen: Callable[[], Store]
    ) -> None:
        store = stores()
        scope = store.scope("s")
        scope.save(1, id="a")
        before = dump(store)
        store.close()

        verbs: dict[str, Callable[[], object]] = {
            **{name: partial(call, scope, "a") for name, call in ONLY_IN_ITS_SCOPE.items()},
            **{name: partial(write, scope) for name, write in WRITES.items()},
            **{name: partial(call, store) for name, call in _OF_A_STORE.items()},
        }
        for name, verb in verbs.items():
            with case(name), pytest.raises(InvalidInput):
                verb()
        if is_durable(backend):
            assert dump(reopen()) == before

    def test_close_may_be_repeated(self, store: Store, scope: Scope) -> None:
        with pytest.raises(ZeroDivisionError), store:
            _ = scope.save(1).size / 0
        store.close()

        with pytest.raises(InvalidInput):
            store.__enter__()
        store.close()

    def test_a_close_in_the_middle_of_a_call_is_refused(self, backend: Backend) -> None:
        """A call that was already let in when another thread closed the store: InvalidInput."""
        closing = ClosedMeanwhile(backend)
        store = store_over(closing.backend)

        async def main() -> None:
            scope = store.aio.scope("s")
            await scope.save(1)
            closing.close_in_between = store.close
            with pytest.raises(InvalidInput):
                await scope.save(2)

        asyncio.run(main())

    def test_one_close_for_both_apis(self, backend: Backend) -> None:
        store = store_over(backend)

        async def main() -> None:
            aio = store.aio
            await aio.scope("s").save(1)
            store.close()
            with pytest.raises(InvalidInput):
                await aio.scope("s").load()
            with pytest.raises(InvalidInput):
                await _listed(aio.sessions())
            with pytest.raises(InvalidInput):
                await aio.run(lambda store: 1)
            await aio.close()

        asyncio.run(main())


async def _saved(scope: AsyncScope, state: JSON = None) -> SnapshotInfo:
    return await scope.save({"n": 1} if state is None else state, id="a")
