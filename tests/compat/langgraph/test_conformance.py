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
        self.saver = saver

    async def alist(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        for found in self.saver.list(*args, **options):
            yield found


def called(name: str) -> Any:
    async def method(self: Plain, *args: Any, **options: Any) -> Any:
        return getattr(self.saver, name)(*args, **options)

    return method


for name in (
    *("get_tuple", "put", "put_writes"),
    *("delete_thread", "delete_for_runs", "copy_thread", "prune"),
):
    setattr(Plain, f"a{name}", called(name))


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
