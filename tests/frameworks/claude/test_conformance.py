"""The SDK's own suite for session stores, with every optional method."""

from itertools import product

import pytest
from claude_agent_sdk.testing import run_session_store_conformance

import limpet
from limpet.compat.claude import LimpetClaudeStore
from tests.effort import slowly
from tests.frameworks.kit import ENGINES, FAST, Places

EACH = [f"{engine}-{api}" for api, engine in product(("sync", "async"), ENGINES)]
QUICK = [*(f"{engine}-sync" for engine in FAST), "memory-async"]


@pytest.mark.parametrize("which", slowly(EACH, but=QUICK))
async def test_the_14_contracts(which: str, places: Places) -> None:
    engine, _, api = which.partition("-")
    asked = 0
    with limpet.open(places.url(engine)) as store:

        def empty() -> LimpetClaudeStore:
            nonlocal asked
            asked += 1
            for session_id in list(store.sessions()):
                store.delete_session(session_id)
            return LimpetClaudeStore(store.aio if api == "async" else store)

        await run_session_store_conformance(empty)
    assert asked == 15  # for each contract, and to see which methods there are: none is skipped
