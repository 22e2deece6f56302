"""A snapshot of the SDK for TypeScript in the words of the one for Python."""

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limpet import InvalidInput, Unsupported
from limpet.compat.strands import dialect_of, to_python
from tests.compat.strands_python.agents import FIXTURES
from tests.effort import times

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


@settings(max_examples=times(25, full=100))
@given(ANYTHING, st.booleans())
def test_any_data_becomes_that_of_python(data: Any, is_agent: bool) -> None:
    """What is translated already stays as it is, and nothing is shared with the argument."""
    wire = {**TYPESCRIPT, "data": data} if is_agent else {"data": data}
    before = deepcopy(wire)
    told = to_python(wire)
    assert dialect_of(told) == "python"
    assert to_python(told) == told
    assert wire == before


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


def test_an_id_that_typescript_does_not_compute_is_kept() -> None:
    names = ["b", "beforeTools:", "x:a", None]
    asked = {
        str(number): {"id": f"hook:beforeTools:{number}", "name": name}
        for number, name in enumerate(names)
    }
    asked["4"] = {"id": "hook:beforeTools:", "name": "beforeTools:"}
    told = to_python(whole({"interrupts": {"interrupts": asked}}))
    assert [*told["data"]["interrupt_state"]["interrupts"]] == [
        each["id"] for each in asked.values()
    ]


def test_a_run_that_has_ended_starts_afresh() -> None:
    told = to_python(TEAM)
    assert told["data"]["orchestrator_id"] == "team"
    assert told["data"]["state"]["next_nodes_to_execute"] == []


def test_a_run_that_goes_on_is_refused() -> None:
    going_on: list[tuple[dict[str, Any], str]] = [
        ({"_pendingInput": "go"}, r"state\._pendingInput"),
        ({"nodes": {"a": {"status": "INTERRUPTED"}}}, r"state\.nodes\.a\.status"),
    ]
    for more, field in going_on:
        data = {"orchestratorId": "team", "state": {**TEAM["data"]["state"], **more}}
        with pytest.raises(Unsupported, match=f"orchestrator_id=`team` field=`{field}`"):
            to_python({**TEAM, "data": data})


def test_what_is_no_snapshot_is_refused() -> None:
    wires: list[Any] = [None, [], {}, {"schemaVersion": "1.0"}]
    for wire in wires:
        with pytest.raises(InvalidInput, match="must be an object with data"):
            to_python(wire)
