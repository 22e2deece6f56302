"""The messages of Pydantic AI."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.views.chat import Answer, Call, Chat, ChatTurn, Media, Result, Text, Value, read_chat
from limpet.views.page.chat import News, chat_window

NOW = "2026-11-18T03:38:58.885362Z"
REQUEST = {"timestamp": NOW, "run_id": "r", "conversation_id": "c", "state": "complete"}
RESPONSE = {**REQUEST, "usage": {"input_tokens": 1}, "model_name": "m", "provider_name": "p"}


def request(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"parts": list(parts), "kind": "request", **REQUEST, **more}


def response(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"parts": list(parts), "kind": "response", **RESPONSE, **more}


def part(kind: str, **fields: Any) -> dict[str, Any]:
    return {**fields, "timestamp": NOW, "part_kind": kind, "id": None, "provider_details": None}


def chat_of(*messages: Any) -> Chat:
    chat = read_chat({"messages": list(messages)})
    assert chat is not None
    return chat


def parts_of(*messages: Any) -> list[Any]:
    return [part for turn in chat_of(*messages).turns for part in turn.parts]


def test_a_conversation() -> None:
    call = part("tool-call", tool_name="add", args='{"a": 1}', tool_call_id="1")
    messages = [
        request(
            part("system-prompt", content="be kind"),
            part("user-prompt", content="add"),
            instructions="be short",
        ),
        response(part("thinking", content="hm", signature="x"), part("text", content="ok"), call),
        request(
            part("tool-return", tool_name="add", content=2, tool_call_id="1", outcome="success"),
            part("user-prompt", content="and?"),
            instructions="be short",
        ),
        response(part("text", content="two"), finish_reason="stop", state="interrupted"),
    ]
    expected = Chat(
        "pydantic_ai",
        "/messages",
        (
            ChatTurn("system", None, (Text("be short"), Text("be kind")), 0),
            ChatTurn("user", None, (Text("add"),), 0),
            ChatTurn(
                "assistant",
                None,
                (
                    Text("hm", thinking=True),
                    Text("ok"),
                    Call("add", {"a": 1}, "1", Result((Value(2),))),
                ),
                1,
            ),
            ChatTurn("user", None, (Text("and?"),), 2),
            ChatTurn("assistant", None, (Text("two"), Value({"state": "interrupted"})), 3),
        ),
    )
    assert chat_of(*messages) == expected
    assert (
        chat_of(*({"id": str(n), "message": each} for n, each in enumerate(messages))) == expected
    )
    listed = read_chat(messages)
    assert listed is not None
    assert (listed.turns, listed.path) == (expected.turns, "")


def test_instructions_are_shown_where_they_change() -> None:
    said = [request(part("user-prompt", content="x"), instructions=each) for each in "aabNa"]
    said[3]["instructions"] = None
    turns = [turn for turn in chat_of(*said).turns if turn.role == "system"]
    assert [(turn.index, turn.parts) for turn in turns] == [
        (0, (Text("a"),)),
        (2, (Text("b"),)),
        (4, (Text("a"),)),
    ]


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("see", Text("see")),
        ({"kind": "text-content", "content": "see", "metadata": None}, Text("see")),
        (
            {"kind": "image-url", "url": "https://x/y", "media_type": "image/png"},
            Media("image", None, "image/png", None, "https://x/y"),
        ),
        (
            {"kind": "binary", "data": "_wCA", "media_type": "application/pdf"},
            Media("document", None, "application/pdf", 3),
        ),
        ({"kind": "binary"}, Value({"kind": "binary"})),
        ({"kind": "new"}, Value({"kind": "new"})),
        (7, Value(7)),
    ],
)
def test_what_a_user_sends(item: Any, expected: Any) -> None:
    assert parts_of(request(part("user-prompt", content=[item]))) == [expected]
    wrapped = part("tool-return", tool_name="t", content=["x", item], tool_call_id="1")
    (answer,) = parts_of(request(wrapped))
    assert isinstance(answer, Answer)


@pytest.mark.parametrize(
    ("kind", "more", "expected"),
    [
        ("tool-return", {"outcome": "success"}, Result((Text("x"),))),
        (
            "tool-return",
            {"outcome": "denied"},
            Result((Text("x"), Value({"outcome": "denied"})), True),
        ),
        ("retry-prompt", {}, Result((Text("x"),), True)),
        ("builtin-tool-return", {}, Result((Text("x"),))),
    ],
)
def test_results(kind: str, more: Any, expected: Result) -> None:
    called = part(kind, tool_name="t", content="x", tool_call_id="1", tool_kind=None, **more)
    assert parts_of(request(called)) == [Answer("t", "1", expected)]


def test_other_parts() -> None:
    assert chat_of(request(part("retry-prompt", content="no", tool_name=None))).turns == (
        ChatTurn("user", None, (Text("no"),), 0),
    )
    spoken = part("speech", transcript="hi", speaker="assistant", audio=None)
    assert parts_of(response(spoken)) == [Text("hi")]
    file = part("file", content={"kind": "binary", "data": "_wCA", "media_type": "image/png"})
    assert parts_of(response(file)) == [Media("image", None, "image/png", 3)]
    odd = {"part_kind": "new", "x": 1}
    assert parts_of(response(odd)) == [Value(odd)]
    assert chat_of(response()).turns == (ChatTurn("assistant", None, (), 0),)


def test_a_message_of_several_turns_has_one_anchor() -> None:
    message = request(part("system-prompt", content="a"), part("user-prompt", content="b"))
    state = {"messages": [message, message]}
    chat = read_chat(state)
    assert chat is not None
    html = chat_window(state, chat, News())[0]
    assert [html.count(f'id="m{index}"') for index in range(3)] == [1, 1, 0]


VALUES = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.none(), max_size=1)
NAMES = ["content", "tool_name", "args", "tool_call_id", "kind", "url", "data", "audio", "outcome"]
KINDS = ["user-prompt", "system-prompt", "tool-return", "retry-prompt", "text", "thinking"]
KINDS += ["tool-call", "speech", "file", "binary", "image-url", "text-content", "odd"]
FIELDS = st.dictionaries(st.sampled_from(NAMES), VALUES | st.sampled_from(KINDS))
PARTS = VALUES | st.builds(
    lambda kind, fields, inner: {"part_kind": kind, **fields, **inner},
    st.sampled_from(KINDS) | VALUES,
    FIELDS,
    st.fixed_dictionaries({}, optional={"content": FIELDS | st.lists(FIELDS, max_size=2)}),
)


@given(
    st.sampled_from(["request", "response"]),
    st.lists(PARTS, max_size=3),
    st.dictionaries(st.sampled_from(["instructions", "state", "usage", "new"]), VALUES),
)
def test_odd_messages_never_raise(kind: str, parts: list[Any], more: dict[str, Any]) -> None:
    message = {"kind": kind, "parts": parts, **more}
    assert chat_of(message, {"id": 1, "message": message})
