"""Sessions of Google's Agent Development Kit as chats."""

from limpet.model import JSON
from limpet.views.chat import read_chat
from limpet.views.chat.model import Answer, Call, ChatTurn, Result, Text, Value
from tests.views.chat_kit import chat_of

NOTHING: dict[str, JSON] = {"state_delta": {}, "artifact_delta": {}, "requested_auth_configs": {}}


def event(author: str, *parts: JSON, **more: JSON) -> JSON:
    role = "user" if author == "user" else "model"
    return {
        "content": {"role": role, "parts": list(parts)},
        "author": author,
        "actions": NOTHING,
        "invocation_id": "e-1",
        "id": "0198",
        "timestamp": 1794973106.88,
        "node_info": {"path": ""},
        "usage_metadata": {"total_token_count": 7},
        **more,
    }


def turns_of(*events: JSON, **state: JSON) -> list[ChatTurn]:
    chat = chat_of({"state": state, "events": list(events)})
    assert (chat.shape, chat.path) == ("adk", "/events")
    return list(chat.turns)


def test_who_said_what() -> None:
    assert turns_of(
        event("user", {"text": "hello"}),
        event("guide", {"text": "let me see", "thought": True}, {"text": "hi"}),
    ) == [
        ChatTurn("user", None, (Text("hello"),), 0),
        ChatTurn("assistant", "guide", (Text("let me see", thinking=True), Text("hi")), 1),
    ]


def test_the_result_of_a_tool_is_in_its_call() -> None:
    call = {"id": "c1", "name": "weather", "args": {"city": "Lisbon"}}
    response = {"id": "c1", "name": "weather", "response": {"sky": "blue"}}
    assert turns_of(
        event("guide", {"function_call": call}),
        event("guide", {"function_response": response}),
    ) == [
        ChatTurn(
            "assistant",
            "guide",
            (Call("weather", {"city": "Lisbon"}, "c1", Result((Value({"sky": "blue"}),))),),
            0,
        )
    ]


def test_an_event_that_says_and_changes_nothing_is_left_out() -> None:
    """Such as the one that an agent ends with: the last message is the one before it."""
    found = turns_of(
        event("user", {"text": "hello"}),
        event("guide", content=None),
        event("guide", {"text": "hi"}),
        event("guide"),
    )
    assert [(turn.index, turn.parts) for turn in found] == [
        (0, (Text("hello"),)),
        (2, (Text("hi"),)),
    ]


def test_an_event_without_words_shows_what_it_did() -> None:
    changed = event("guide", actions={**NOTHING, "state_delta": {"mood": "calm"}}, content=None)
    rewound = event("user", actions={"rewind_before_invocation_id": "e-1"}, content=None)
    failed = event("guide", content=None, error_code="429", error_message="too many")
    assert turns_of(changed, rewound, failed) == [
        ChatTurn("assistant", "guide", (Value({"state_delta": {"mood": "calm"}}),), 0),
        ChatTurn("user", None, (Value({"rewind_before_invocation_id": "e-1"}),), 1),
        ChatTurn(
            "assistant", "guide", (Value({"error_code": "429", "error_message": "too many"}),), 2
        ),
    ]


def test_a_list_in_the_state_of_the_session_is_not_the_chat() -> None:
    history: JSON = [{"role": "user", "content": "another chat"}]
    (turn,) = turns_of(event("user", {"text": "hello"}), messages=history, history=history)
    assert turn.parts == (Text("hello"),)


def test_a_response_without_its_call() -> None:
    (turn,) = turns_of(event("guide", {"function_response": {"name": "f", "response": 1}}))
    assert turn.parts == (Answer("f", None, Result((Value(1),))),)


def test_odd_events_are_shown_too() -> None:
    others: list[JSON] = [
        None,
        7,
        [],
        {"author": 1, "actions": {}},
        {"author": "a", "actions": None},
        {"author": "a", "actions": {"state_delta": 3}, "content": 5},
        {"author": "a", "actions": {}, "content": {"parts": {"text": "x"}}},
        {"author": "a", "actions": {}, "content": {"parts": [None, 1, {"function_call": 2}]}},
        {"author": "a", "actions": {}, "content": ["x"]},
    ]
    for odd in others:
        assert turns_of(event("user", {"text": "hello"}), odd)[0].parts == (Text("hello"),), odd
        assert read_chat({"state": {}, "events": [odd]}) is None or odd, odd
