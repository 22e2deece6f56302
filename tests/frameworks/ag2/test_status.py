"""The status of a stream, and its usage, from what AG2 itself writes."""

from typing import Any

from ag2 import Agent, MemoryStream, events
from ag2.testing import TestConfig

import limpet
from limpet.compat.ag2 import LimpetStorage
from tests.frameworks.ag2.test_storage import ALL, STREAM, save
from tests.frameworks.kit import standing

USED = events.Usage(prompt_tokens=10, completion_tokens=4, total_tokens=14)


async def test_status_and_usage(memory: limpet.Store) -> None:
    storage = LimpetStorage(memory)
    question, answer = ALL[-2:]
    await save(storage, *ALL[:3])
    assert standing(memory)[:2] == ("running", False)
    await save(storage, question)
    assert standing(memory)[:2] == ("waiting", True)
    await save(storage, answer)
    assert standing(memory)[:2] == ("running", False)
    done: Any = TestConfig(events.ModelResponse(events.ModelMessage("done"), usage=USED))
    await Agent("a", config=done).ask("hello", stream=MemoryStream(storage, id=STREAM))
    assert standing(memory) == ("completed", False, 14)
