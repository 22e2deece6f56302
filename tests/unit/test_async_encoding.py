"""The async API: a large value is encoded off the event loop, and asyncio is needed."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import runs
from limpet.api.store import AsyncStore
from limpet.core import codec
from limpet.errors import Unsupported

ROWS = [{"id": number, "name": "row", "score": number / 7} for number in range(60_000)]
SMALL = {"messages": [{"role": "user", "content": [{"text": "x" * 2_000}]}] * 20}


async def _step(store: AsyncStore) -> None:
    async with runs.start(store, "run") as run:
        await run.step({"rows": ROWS})


async def _update(store: AsyncStore) -> None:
    info = await store.scope("u").save({})
    await store.scope("u").update(info.id, lambda before: before.with_(state=ROWS))


async def _fork(store: AsyncStore) -> None:
    info = await store.scope("f").save({})
    await store.scope("f").fork(info.id, patch={"rows": ROWS})


WRITES: dict[str, Callable[[AsyncStore], Coroutine[Any, Any, Any]]] = {
    "save": lambda store: store.scope("s").save({"rows": ROWS}),
    "append": lambda store: store.scope("a").append("rows", ROWS),
    "set_note": lambda store: store.scope("n").set_note("rows", ROWS),
    "a run's step": _step,
    "update": _update,
    "fork": _fork,
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_large_value_is_not_encoded_in_the_loop(
    write: Callable[[AsyncStore], Coroutine[Any, Any, Any]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    threads: list[bool] = []
    levels = codec._levels

    def watched(value: Any, what: str, bytes_max: int) -> Any:
        if codec.is_large(value):
            threads.append(_in_loop())
        return levels(value, what, bytes_max)

    monkeypatch.setattr(codec, "_levels", watched)

    async def main() -> None:
        async with limpet.open_async(f"sqlite:///{tmp_path}/a.db") as store:
            await write(store)

    asyncio.run(main())
    assert threads
    assert not any(threads)


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def test_what_is_large() -> None:
    assert not codec.is_large(SMALL)
    assert codec.is_large({"rows": ROWS})
    assert codec.is_large(["x" * 10_000_000])
    begun_s = time.process_time()
    shared: Any = [1]
    for _ in range(30):
        shared = [shared] * 10
    assert codec.is_large(shared)
    assert time.process_time() - begun_s < 10


def test_a_small_value_may_be_changed_as_soon_as_the_call_has_begun() -> None:
    async def main() -> Any:
        async with limpet.open_async("memory:") as store:
            state = {"n": 1}
            saving = asyncio.create_task(store.scope("s").save(state))
            await asyncio.sleep(0)
            state["n"] = 2
            await saving
            return await store.scope("s").load()

    assert asyncio.run(main()).state == {"n": 1}


def test_without_asyncio_the_error_says_what_is_needed(tmp_path: Path) -> None:
    """As under trio, which runs coroutines without an asyncio loop."""
    store = limpet.open_async(f"sqlite:///{tmp_path}/a.db")
    for call in (store.scope("s").save({}), anext(store.scope("s").watch()), store.close()):
        with pytest.raises(Unsupported, match="anyio on asyncio"):
            call.send(None)  # type: ignore[union-attr]
    store.sync.close()
