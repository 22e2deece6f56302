"""The status of a workflow, from what Agent Framework itself writes."""

import limpet
from limpet.compat.agent_framework import LimpetCheckpointStorage
from limpet.views import overview
from tests.frameworks.agent_framework.test_workflows import NAME, workflow
from tests.frameworks.kit import standing


async def test_status(memory: limpet.Store) -> None:
    await workflow(LimpetCheckpointStorage(memory, "done")).run(4)
    assert standing(memory, "done")[:2] == ("completed", False)
    scope = memory.scope("done", NAME, "workflow")
    *_, begun = (overview.status_of(memory, each) for each in scope.load_many([*scope.history()]))
    assert begun == "running"
    await workflow(LimpetCheckpointStorage(memory, "asks")).run(12)
    assert standing(memory, "asks")[:2] == ("waiting", True)
