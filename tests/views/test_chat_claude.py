"""Transcripts of the Claude Agent SDK as chats."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from limpet.views.chat import Call, ChatTurn, Result, Text, other_values, read_chat
from tests.views.chat_kit import chat_of

SESSION = {"sessionId": "s", "cwd": "/work", "version": "2.1", "gitBranch": "main"}


def entry(type: str, content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": type, "content": content, "context_management": {"applied_edits": [1]}}
    return {"type": type, "uuid": "u", "parentUuid": None, "message": message, **SESSION, **more}


TRANSCRIPT = [
    {"type": "queue-operation", "operation": "enqueue", "content": "hello", **SESSION},
    entry("user", "Where is it?"),
    {"type": "attachment", "attachment": {"type": "date"}, "uuid": "u", **SESSION},
    entry("user", "<local-command-caveat>", isMeta=True),
    entry("assistant", [{"type": "thinking", "thinking": "hm", "signature": "x"}]),
    entry("assistant", [{"type": "tool_use", "id": "t1", "name": "Grep", "input": {"for": "it"}}]),
    entry("user", [{"type": "tool_result", "tool_use_id": "t1", "content": "a.py"}]),
    entry("assistant", [{"type": "text", "text": "In a.py."}]),
    {"type": "custom-title", "customTitle": "Searching", **SESSION},
]


def test_only_what_was_said_is_a_turn() -> None:
    state: Any = {"entries": TRANSCRIPT}
    chat = chat_of(state)
    assert (chat.shape, chat.path) == ("anthropic", "/entries")
    assert chat.turns == (
        ChatTurn("user", None, (Text("Where is it?"),), 1),
        ChatTurn("assistant", None, (Text("hm", thinking=True),), 4),
        ChatTurn(
            "assistant", None, (Call("Grep", {"for": "it"}, "t1", Result((Text("a.py"),))),), 5
        ),
        ChatTurn("assistant", None, (Text("In a.py."),), 7),
    )
    assert list(other_values(state, chat)) == []


def test_the_ends_of_a_long_transcript_are_what_was_said() -> None:
    talk: Any = [each for n in range(100) for each in (TRANSCRIPT[0], entry("user", str(n)))]
    chat = chat_of({"entries": [*talk, *[TRANSCRIPT[-1]] * 20]}, ends=True)
    assert (chat.turns[0].parts, chat.turns[-1].parts) == ((Text("0"),), (Text("99"),))


def test_a_single_entry_is_a_message() -> None:
    chat = chat_of({"messages": [entry("user", "hi")]})
    assert chat.turns == (ChatTurn("user", None, (Text("hi"),), 0),)


def test_other_lists_of_entries_are_no_transcripts() -> None:
    others: list[Any] = [[], {}, None, [1], ["a"], [{"type": "user"}], TRANSCRIPT[:1]]
    for entries in others:
        assert read_chat({"entries": entries}) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=3), each),
    max_leaves=5,
)
FIELDS = st.fixed_dictionaries(
    {}, optional={"type": JSON, "role": JSON, "content": JSON, "message": JSON, "isMeta": JSON}
)


@given(st.lists(JSON | FIELDS | FIELDS.map(lambda it: entry("user", [it]) | it), max_size=4))
def test_odd_entries_are_read_without_errors(entries: Any) -> None:
    read_chat({"entries": entries})
