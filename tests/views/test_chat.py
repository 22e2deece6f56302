"""Any JSON is a chat or none: nothing fails, nothing takes long, nothing is lost."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from limpet.views.chat import (
    Answer,
    Call,
    Chat,
    ChatTurn,
    Media,
    Result,
    Text,
    Value,
    call_text,
    media_text,
    nodes_of,
    other_values,
    read_chat,
    turn_text,
    value_text,
)
from tests.views.chat_kit import chat_of, parts_of

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
KEYS = """role content parts name type id text thinking reasoning tool_calls tool_call_id function
arguments args messages system system_prompt systemPrompt toolUse toolResult toolUseId input
toolRequest toolResponse ref output media url source data base64 image image_url document lc
kwargs additional_kwargs invalid_tool_calls function_call call_id tool_use_id channel_values
values state orchestratorId results node_results result message current_task summary items
cachePoint guardContent citationsContent reasoningContent redactedContent json
functionCall functionResponse inlineData fileUri thought response audio transcript refusal citations
annotations location s3Location artifact status contents kind part_kind tool_name content uri
transcript isMeta sessionId author actions outcome"""
TYPES = """user model assistant tool system human ai constructor text tool_use tool_result
function_call function_call_output mcp_call reasoning image image_url document thinking
nodeResult refusal output_audio computer_screenshot computer_call_output file_search_call
request response user-prompt system-prompt tool-return retry-prompt tool-call speech file binary
image-url text-content text_reasoning function_result uri data"""
WORDS = st.sampled_from(KEYS.split())
SAID = st.sampled_from(TYPES.split())
JSONS: st.SearchStrategy[Any] = st.recursive(
    LEAVES | SAID,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(), inner, max_size=5)
    ),
    max_leaves=40,
)


def with_it(odd: Any) -> list[Any]:
    """Return states with something odd where each framework has a message, and a part of one."""
    entry = {"type": "user", "sessionId": "s", "message": {"role": "user", "content": [odd]}}
    event = {"author": "a", "actions": {}, "content": {"parts": [odd]}}
    session = {"state": {"memory": {"messages": [{"role": "user", "contents": [odd]}, odd]}}}
    parts = [odd, {"part_kind": "user-prompt", "content": odd}]
    parts += [{"part_kind": "tool-return", "tool_name": "t", "content": odd}]
    return [
        odd,
        {"messages": odd},
        {"entries": [entry, odd]},
        {"state": {}, "events": [event, odd]},
        {"state": {"_executor_state": {"x": {"agent_session": session}, "y": odd}}},
        {
            "messages": [
                {"kind": kind, "parts": parts, "x": odd} for kind in ("request", "response")
            ]
        },
    ]


@given(JSONS)
def test_any_json_is_a_chat_or_none(odd: Any) -> None:
    for state in with_it(odd):
        chat = read_chat(state)
        if chat is not None:
            assert all(turn_text(turn).isprintable() for turn in chat.turns)
            list(other_values(state, chat))


@given(st.lists(JSONS, min_size=1, max_size=8))
def test_any_list_under_messages_is_a_chat_of_which_no_message_is_lost(messages: Any) -> None:
    chat = chat_of({"messages": messages})
    assert chat.path == "/messages"
    for index, message in enumerate(messages):
        results = any(
            isinstance(part, Call) and part.result for turn in chat.turns for part in turn.parts
        )
        assert results or any(turn.index == index for turn in chat.turns), message


@given(st.lists(LEAVES | st.dictionaries(st.text(alphabet="xyz", min_size=1), LEAVES), min_size=1))
def test_content_that_nobody_knows_is_there_as_it_is(blocks: list[Any]) -> None:
    found = parts_of({"messages": [{"role": "user", "content": blocks}]})
    assert [each.text if isinstance(each, Text) else each.value for each in found] == blocks


def test_no_messages() -> None:
    states: list[Any] = [None, 3, "text", [], {}, [1], {"messages": []}, {"a": [{}]}]
    for state in states:
        assert read_chat(state) is None, state


def test_where_the_messages_are() -> None:
    for state, path in [
        ([{"role": "user", "content": "a"}], ""),
        ({"messages": ["a"]}, "/messages"),
        ({"channel_values": {"messages": ["a"]}}, "/channel_values/messages"),
        ({"values": {"messages": ["a"]}}, "/values/messages"),
        ({"data": {"messages": ["a"]}}, "/data/messages"),
        ({"state": {"messages": ["a"]}}, "/state/messages"),
        ({"chat_history": ["a"], "messages": []}, "/chat_history"),
    ]:
        chat = read_chat(state)
        assert chat is not None, (state, path)
        assert chat.path == path, (state, path)
        assert [turn_text(turn) for turn in chat.turns] == ["a"], (state, path)


def test_plain_messages() -> None:
    said = [{"role": "user", "content": "hi"}, {"role": "pirate", "content": "ahoy"}, "hm", 7]
    assert read_chat({"messages": said}) == Chat(
        "/messages",
        (
            ChatTurn("user", None, (Text("hi"),), 0),
            ChatTurn("pirate", None, (Text("ahoy"),), 1),
            ChatTurn("message", None, (Text("hm"),), 2),
            ChatTurn("message", None, (Value(7),), 3),
        ),
    )


def test_a_system_prompt_beside_the_list_is_the_first_turn() -> None:
    for key in ("system", "system_prompt", "systemPrompt"):
        for prompt in ("be kind", [{"text": "be kind"}], [{"type": "text", "text": "be kind"}]):
            chat = chat_of({"messages": ["hi"], key: prompt})
            assert chat.turns[0] == ChatTurn("system", None, (Text("be kind"),), -1)
    chat = chat_of({"messages": ["hi"], "system": {"os": "linux"}, "system_prompt": ""})
    assert [turn.role for turn in chat.turns] == ["message"]


def call(id: str | None, name: str = "f", **given: Any) -> dict[str, Any]:
    return {"toolRequest": {"name": name, "input": given} | ({"ref": id} if id else {})}


def answer(id: str | None, output: Any, name: str = "f") -> dict[str, Any]:
    return {"toolResponse": {"name": name, "output": output} | ({"ref": id} if id else {})}


def paired(*content: list[dict[str, Any]]) -> list[Any]:
    roles = ["model" if "toolRequest" in each[0] else "tool" for each in content]
    messages = [{"role": r, "content": c} for r, c in zip(roles, content, strict=True)]
    return [
        (part.result.parts if part.result else None) if isinstance(part, Call) else part
        for part in parts_of(messages)
    ]


def test_results_are_in_their_calls_by_id_in_any_order() -> None:
    found = paired([call("1"), call("2")], [answer("2", "b")], [answer("1", "a")])
    assert found == [(Text("a"),), (Text("b"),)]


def test_results_are_in_their_calls_by_name_in_order() -> None:
    content = [call(None), call(None, "g"), call(None)]
    found = paired(content, [answer(None, "a"), answer(None, "b"), answer(None, "c", "g")])
    assert found == [(Text("a"),), (Text("c"),), (Text("b"),)]


def test_a_call_without_a_result_and_a_result_without_a_call() -> None:
    found = paired([answer("1", "early")], [call("1")], [answer("9", {"n": 1})])
    early = Answer("f", "1", Result((Text("early"),)))
    assert found == [early, None, Answer("f", "9", Result((Value({"n": 1}),)))]


def test_a_call_that_was_never_answered_does_not_take_the_result_of_a_later_one() -> None:
    assert paired([call("1")], [call("1")], [answer("1", "a")]) == [None, (Text("a"),)]


def test_a_chat_is_read_in_linear_time() -> None:
    """Quadratic time would take minutes here."""
    many = [[call("same"), call(None)], [answer(None, "x"), answer("same", "y")]] * 4_000
    assert len(paired(*many)) == 8_000
    unanswered = [[call("same")]] * 8_000 + [[answer("same", "x")]] * 8_000
    assert None not in paired(*unanswered)


def test_what_stands_beside_a_chat() -> None:
    state = {"messages": ["a"], "system_prompt": "b", "mood": 1}
    chat = chat_of(state)
    assert [*other_values(state, chat)] == [("mood", 1)]
    deep = {"values": {"messages": ["a"], "mood": 1}, "next": []}
    chat = chat_of(deep)
    assert [*other_values(deep, chat)] == [("next", []), ("values.mood", 1)]


def test_parts_as_text() -> None:
    assert call_text(Call("f", {"q": "x\n", "n": [1]}, None)) == 'f(q="x\\n", n=[1])'
    assert call_text(Call("f", "rm -r", None)) == 'f("rm -r")'
    assert (
        media_text(Media("image", "a.png", "image/png", 2048)) == "image a.png (image/png, 2.0 KiB)"
    )
    assert media_text(Media("file", None, None, None, "s3://b/k")) == "file s3://b/k"
    turn = ChatTurn(
        "user", None, (Text("so\n so", thinking=True), Text("a\x1b[2J\n b"), Value({})), 0
    )
    assert turn_text(turn) == "a\\x1b[2J b {}"
    marked = Text("## Plan\n\n**Go on** ⚠\ufe0f, **not** 2 ** 3\n# end")
    assert turn_text(ChatTurn("user", None, (marked,), 0)) == "Plan Go on ⚠\ufe0f, not 2 ** 3 end"
    assert turn_text(ChatTurn("user", None, (Text("so\n so", thinking=True),), 0)) == "so so"
    assert len(turn_text(ChatTurn("user", None, (Text("word " * 10_000),), 0))) <= 500


def test_base64_is_never_shown() -> None:
    secret = "QUJD" * 100
    assert value_text({"a": [secret]}) == '{"a": ["… 300 B of base64"]}'
    assert "QUJD" not in value_text(f"data:image/png;base64,{secret}")
    assert value_text("QUJD") == '"QUJD"'
    assert json.loads(value_text({"a": [1, "b"]}, indent=2)) == {"a": [1, "b"]}


def test_the_ends_of_a_chat() -> None:
    for count in [1, 2, 6, 7, 11, 12, 13, 40]:
        state = {"messages": [{"role": "user", "content": str(n)} for n in range(count)]}
        whole, ends = read_chat(state), read_chat(state, ends=True)
        assert whole is not None, count
        assert ends is not None, count
        turns = whole.turns if count <= 6 else (whole.turns[0], *whole.turns[-6:])
        assert [*ends.turns] == [*turns], count


def test_the_last_message_is_a_result_if_a_tool_spoke_last() -> None:
    call = {"id": "1", "function": {"name": "book", "arguments": '{"day": 3}'}}
    said = [
        {"role": "user", "content": "Book it."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "booked"},
        {"role": "assistant", "content": "Done."},
    ]
    told = []
    for count in range(1, 5):
        chat = read_chat({"messages": said[:count]}, ends=True)
        assert chat is not None
        assert chat.last is not None
        told.append((chat.last.role, turn_text(chat.last)))
    assert told == [
        ("user", "Book it."),
        ("assistant", "▸ book(day=3)"),
        ("tool", "◂ book → booked"),
        ("assistant", "Done."),
    ]


def test_a_strange_checkpoint_names_no_node() -> None:
    for version in ("9" * 5000, 10**5000, "x", None, [1]):
        seen = {"a": {"x": version}, "b": version}
        state = {"channel_values": {}, "versions_seen": seen, "channel_versions": {"x": version}}
        assert {*nodes_of(state)} <= {"a"}
