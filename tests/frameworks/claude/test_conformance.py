"""The SDK's own suite for session stores, with every optional method."""

import limpet
import pytest
from claude_agent_sdk.testing import run_session_store_conformance

from limpet.compat.claude import LimpetSessionStore


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_the_14_contracts(store: limpet.Store, is_async: bool) -> None:
    asked = 0

    def empty() -> LimpetSessionStore:
        nonlocal asked
        asked += 1
        for session_id in list(store.sessions()):
            store.delete_session(session_id)
        return LimpetSessionStore(store.aio if is_async else store)

    await run_session_store_conformance(empty)
    assert asked == 15  # once for each contract, and to see which methods there are: none is skipped
