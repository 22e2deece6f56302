"""What the tests of `LimpetStore` share: both APIs behind one, a clock, and embeddings."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from langgraph.store.base import BaseStore, Op

from limpet import Store
from limpet.compat.langgraph import LimpetStore

DIMS = 26


class Through(BaseStore):
    """Another store, called through its sync or through its async methods."""

    supports_ttl = True

    def __init__(self, store: BaseStore, api: str) -> None:
        self.store = store
        self.ttl_config = store.ttl_config
        self.is_async = api == "async"

    def batch(self, ops: Any) -> list[Any]:
        if self.is_async:
            return asyncio.run(self.store.abatch(ops))
        return self.store.batch(ops)

    async def abatch(self, ops: Any) -> list[Any]:
        return await self.store.abatch(ops)

    def sweep_ttl(self) -> int:
        assert isinstance(self.store, LimpetStore)
        return asyncio.run(self.store.asweep_ttl()) if self.is_async else self.store.sweep_ttl()


class Time:
    """The clock of a store, which a test may put forward."""

    def __init__(self, store: LimpetStore) -> None:
        tools = store._context.tools
        self._draw = tools.draw
        self.minutes = 0.0
        store._context = store._context._replace(tools=tools._replace(draw=self.draw))

    def draw(self) -> Any:
        stamp = self._draw()
        return stamp._replace(now=stamp.now + int(self.minutes * 60_000_000))


def letters(texts: Sequence[str]) -> list[list[float]]:
    """Embed texts by how often each letter is in them."""
    counts = [Counter(text.lower()) for text in texts]
    return [[float(each[chr(97 + at)]) for at in range(DIMS)] for each in counts]


async def aletters(texts: Sequence[str]) -> list[list[float]]:
    """Embed texts as `letters` does."""
    return letters(texts)


def keys(found: Any) -> list[str]:
    return [each.key for each in found]


def put_all(store: BaseStore, namespace: tuple[str, ...], **values: Any) -> None:
    for key, value in values.items():
        store.put(namespace, key, value)


def indexed(store: Store, **config: Any) -> LimpetStore:
    """Return a store with an index of letters."""
    given: Any = {"dims": DIMS, "embed": letters, **config}
    return LimpetStore(store, index=given)


def run(store: BaseStore, *ops: Op) -> list[Any]:
    return store.batch(ops)
