"""LangGraph's own suite for checkpointers: all of it, by async methods and by plain ones."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate

from limpet.compat.langgraph import LimpetSaver
from tests.compat.langgraph.kit import Places

TESTS = 81


class Plain(BaseCheckpointSaver[str]):
    """A saver whose async methods are the plain ones of another."""

    def __init__(self, saver: LimpetSaver) -> None:
        super().__init__()
        self._saver = saver

    async def aget_tuple(self, *args: Any, **options: Any) -> Any:
        return self._saver.get_tuple(*args, **options)

    async def alist(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        for found in self._saver.list(*args, **options):
            yield found

    async def aput(self, *args: Any, **options: Any) -> Any:
        return self._saver.put(*args, **options)

    async def aput_writes(self, *args: Any, **options: Any) -> None:
        self._saver.put_writes(*args, **options)

    async def adelete_thread(self, *args: Any, **options: Any) -> None:
        self._saver.delete_thread(*args, **options)

    async def adelete_for_runs(self, *args: Any, **options: Any) -> None:
        self._saver.delete_for_runs(*args, **options)

    async def acopy_thread(self, *args: Any, **options: Any) -> None:
        self._saver.copy_thread(*args, **options)

    async def aprune(self, *args: Any, **options: Any) -> None:
        self._saver.prune(*args, **options)


@pytest.mark.parametrize("face", ["async", "plain"])
def test_the_suite_passes(places: Places, engine: str, face: str) -> None:
    @checkpointer_test(name=f"{engine}-{face}")
    async def savers() -> AsyncIterator[BaseCheckpointSaver[str]]:
        with places.open(engine) as store:
            saver = LimpetSaver(store if face == "plain" else store.aio)
            yield Plain(saver) if face == "plain" else saver

    report = asyncio.run(validate(savers))
    failures = [
        f"{name}: {failure}"
        for name, result in report.results.items()
        for failure in result.failures or []
    ]
    assert failures == []
    assert sum(result.tests_passed for result in report.results.values()) >= TESTS
    assert report.passed_all()
