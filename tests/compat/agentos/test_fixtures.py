"""What the real AgentOS wrote, read back word for word."""

import json
from pathlib import Path
from typing import Any

from limpet.compat.agentos import Checkpoint, CheckpointStore
from tests.cases import for_each
from tests.compat.agentos.kit import fresh

FIXTURES = Path(__file__).parent / "fixtures"
CHECKPOINTS = sorted(set(FIXTURES.glob("*.json")) - {FIXTURES / "list_metadata.json"})


def text_of(wire: Any) -> str:
    return json.dumps(wire, indent=2, ensure_ascii=False)


@for_each("path", CHECKPOINTS)
async def test_a_checkpoint_comes_back_exactly(checkpoints: CheckpointStore, path: Path) -> None:
    text = path.read_text("utf-8")
    wire = json.loads(text)
    await checkpoints.save(wire)
    for found in (
        await checkpoints.get(wire["id"]),
        await checkpoints.load(wire["runId"], wire["nodeId"]),
    ):
        assert found == Checkpoint.from_json(wire)
        assert text_of(found.to_json()) == text


async def test_the_list_is_that_of_agentos(checkpoints: CheckpointStore) -> None:
    """Under a graph of its own, as the other tests use the same store."""
    expected = json.loads((FIXTURES / "list_metadata.json").read_text("utf-8"))
    graph_id, run_id = fresh("g"), fresh("r")
    prefix = fresh("x")
    for path in FIXTURES.glob("linear_*.json"):
        wire = json.loads(path.read_text("utf-8"))
        id = f"{prefix}-{wire['id']}"
        await checkpoints.save({**wire, "id": id, "graphId": graph_id, "runId": run_id})
    for each in expected:
        each |= {"id": f"{prefix}-{each['id']}", "graphId": graph_id, "runId": run_id}
    found = [each.to_json() for each in await checkpoints.list(graph_id)]
    assert text_of(found) == text_of(expected)
