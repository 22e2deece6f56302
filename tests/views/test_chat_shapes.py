"""The messages of each framework, as the framework itself writes them."""

import json
from pathlib import Path

from limpet.views.chat import Answer, Call, Chat, ChatTurn, Media, Result, Text, Value, read_chat
from tests.views.chat_kit import PIXEL, chat_of, done, parts_of

TESTS = Path(__file__).parents[1]
GENKIT = sorted((TESTS / "compat/genkit").glob("**/store/*/*.json"))
STRANDS = sorted((TESTS / "interop/fixtures").glob("**/snapshot_*.json"))
RUNS = TESTS / "compat/runs/fixtures"


# Strands.


ASKED = (
    ChatTurn("system", None, (Text("You are a helpful assistant."),), -1),
    ChatTurn("user", None, (Text("Hello"),), 0),
    ChatTurn("assistant", None, (Text("Hi! I am a stub."),), 1),
    ChatTurn("user", None, (Text("What is 2+3?"),), 2),
)
SUM = ChatTurn("assistant", None, (Text("2+3=5"),), 5)


def test_strands_files_are_understood_whole() -> None:
    for path in STRANDS:
        file = json.loads(path.read_bytes())
        chat = read_chat(file["data"])
        if file["data"]["messages"]:
            assert chat is not None, path
            assert chat.shape == "strands", path
            assert chat.turns == chat_of(file).turns, path
            assert not [
                p for turn in chat.turns for p in turn.parts if isinstance(p, Value | Answer)
            ], path
        else:
            assert chat is None, path


def test_strands_in_typescript() -> None:
    [path] = [path for path in STRANDS if "demo-message" in str(path) and "latest" in path.name]
    added = done("add", {"a": 2, "b": 3}, "tu-1", Value({"sum": 5}))
    parts = (Text("need the tool", thinking=True), Text("Let me add."), added)
    assert chat_of(json.loads(path.read_bytes())["data"]) == Chat(
        "strands", "/messages", (*ASKED, ChatTurn("assistant", None, parts, 3), SUM)
    )


def test_strands_in_python() -> None:
    [path] = [path for path in STRANDS if "demo-py" in str(path) and "latest" in path.name]
    added = done("add", {"a": 2, "b": 3}, "tu-1", Text("5"))
    assert chat_of(json.loads(path.read_bytes())["data"]) == Chat(
        "strands",
        "/messages",
        (*ASKED, ChatTurn("assistant", None, (Text("Let me add."), added), 3), SUM),
    )


def test_strands_blocks() -> None:
    content = [
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
        {"reasoningContent": {"redactedContent": {"__bytes_encoded__": True, "data": PIXEL}}},
        {"image": {"format": "png", "source": {"bytes": PIXEL}}},
        {
            "image": {
                "format": "png",
                "source": {"bytes": {"__bytes_encoded__": True, "data": PIXEL}},
            }
        },
        {
            "document": {
                "format": "pdf",
                "name": "bill",
                "source": {"location": {"uri": "s3://b/k"}},
            }
        },
        {"guardContent": {"text": {"text": "guarded", "qualifiers": []}}},
        {"citationsContent": {"content": [{"text": "cited"}], "citations": []}},
        {"cachePoint": {"type": "default"}},
        {"toolUse": {"input": "no name"}},
    ]
    assert parts_of([{"role": "user", "content": content}]) == [
        Text("hm", thinking=True),
        Text("(redacted)", thinking=True),
        Media("image", None, "image/png", 8),
        Media("image", None, "image/png", 8),
        Media("document", "bill", "application/pdf", None, "s3://b/k"),
        Text("guarded"),
        Text("cited"),
        Value({"toolUse": {"input": "no name"}}),
    ]


def test_several_strands_agents_in_typescript() -> None:
    result = {"type": "nodeResult", "nodeId": "writer", "content": [{"text": "done"}]}
    failed = {"type": "nodeResult", "nodeId": "critic", "content": [], "error": {"message": "no"}}
    state = {"results": [result, failed], "steps": 2, "nodes": {}}
    assert chat_of({"orchestratorId": "graph", "state": state}) == Chat(
        "strands",
        "/state/results",
        (
            ChatTurn("assistant", "writer", (Text("done"),), 0),
            ChatTurn("assistant", "critic", (Value({"error": {"message": "no"}}),), 1),
        ),
    )


def test_several_strands_agents_in_python() -> None:
    message = {"role": "assistant", "content": [{"text": "done"}]}
    results = {
        "writer": {"result": {"type": "agent_result", "message": message}, "status": "completed"},
        "critic": {"result": {"type": "exception", "message": "no"}, "status": "failed"},
        "team": {"result": {"type": "multiagent_result", "results": {}}},
    }
    state = {"node_results": results, "current_task": "Write."}
    assert chat_of({"orchestrator_id": "graph", "state": state}) == Chat(
        "strands",
        "/state/node_results",
        (
            ChatTurn("user", None, (Text("Write."),), -1),
            ChatTurn("assistant", "writer", (Text("done"),), 0),
            ChatTurn("assistant", "critic", (Text("no"),), 1),
            ChatTurn("assistant", "team", (Value(results["team"]),), 2),
        ),
    )


