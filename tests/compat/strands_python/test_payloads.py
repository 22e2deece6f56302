"""A snapshot of one SDK in the words of the other, and back."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet import InvalidInput, Unsupported
from limpet.compat.strands.dialects.payloads import BRIDGE, dialect_of, to_python, to_typescript
from tests.compat.strands_python import documents
from tests.compat.strands_python.agents import FIXTURES

SNAPSHOTS = sorted(FIXTURES.rglob("snapshot_*.json"))
TYPESCRIPT: dict[str, Any] = {
    "scope": "agent",
    "schemaVersion": "1.0",
    "createdAt": "2026-11-15T00:09:36.272Z",
    "data": {},
    "appData": {"mine": 1},
}
TEAM: dict[str, Any] = {
    **TYPESCRIPT,
    "scope": "multiAgent",
    "data": {
        "orchestratorId": "team",
        "state": {
            "startTime": 1,
            "steps": 1,
            "results": [],
            "app": {},
            "nodes": {"a": {"status": "COMPLETED"}, "b": {"status": "PENDING"}},
        },
    },
}


def whole(data: dict[str, Any]) -> dict[str, Any]:
    return {**TYPESCRIPT, "data": data}


def encoded(data: str) -> dict[str, Any]:
    return {"__bytes_encoded__": True, "data": data}


def there_and_back(wire: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    if dialect_of(wire) == "typescript":
        there = to_python(wire)
        return there, to_typescript(there)
    there = to_typescript(wire)
    return there, to_python(there)


@pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda path: f"{path.parts[-8]}-{path.stem}")
def test_real_snapshots_come_back_byte_for_byte(path: Path) -> None:
    wire = json.loads(path.read_text())
    there, back = there_and_back(wire)
    assert {dialect_of(wire), dialect_of(there)} == {"typescript", "python"}
    assert json.dumps(back) == json.dumps(wire)
    assert BRIDGE not in json.dumps(there)


@given(documents.typescript | documents.python)
def test_nothing_is_lost_there_and_back(wire: dict[str, Any]) -> None:
    before = deepcopy(wire)
    there, back = there_and_back(wire)
    assert back == wire == before
    assert dialect_of(there) != dialect_of(wire)
    assert to_python(to_python(wire)) == to_python(wire)
    assert to_typescript(to_typescript(wire)) == to_typescript(wire)


WORDS = (
    "messages content interrupts interrupt_state id context reasoning image source bytes "
    "toolResult citations location pendingToolExecution pending_tool_execution stash"
)
ANYTHING = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(WORDS.split()), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(ANYTHING, st.booleans())
def test_whatever_the_data_is_nothing_is_lost(data: Any, is_python: bool) -> None:
    names = ("schema_version", "app_data") if is_python else ("schemaVersion", "appData")
    created = {"created_at" if is_python else "createdAt": "x"}
    wire = {"scope": "agent", names[0]: "1.0", **created, "data": data, names[1]: {}}
    assert there_and_back(wire)[1] == wire


def test_the_words_are_those_of_the_other_sdk() -> None:
    told = to_python(
        whole(
            {
                "messages": [
                    {
                        "role": "assistant",
                        "content": [
                            {"reasoning": {"text": "hm", "signature": "s"}},
                            {"reasoning": {"redactedContent": "AAE="}},
                            {"image": {"format": "png", "source": {"bytes": "iVBORw=="}}},
                            {"video": {"format": "3gp", "source": {"bytes": "AAE="}}},
                            {"cachePoint": {"cacheType": "default"}},
                            {
                                "citations": {
                                    "citations": [{"location": {"type": "searchResult", "end": 1}}],
                                    "content": [],
                                }
                            },
                            {"toolResult": {"content": [{"image": {"source": {"bytes": "AA=="}}}]}},
                        ],
                        "trackingId": "t-1",
                    }
                ],
                "systemPrompt": "short",
                "modelState": {"a": 1},
                "stash": {"location": "external", "storageType": "S3Storage"},
            }
        )
    )
    assert told == {
        "scope": "agent",
        "schema_version": "1.0",
        "created_at": "2026-11-15T00:09:36.272Z",
        "data": {
            "messages": [
                {
                    "role": "assistant",
                    "content": [
                        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
                        {"reasoningContent": {"redactedContent": encoded("AAE=")}},
                        {
                            "image": {
                                "format": "png",
                                "source": {"bytes": encoded("iVBORw==")},
                            }
                        },
                        {
                            "video": {
                                "format": "three_gp",
                                "source": {"bytes": encoded("AAE=")},
                            }
                        },
                        {"cachePoint": {"type": "default"}},
                        {
                            "citationsContent": {
                                "citations": [{"location": {"searchResultLocation": {"end": 1}}}],
                                "content": [],
                            }
                        },
                        {
                            "toolResult": {
                                "content": [{"image": {"source": {"bytes": encoded("AA==")}}}]
                            }
                        },
                    ],
                    "tracking_id": "t-1",
                }
            ],
            "system_prompt": "short",
            "model_state": {"a": 1},
            "stash": {"location": "external", "storage_type": "S3Storage"},
        },
        "app_data": {"mine": 1},
    }


def test_an_interrupt_gets_the_id_that_the_other_sdk_looks_for() -> None:
    asked = json.loads(
        next(each for each in SNAPSHOTS if "demo-interrupt" in str(each)).read_text()
    )
    told = to_python(asked)["data"]
    id = "v1:tool_call:tu-9:5cf56bed-067e-5438-a1ef-dbfa3405e45d"
    record = {"id": id, "name": "approve", "reason": {"why": "dangerous"}, "response": None}
    pending = told["interrupt_state"].pop("pending_tool_execution")
    assert told["interrupt_state"] == {"interrupts": {id: record}, "context": {}, "activated": True}
    assert pending["completed_tool_results"] == []
    assert told["messages"][-1] == pending["assistant_message"]
    assert len(told["messages"]) == len(asked["data"]["messages"]) + 1


def test_what_has_no_words_waits_in_the_bridge() -> None:
    odd = {"id": "tool:tu-1:a", "name": "a", "reason": None, "source": "elsewhere"}
    waiting = {"interrupts": {odd["id"]: odd}, "activated": True}
    wire = whole({"messages": [], "interrupts": waiting})
    told = to_python(wire)
    assert told["app_data"] == {"mine": 1, BRIDGE: {"interrupts": waiting}}
    assert to_typescript(told) == wire
    # What was changed meanwhile counts, and the bridge does not.
    told["data"]["interrupt_state"]["activated"] = False
    assert to_typescript(told)["data"]["interrupts"]["activated"] is False
    message = {"role": "user", "content": [{"news": 1}, {"reasoningContent": {}}]}
    told = to_python(whole({"messages": [message]}))
    assert told["app_data"][BRIDGE] == {"messages/0": message}


def test_a_run_that_has_ended_starts_afresh() -> None:
    told = to_python(TEAM)
    assert told["data"]["orchestrator_id"] == "team"
    assert told["data"]["state"]["next_nodes_to_execute"] == []
    assert to_typescript(told) == TEAM
    ended = {**told, "app_data": {}}
    ended["data"] = {**told["data"], "state": {"type": "swarm", "next_nodes_to_execute": []}}
    there = to_typescript(ended)
    assert there["data"] == {"orchestratorId": "team"}
    assert to_python(there) == ended


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"_pendingInput": "go"}, r"state\._pendingInput"),
        ({"nodes": {"a": {"status": "INTERRUPTED"}}}, r"state\.nodes\.a\.status"),
    ],
)
def test_a_run_that_goes_on_is_refused(more: dict[str, Any], field: str) -> None:
    state = {**TEAM["data"]["state"], **more}
    with pytest.raises(Unsupported, match=f"orchestrator_id=`team` field=`{field}`"):
        to_python({**TEAM, "data": {"orchestratorId": "team", "state": state}})
    running = {"orchestrator_id": "team", "state": {"next_nodes_to_execute": ["b"]}}
    with pytest.raises(Unsupported, match=r"field=`state\.next_nodes_to_execute`"):
        to_typescript({"schema_version": "1.0", "scope": "multiAgent", "data": running})


def test_a_state_without_a_word_around_it_becomes_a_snapshot() -> None:
    assert to_python({"data": {"messages": [], "systemPrompt": None}}) == {
        "data": {"messages": [], "system_prompt": None},
        "scope": "agent",
        "schema_version": "1.0",
        "created_at": "",
        "app_data": {},
    }
    kept = {"messages": [], "interrupt_state": {"interrupts": {}}, "system_prompt": "x"}
    assert to_python({"data": kept})["data"] == kept
    assert dialect_of({"data": {}}) is None
    assert dialect_of([]) is None


@pytest.mark.parametrize("wire", [None, [], {}, {"schemaVersion": "1.0"}])
def test_what_is_no_snapshot_is_refused(wire: Any) -> None:
    for translate in (to_python, to_typescript):
        with pytest.raises(InvalidInput, match="must be an object with data"):
            translate(wire)
