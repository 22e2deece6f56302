"""The messages and items of OpenAI, and the messages of LangChain in their three forms."""

from typing import Any

from limpet.views.chat import Call, Chat, ChatTurn, Media, Text, Value
from tests.views.chat_kit import LINK, PIXEL, chat_of, done, parts_of


def test_chat_completions() -> None:
    function = {"name": "add", "arguments": '{"a": 12345678901234567890}'}
    calls = [
        {"id": "1", "type": "function", "function": function},
        {"id": "2", "type": "function", "function": {"name": "add", "arguments": "{broken"}},
        {"id": "3", "type": "custom", "custom": {"name": "sh", "input": "ls"}},
        {"id": "4"},
    ]
    messages = [
        {"role": "developer", "content": "be kind"},
        {"role": "user", "name": "ann", "content": [{"type": "text", "text": "add"}]},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "1", "content": "5"},
        {"role": "tool", "tool_call_id": "3", "content": [{"type": "text", "text": "a.txt"}]},
        {"role": "assistant", "content": "", "refusal": "no", "reasoning_content": "hm"},
    ]
    assert chat_of(messages) == Chat(
        "openai",
        "",
        (
            ChatTurn("developer", None, (Text("be kind"),), 0),
            ChatTurn("user", "ann", (Text("add"),), 1),
            ChatTurn(
                "assistant",
                None,
                (
                    done("add", {"a": 12345678901234567890}, "1", Text("5")),
                    Call("add", "{broken", "2"),
                    done("sh", "ls", "3", Text("a.txt")),
                    Value({"id": "4"}),
                ),
                2,
            ),
            ChatTurn("assistant", None, (Text("hm", thinking=True), Text("refused: no")), 5),
        ),
    )


def test_arguments_that_are_too_deep_stay_text() -> None:
    deep = "[" * 500 + "]" * 500
    call = {"id": "1", "function": {"name": "f", "arguments": deep}}
    assert parts_of([{"role": "assistant", "tool_calls": [call]}]) == [Call("f", deep, "1")]


def test_the_only_call_of_older_chats() -> None:
    messages = [
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": ""}},
        {"role": "function", "name": "f", "content": "5"},
    ]
    assert parts_of(messages) == [done("f", {}, None, Text("5"))]


def test_files_in_chat_completions() -> None:
    content = [
        {"type": "image_url", "image_url": {"url": LINK, "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://a/b.png"}},
        {"type": "input_audio", "input_audio": {"data": PIXEL, "format": "wav"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": LINK}},
        {"type": "file", "file": {"file_id": "f-1"}},
        {"type": "image_url", "image_url": {}},
    ]
    assert parts_of([{"role": "user", "content": content}]) == [
        Media("image", None, "image/png", 8),
        Media("image", None, None, None, "https://a/b.png"),
        Media("audio", None, "audio/wav", 8),
        Media("file", "a.pdf", "image/png", 8),
        Media("file", "f-1", None, None),
        Value({"type": "image_url", "image_url": {}}),
    ]


def test_items() -> None:
    items = [
        {"role": "user", "content": "look"},
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "xx"},
        {"type": "function_call", "id": "i", "call_id": "1", "name": "f", "arguments": '{"a": 1}'},
        {"type": "function_call", "call_id": "2", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "2", "output": "two"},
        {
            "type": "function_call_output",
            "call_id": "1",
            "output": [{"type": "input_image", "image_url": LINK}],
        },
        {"type": "web_search_call", "id": "w", "action": {"query": "x"}, "status": "completed"},
        {"type": "mcp_call", "id": "m", "name": "g", "arguments": "{}", "error": "no"},
        {"type": "image_generation_call", "id": "g", "result": PIXEL},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "there", "annotations": []}],
        },
        {"type": "item_reference", "id": "x"},
    ]
    chat = chat_of({"instructions": "be kind", "items": items})
    assert (chat.shape, chat.path) == ("openai", "/items")
    assert [turn.index for turn in chat.turns] == [-1, 0, 1, 2, 3, 4, 7, 8, 9, 10, 11]
    assert [part for turn in chat.turns for part in turn.parts] == [
        Text("be kind"),
        Text("look"),
        Text("hm", thinking=True),
        Text("(redacted)", thinking=True),
        done("f", {"a": 1}, "1", Media("image", None, "image/png", 8)),
        done("f", {}, "2", Text("two")),
        Call("web_search", {"query": "x"}, "w"),
        done("g", {}, "m", Text("no"), is_error=True),
        Media("image", None, "image/png", 8),
        Text("there"),
        Value({"type": "item_reference", "id": "x"}),
    ]


FIELDS: dict[str, dict[str, Any]] = {
    "human": {"content": [{"type": "text", "text": "add"}, "please"], "name": "ann"},
    "ai": {
        "content": [{"type": "tool_use", "id": "1", "name": "add", "input": {"a": 2}}],
        "tool_calls": [
            {"name": "add", "args": {"a": 2}, "id": "1", "type": "tool_call"},
            {"name": "add", "args": {"a": 3}, "id": "2", "type": "tool_call"},
        ],
        "invalid_tool_calls": [{"name": "x", "args": "{", "id": "3", "error": "bad"}],
    },
    "tool": {"content": "5", "tool_call_id": "2", "status": "error", "name": "add"},
    "system": {"content": "be kind"},
}
CLASSES = {"human": "HumanMessage", "ai": "AIMessageChunk", "tool": "ToolMessage"}


def plain(kind: str) -> Any:
    return {"type": kind, **FIELDS[kind]}


def wrapped(kind: str) -> Any:
    return {"type": kind, "data": FIELDS[kind]}


def constructed(kind: str) -> Any:
    name = CLASSES.get(kind, "SystemMessage")
    id = ["langchain", "schema", "messages", name]
    return {"lc": 1, "type": "constructor", "id": id, "kwargs": {**FIELDS[kind], "type": kind}}


def test_langchain_messages() -> None:
    for way in ["messages", "values", "channel_values"]:
        for form in [plain, wrapped, constructed]:
            messages = [form(kind) for kind in ("system", "human", "ai", "tool")]
            state = {"messages": messages}
            chat = chat_of(state if way == "messages" else {way: state})
            assert chat.shape == "langgraph", (way, form)
            assert chat.turns == (
                ChatTurn("system", None, (Text("be kind"),), 0),
                ChatTurn("user", "ann", (Text("add"), Text("please")), 1),
                ChatTurn(
                    "assistant",
                    None,
                    (
                        Call("add", {"a": 2}, "1"),
                        done("add", {"a": 3}, "2", Text("5"), is_error=True),
                        Value({"name": "x", "args": "{", "id": "3", "error": "bad"}),
                    ),
                    2,
                ),
            ), (way, form)