# Genkit.


def test_genkit_files() -> None:
    states = [json.loads(path.read_bytes()).get("state") for path in GENKIT]
    chats = [chat for state in states if (chat := read_chat(state)) is not None]
    assert chats
    assert {chat.shape for chat in chats} == {"genkit"}
    assert {turn.role for chat in chats for turn in chat.turns} == {"user", "assistant"}


def test_genkit_parts() -> None:
    messages = [
        {"role": "system", "content": [{"text": "be kind", "metadata": {"purpose": "x"}}]},
        {
            "role": "model",
            "content": [
                {"reasoning": "hm"},
                {"toolRequest": {"name": "look", "ref": "1", "input": {"q": 1}}},
                {"toolRequest": {"name": "look", "ref": "2"}},
                {"media": {"url": f"data:image/png;base64,{PIXEL}"}},
                {"media": {"url": "https://a/b.mp4", "contentType": "video/mp4"}},
                {"data": {"n": 1}},
                {"resource": {"uri": "file:///a"}},
            ],
        },
        {
            "role": "tool",
            "content": [
                {"toolResponse": {"name": "look", "ref": "2", "output": "two"}},
                {"toolResponse": {"name": "look", "ref": "1", "output": {"one": [1]}}},
            ],
        },
    ]
    chat = chat_of({"messages": messages, "custom": {}})
    assert (chat.shape, [turn.role for turn in chat.turns]) == ("genkit", ["system", "assistant"])
    assert list(chat.turns[1].parts) == [
        Text("hm", thinking=True),
        done("look", {"q": 1}, "1", Value({"one": [1]})),
        done("look", {}, "2", Text("two")),
        Media("image", None, "image/png", 8),
        Media("video", None, "video/mp4", None, "https://a/b.mp4"),
        Value({"n": 1}),
        Media("file", None, None, None, "file:///a"),
    ]


# Anthropic, and the runs that keep its messages.


def test_a_supervised_run() -> None:
    chat = chat_of(json.loads((RUNS / "run-hello-world.first_save.json").read_bytes()))
    assert chat.shape == "anthropic"
    assert [turn.role for turn in chat.turns][:3] == ["system", "user", "assistant"]
    failed = chat.turns[-1].parts[0]
    assert isinstance(failed, Call)
    assert failed.result is not None
    assert failed.result.is_error
    odd = chat_of(json.loads((RUNS / "sessions/strcontent.json").read_bytes()))
    assert odd.turns[1].parts == (
        Answer(None, "t", Result((Text("string result"),))),
        Value({"type": "brand_new_block", "payload": 1}),
    )


def test_anthropic_blocks() -> None:
    image = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    page = {"type": "text", "media_type": "text/plain", "data": "héllo"}
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "xx"},
        {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}},
        {"type": "image", "source": image},
        {"type": "image", "source": {"type": "url", "url": "https://a/b"}},
        {"type": "document", "title": "bill", "source": page},
        {"type": "document", "source": {"type": "file", "file_id": "f-1"}},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "s",
            "content": [{"type": "x", "url": 1}],
        },
        {"type": "tool_use", "id": "t", "name": "see", "input": {}},
        {"type": "text", "text": 5},
    ]
    answer = {"type": "tool_result", "tool_use_id": "t", "is_error": True}
    shown = {
        **answer,
        "content": [{"type": "text", "text": "a"}, {"type": "image", "source": image}],
    }
    messages = [
        {"role": "assistant", "content": content},
        {"role": "user", "content": [shown, {"type": "text", "text": "go on"}]},
    ]
    chat = chat_of({"system": "be kind", "messages": messages})
    assert chat.shape == "anthropic"
    assert chat.turns[1:] == (
        ChatTurn(
            "assistant",
            None,
            (
                Text("hm", thinking=True),
                Text("(redacted)", thinking=True),
                Text("hi"),
                Media("image", None, "image/png", 8),
                Media("image", None, None, None, "https://a/b"),
                Media("document", "bill", "text/plain", 6),
                Media("document", "f-1", None, None),
                done("web_search", {"query": "x"}, "s", Value({"type": "x", "url": 1})),
                done(
                    "see", {}, "t", Text("a"), Media("image", None, "image/png", 8), is_error=True
                ),
                Value({"type": "text", "text": 5}),
            ),
            0,
        ),
        ChatTurn("user", None, (Text("go on"),), 1),
    )
