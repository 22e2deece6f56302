"""A store of conversations: Pydantic AI's own, which is the measure, and ours on every engine."""

from collections.abc import Iterator

import pytest
from pydantic_ai.conversation_store import ConversationStore, InMemoryConversationStore

import limpet
from limpet.compat.pydantic_ai import LimpetConversationStore
from tests.effort import slowly
from tests.frameworks.kit import ENGINES, Places

STORES = slowly(("its own", *ENGINES), but=("its own", "memory", "sqlite"))


@pytest.fixture(params=STORES)
def conversations(request: pytest.FixtureRequest, places: Places) -> Iterator[ConversationStore]:
    if request.param == "its own":
        yield InMemoryConversationStore()
        return
    with limpet.open(places.url(request.param)) as store:
        yield LimpetConversationStore(store)
