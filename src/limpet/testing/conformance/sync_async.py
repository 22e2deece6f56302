"""Chapter: sync and async API of one opened store: `aio`, `sync`, `run`, closing, real tasks."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
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

_VERBS: dict[str, Callable[[Store, Scope], object]] = {
    "save": lambda store, scope: scope.save(1),
    "save a repetition": lambda store, scope: scope.save(1, id="a"),
    "append": lambda store, scope: scope.append("m", [1]),
    "load": lambda store, scope: scope.load(),
    "load_many": lambda store, scope: list(scope.load_many(["a"])),
    "info": lambda store, scope: scope.info(),
    "history": lambda store, scope: list(scope.history()),
    "ids": lambda store, scope: list(scope.ids()),
    "update": lambda store, scope: scope.update("a", lambda s: s),
    "ancestors": lambda store, scope: list(scope.ancestors("a")),
    "leaves": lambda store, scope: list(scope.leaves()),
    "diff": lambda store, scope: scope.diff("a", "a"),
    "restore": lambda store, scope: scope.restore("a"),
    "fork": lambda store, scope: scope.fork("a"),
    "fork with a function": lambda store, scope: scope.fork("a", patch=lambda state: 2),
    "prune": lambda store, scope: scope.prune(keep_last=0),
    "delete_snapshot": lambda store, scope: scope.delete_snapshot("a"),
    "delete": lambda store, scope: scope.delete(),
    "note": lambda store, scope: scope.note("n"),
    "notes": lambda store, scope: list(scope.notes()),
    "noted_ids": lambda store, scope: list(scope.noted_ids()),
    "set_note": lambda store, scope: scope.set_note("n", 1),
    "set_note with a function": lambda store, scope: scope.set_note("n", lambda v: 1),
    "delete_note": lambda store, scope: scope.delete_note("n"),
    "find": lambda store, scope: store.find("a"),
    "sessions": lambda store, scope: list(store.sessions()),
    "scopes": lambda store, scope: list(store.scopes()),
    "history of all": lambda store, scope: list(store.history()),
    "compact": lambda store, scope: store.compact(),
    "stats": lambda store, scope: store.stats(),
    "stats of a session": lambda store, scope: store.stats("s"),
    "check": lambda store, scope: list(store.check()),
    "repair": lambda store, scope: list(store.repair()),
    "delete_session": lambda store, scope: store.delete_session("s"),
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

        for name, verb in _VERBS.items():
            with case(name), pytest.raises(InvalidInput):
                verb(store, scope)
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
