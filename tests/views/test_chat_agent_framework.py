"""The checkpoints of Microsoft Agent Framework as chats."""

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from limpet.views.chat import Call, Media, Result, Text, read_chat
from limpet.views.chat.reader import other_values
from tests.views.chat_kit import chat_of

MORE: dict[str, Any] = {"additional_properties": {}}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said, **MORE}


MESSAGES: list[Any] = [
    {"type": "message", "role": "user", "contents": [text("Rome?")], **MORE},
    {
        "type": "message",
        "role": "assistant",
        "author_name": "guide",
        "contents": [
            {"type": "text_reasoning", "text": "look it up", **MORE},
            {
                "type": "function_call",
                "call_id": "c1",
                "name": "weather",
                "arguments": '{"in":"Rome"}',
            },
            {"type": "function_call", "call_id": "c2", "name": "map", "arguments": {}},
        ],
        **MORE,
    },
    {
        "type": "message",
        "role": "tool",
        "contents": [
            {
                "type": "function_result",
                "call_id": "c1",
                "result": "sunny",
                "items": [text("sunny")],
            },
            {"type": "function_result", "call_id": "c2", "result": None, "exception": "no map"},
        ],
    },
    {
        "type": "message",
        "role": "assistant",
        "author_name": "guide",
        "contents": [
            text("Go!"),
            {"type": "uri", "uri": "https://x/rome.png", "media_type": "image/png", **MORE},
            {"type": "data", "uri": "data:image/png;base64,YWJj", "media_type": "image/png"},
        ],
    },
]


def checkpoint(messages: Any, executor: str = "guide") -> dict[str, Any]:
    pickled = {"__pickled__": "gAWVBgMAAAA=", "__type__": "agent_framework._types:Message"}
    session = {"type": "session", "session_id": "s", "state": {"in_memory": {"messages": messages}}}
    agent = {"cache": [], "full_conversation": [pickled], "agent_session": session}
    return {
        "workflow_name": "trip",
        "graph_signature_hash": "f76a",
        "messages": {"hear": [pickled]},
        "state": {"_executor_state": {"hear": {"n": 1}, executor: agent}, "mood": "calm"},
        "pending_request_info_events": {},
        "iteration_count": 3,
        "version": "1.0",
    }


def test_the_session_of_an_agent_is_shown() -> None:
    state = checkpoint(MESSAGES)
    before = copy.deepcopy(state)
    chat = chat_of(state)
    assert chat.path == "/state/_executor_state/guide/agent_session/state/in_memory/messages"
    user, called, answered = chat.turns
    assert (user.role, user.parts) == ("user", (Text("Rome?"),))
    assert (called.role, called.name) == ("assistant", "guide")
    assert called.parts == (
        Text("look it up", thinking=True),
        Call("weather", {"in": "Rome"}, "c1", Result((Text("sunny"),), is_error=False)),
        Call("map", {}, "c2", Result((Text("no map"),), is_error=True)),
    )
    said, link, data = answered.parts
    assert said == Text("Go!")
    assert isinstance(link, Media)
    assert isinstance(data, Media)
    assert (link.kind, link.url, data.size) == ("image", "https://x/rome.png", 3)
    assert "state.mood" in dict(other_values(state, chat))
    assert state == before


def test_messages_that_the_workflow_keeps_itself_come_first() -> None:
    state = checkpoint(MESSAGES)
    state["state"]["messages"] = [{"role": "user", "content": "Paris?"}]
    chat = chat_of(state)
    assert chat.path == "/state/messages"


def test_the_longest_session_is_shown_and_names_may_be_odd() -> None:
    state = checkpoint(MESSAGES, "a/b~c")
    other = checkpoint(MESSAGES[:1])["state"]["_executor_state"]["guide"]
    state["state"]["_executor_state"]["other"] = other
    chat = chat_of(state)
    assert (len(chat.turns), chat.path) == (3, "/state/_executor_state")
    assert "state.mood" in dict(other_values(state, chat))


def test_without_messages_there_is_no_chat() -> None:
    others: list[Any] = [[], None, {}, "text", 7]
    for messages in others:
        assert read_chat(checkpoint(messages)) is None, messages


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "contents", "text", "call_id", "result", "uri", "role", "x"]),
            inner | st.sampled_from(["text_reasoning", "function_call", "function_result", "uri"]),
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(JSON_VALUES)
def test_anything_may_be_in_it(messages: Any) -> None:
    for odd in (
        checkpoint(messages),
        checkpoint([messages]),
        checkpoint([{"contents": [messages]}]),
    ):
        chat = read_chat(odd)
        if chat is not None:
            list(other_values(odd, chat))
