"""The messages of each framework, as the framework itself writes them."""

import copy
import json
from pathlib import Path
from typing import Any

from limpet.views.chat import Answer, Value, other_values, read_chat
from limpet.views.page.chat import NewMessages, chat_window
from tests.cases import for_each
from tests.views.chat_kit import LINK, PIXEL, chat_of, parts_of, said, told

TESTS = Path(__file__).parents[1]
GENKIT = sorted((TESTS / "compat/genkit").glob("**/store/*/*.json"))
STRANDS = sorted((TESTS / "interop/fixtures").glob("**/snapshot_*.json"))
RUNS = TESTS / "compat/runs/fixtures"


# Strands


def test_strands_files_are_understood_whole() -> None:
    for path in STRANDS:
        file = json.loads(path.read_bytes())
        chat = read_chat(file["data"])
        if file["data"]["messages"]:
            assert chat is not None, path
            assert chat.turns == chat_of(file).turns, path
            assert not [part for part in parts_of(file) if isinstance(part, Value | Answer)], path
        else:
            assert chat is None, path


@for_each(
    ("name", "line"),
    [
        (
            "demo-message",
            '(need the tool) | Let me add. | add#tu-1 {"a": 2, "b": 3} -> ={"sum": 5}',
        ),
        ("demo-py", 'Let me add. | add#tu-1 {"a": 2, "b": 3} -> 5'),
    ],
)
def test_strands_in_typescript_and_in_python(name: str, line: str) -> None:
    [path] = [path for path in STRANDS if name in str(path) and "latest" in path.name]
    assert told(json.loads(path.read_bytes())["data"]) == [
        "-1 system: You are a helpful assistant.",
        "0 user: Hello",
        "1 assistant: Hi! I am a stub.",
        "2 user: What is 2+3?",
        f"3 assistant: {line}",
        "5 assistant: 2+3=5",
    ]


def test_strands_blocks() -> None:
    encoded = {"__bytes_encoded__": True, "data": PIXEL}
    location = {"location": {"uri": "s3://b/k"}}
    assert said(
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
        {"reasoningContent": {"redactedContent": encoded}},
        {"image": {"format": "png", "source": {"bytes": PIXEL}}},
        {"image": {"format": "png", "source": {"bytes": encoded}}},
        {"document": {"format": "pdf", "name": "bill", "source": location}},
        {"guardContent": {"text": {"text": "guarded", "qualifiers": []}}},
        {"citationsContent": {"content": [{"text": "cited"}], "citations": []}},
        {"cachePoint": {"type": "default"}},
        {"toolUse": {"input": "no name"}},
    ).split(" | ") == [
        "(hm)",
        "((redacted))",
        "<image image/png 8>",
        "<image image/png 8>",
        "<document bill application/pdf s3://b/k>",
        "guarded",
        "cited",
        '={"toolUse": {"input": "no name"}}',
    ]


def test_several_strands_agents() -> None:
    result = {"type": "nodeResult", "nodeId": "writer", "content": [{"text": "done"}]}
    failed = {"type": "nodeResult", "nodeId": "critic", "content": [], "error": {"message": "no"}}
    state = {"results": [result, failed], "steps": 2, "nodes": {}}
    assert told({"orchestratorId": "graph", "state": state}) == [
        "0 assistant writer: done",
        '1 assistant critic: ={"error": {"message": "no"}}',
    ]
    message = {"role": "assistant", "content": [{"text": "done"}]}
    results = {
        "writer": {"result": {"type": "agent_result", "message": message}, "status": "completed"},
        "critic": {"result": {"type": "exception", "message": "no"}, "status": "failed"},
        "team": {"result": {"type": "multiagent_result", "results": {}}},
    }
    graph = {
        "orchestrator_id": "graph",
        "state": {"node_results": results, "current_task": "Write."},
    }
    assert chat_of(graph).path == "/state/node_results"
    assert told(graph) == [
        "-1 user: Write.",
        "0 assistant writer: done",
        "1 assistant critic: no",
        f"2 assistant team: ={json.dumps(results['team'])}",
    ]


# Genkit


def test_genkit_files() -> None:
    states = [json.loads(path.read_bytes()).get("state") for path in GENKIT]
    chats = [chat for state in states if (chat := read_chat(state)) is not None]
    assert chats
    assert {turn.role for chat in chats for turn in chat.turns} == {"user", "assistant"}


def test_genkit_parts() -> None:
    content = [
        {"reasoning": "hm"},
        {"toolRequest": {"name": "look", "ref": "1", "input": {"q": 1}}},
        {"toolRequest": {"name": "look", "ref": "2"}},
        {"media": {"url": LINK}},
        {"media": {"url": "https://a/b.mp4", "contentType": "video/mp4"}},
        {"data": {"n": 1}},
        {"resource": {"uri": "file:///a"}},
    ]
    answers = [
        {"toolResponse": {"name": "look", "ref": "2", "output": "two"}},
        {"toolResponse": {"name": "look", "ref": "1", "output": {"one": [1]}}},
    ]
    messages = [
        {"role": "system", "content": [{"text": "be kind", "metadata": {"purpose": "x"}}]},
        {"role": "model", "content": content},
        {"role": "tool", "content": answers},
    ]
    assert told({"messages": messages, "custom": {}}) == [
        "0 system: be kind",
        '1 assistant: (hm) | look#1 {"q": 1} -> ={"one": [1]} | look#2 {} -> two'
        ' | <image image/png 8> | <video video/mp4 https://a/b.mp4> | ={"n": 1} | <file file:///a>',
    ]


# Anthropic, the runs that keep its messages, and the transcripts of the Claude Agent SDK


def test_a_supervised_run() -> None:
    state = json.loads((RUNS / "run-hello-world.first_save.json").read_bytes())
    assert [line.split()[1] for line in told(state)][:3] == ["system:", "user:", "assistant:"]
    assert " ->! " in told(state)[-1]
    odd = told(json.loads((RUNS / "sessions/strcontent.json").read_bytes()))[1]
    block = '={"type": "brand_new_block", "payload": 1}'
    assert odd.partition(": ")[2] == f"None#t -> string result | {block}"


def test_anthropic_blocks() -> None:
    image = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    page = {"type": "text", "media_type": "text/plain", "data": "héllo"}
    found = {"type": "web_search_tool_result", "tool_use_id": "s"}
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "xx"},
        {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}},
        {"type": "image", "source": image},
        {"type": "image", "source": {"type": "url", "url": "https://a/b"}},
        {"type": "document", "title": "bill", "source": page},
        {"type": "document", "source": {"type": "file", "file_id": "f-1"}},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
        {**found, "content": [{"type": "x", "url": 1}]},
        {"type": "tool_use", "id": "t", "name": "see", "input": {}},
        {"type": "text", "text": 5},
    ]
    given = [{"type": "text", "text": "a"}, {"type": "image", "source": image}]
    answer = {"type": "tool_result", "tool_use_id": "t", "is_error": True, "content": given}
    messages = [
        {"role": "assistant", "content": content},
        {"role": "user", "content": [answer, {"type": "text", "text": "go on"}]},
    ]
    system, first, last = told({"system": "be kind", "messages": messages})
    assert (system, last) == ("-1 system: be kind", "1 user: go on")
    assert first.split(" | ") == [
        "0 assistant: (hm)",
        "((redacted))",
        "hi",
        "<image image/png 8>",
        "<image https://a/b>",
        "<document bill text/plain 6>",
        "<document f-1>",
        'web_search#s {"query": "x"} -> ={"type": "x", "url": 1}',
        "see#t {} ->! a + <image image/png 8>",
        '={"type": "text", "text": 5}',
    ]


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


def test_of_a_transcript_only_what_was_said_is_a_turn() -> None:
    state: Any = {"entries": TRANSCRIPT}
    chat = chat_of(state)
    assert chat.path == "/entries"
    assert told(state) == [
        "1 user: Where is it?",
        "4 assistant: (hm)",
        '5 assistant: Grep#t1 {"for": "it"} -> a.py',
        "7 assistant: In a.py.",
    ]
    assert list(other_values(state, chat)) == []
    talk: Any = [each for n in range(100) for each in (TRANSCRIPT[0], entry("user", str(n)))]
    ends = told({"entries": [*talk, *[TRANSCRIPT[-1]] * 20]}, ends=True)
    assert (ends[0], ends[-1]) == ("1 user: 0", "199 user: 99")
    assert told({"messages": [entry("user", "hi")]}) == ["0 user: hi"]
    others: list[Any] = [[], {}, None, [1], ["a"], [{"type": "user"}], TRANSCRIPT[:1]]
    for entries in others:
        assert read_chat({"entries": entries}) is None


# OpenAI, and LangChain


def test_chat_completions() -> None:
    function = {"name": "add", "arguments": '{"a": 12345678901234567890}'}
    deep = "[" * 500 + "]" * 500
    calls = [
        {"id": "1", "type": "function", "function": function},
        {"id": "2", "type": "function", "function": {"name": "add", "arguments": "{broken"}},
        {"id": "3", "type": "custom", "custom": {"name": "sh", "input": "ls"}},
        {"id": "4"},
        {"id": "5", "function": {"name": "f", "arguments": deep}},
    ]
    messages = [
        {"role": "developer", "content": "be kind"},
        {"role": "user", "name": "ann", "content": [{"type": "text", "text": "add"}]},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "1", "content": "5"},
        {"role": "tool", "tool_call_id": "3", "content": [{"type": "text", "text": "a.txt"}]},
        {"role": "assistant", "content": "", "refusal": "no", "reasoning_content": "hm"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": ""}},
        {"role": "function", "name": "f", "content": "5"},
    ]
    assert chat_of(messages).path == ""
    assert told(messages) == [
        "0 developer: be kind",
        "1 user ann: add",
        '2 assistant: add#1 {"a": 12345678901234567890} -> 5 | add#2 "{broken"'
        f' | sh#3 "ls" -> a.txt | ={{"id": "4"}} | f#5 "{deep}"',
        "5 assistant: (hm) | refused: no",
        "6 assistant: f#None {} -> 5",
    ]


def test_files_in_chat_completions() -> None:
    assert said(
        {"type": "image_url", "image_url": {"url": LINK, "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://a/b.png"}},
        {"type": "input_audio", "input_audio": {"data": PIXEL, "format": "wav"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": LINK}},
        {"type": "file", "file": {"file_id": "f-1"}},
        {"type": "image_url", "image_url": {}},
    ).split(" | ") == [
        "<image image/png 8>",
        "<image https://a/b.png>",
        "<audio audio/wav 8>",
        "<file a.pdf image/png 8>",
        "<file f-1>",
        '={"type": "image_url", "image_url": {}}',
    ]


def test_items() -> None:
    output = {"type": "function_call_output"}
    message = {"type": "message", "role": "assistant"}
    thought = {"type": "reasoning", "id": "r"}
    items = [
        {"role": "user", "content": "look"},
        {**thought, "summary": [{"type": "summary_text", "text": "hm"}]},
        {**thought, "summary": [], "encrypted_content": "xx"},
        {"type": "function_call", "id": "i", "call_id": "1", "name": "f", "arguments": '{"a": 1}'},
        {"type": "function_call", "call_id": "2", "name": "f", "arguments": "{}"},
        {**output, "call_id": "2", "output": "two"},
        {**output, "call_id": "1", "output": [{"type": "input_image", "image_url": LINK}]},
        {"type": "web_search_call", "id": "w", "action": {"query": "x"}, "status": "completed"},
        {"type": "mcp_call", "id": "m", "name": "g", "arguments": "{}", "error": "no"},
        {"type": "image_generation_call", "id": "g", "result": PIXEL},
        {**message, "content": [{"type": "output_text", "text": "there", "annotations": []}]},
        {"type": "item_reference", "id": "x"},
    ]
    state = {"instructions": "be kind", "items": items}
    assert chat_of(state).path == "/items"
    assert told(state) == [
        "-1 system: be kind",
        "0 user: look",
        "1 assistant: (hm)",
        "2 assistant: ((redacted))",
        '3 assistant: f#1 {"a": 1} -> <image image/png 8>',
        "4 assistant: f#2 {} -> two",
        '7 assistant: web_search#w {"query": "x"}',
        "8 assistant: g#m {} ->! no",
        "9 assistant: <image image/png 8>",
        "10 assistant: there",
        '11 message: ={"type": "item_reference", "id": "x"}',
    ]


FIELDS: dict[str, dict[str, Any]] = {
    "system": {"content": "be kind"},
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
}
CLASSES = {"human": "HumanMessage", "ai": "AIMessageChunk", "tool": "ToolMessage"}


def constructed(kind: str) -> Any:
    id = ["langchain", "schema", "messages", CLASSES.get(kind, "SystemMessage")]
    return {"lc": 1, "type": "constructor", "id": id, "kwargs": {**FIELDS[kind], "type": kind}}


def test_langchain_messages_in_their_three_forms() -> None:
    for way in ["messages", "values", "channel_values"]:
        for messages in (
            [{"type": kind, **fields} for kind, fields in FIELDS.items()],
            [{"type": kind, "data": fields} for kind, fields in FIELDS.items()],
            [constructed(kind) for kind in FIELDS],
        ):
            state: Any = {"messages": messages}
            state = state if way == "messages" else {way: state}
            assert told(state) == [
                "0 system: be kind",
                "1 user ann: add | please",
                '2 assistant: add#1 {"a": 2} | add#2 {"a": 3} ->! 5'
                ' | ={"name": "x", "args": "{", "id": "3", "error": "bad"}',
            ], way


# LlamaIndex and AG2, as their own classes write them


def llama(role: str, *blocks: Any, **more: Any) -> Any:
    return {"role": role, "additional_kwargs": more, "blocks": [*blocks]}


def test_messages_of_llama_index() -> None:
    said = {"block_type": "text", "text": "add"}
    mime = {"image_mimetype": "image/png", "path": None, "url": None, "detail": None}
    given = {"tool_call_id": "1", "tool_name": "add", "tool_kwargs": {"a": 2}}
    state = {
        "messages": [
            llama("user", said, {"block_type": "image", "image": PIXEL, **mime}),
            llama(
                "assistant",
                {"block_type": "thinking", "content": "hm", "num_tokens": None},
                {"block_type": "tool_call", **given},
                {"block_type": "cache", "cache_control": {"type": "ephemeral", "ttl": "5m"}},
            ),
            llama("tool", {"block_type": "text", "text": "5"}, tool_call_id="1", name="add"),
            {**llama("assistant", {"block_type": "text", "text": "Five."}), "status": "archived"},
            llama("user", {"block_type": "document", "data": PIXEL, "title": "a.pdf"}),
            llama("user", {"block_type": "image", "image": None, "url": "https://a/b.png"}),
            llama("user", {"block_type": "other", "field": 1}),
        ]
    }
    assert told(state) == [
        "0 user: add | <image image/png 8>",
        '1 assistant: (hm) | add#1 {"a": 2} -> 5',
        '3 assistant: Five. | ={"status": "archived"}',
        "4 user: <document a.pdf 8>",
        "5 user: <image https://a/b.png>",
        '6 user: ={"field": 1, "type": "other"}',
    ]


def ag2(kind: str, /, **fields: Any) -> Any:
    return {"__event__": f"ag2.events.types.{kind}", "created_at": 1.5, **fields}


def test_events_of_ag2() -> None:
    call = ag2("ToolCallEvent", id="1", name="add", arguments='{"a": 2}')
    result = {"data": {"parts": [ag2("TextInput", content="5")], "final": False}}
    answer = ag2("ToolResultEvent", parent_id="1", name="add", result=result)
    calls = ag2("ToolCallsEvent", calls=[call])
    failed = ag2(
        "ToolErrorEvent", parent_id="2", name="add", result=result, error={"message": "no"}
    )
    message = ag2("ModelMessage", content="Five.", metadata={})
    said = [ag2("TextInput", content="add"), ag2("DataInput", data={"b": 1})]
    state = {
        "events": [
            ag2("UsageEvent", label="model_call"),
            ag2("ModelRequest", parts=said),
            ag2("ModelResponse", message=None, tool_calls=calls, usage={}),
            *(calls, call, answer),
            ag2("ToolResultsEvent", results=[answer]),
            ag2("ModelResponse", message=message, tool_calls=ag2("ToolCallsEvent", calls=[])),
            ag2("ToolResultsEvent", results=[failed]),
        ]
    }
    assert told(state) == [
        '1 user: add | ={"b": 1}',
        '2 assistant: add#1 {"a": 2} -> 5',
        "7 assistant: Five.",
        "8 tool: None#2 ->! 5",
    ]


# Gemini, and Google's Agent Development Kit


def test_gemini() -> None:
    for call, response, inline, file, mime, uri in [
        ("functionCall", "functionResponse", "inlineData", "fileData", "mimeType", "fileUri"),
        ("function_call", "function_response", "inline_data", "file_data", "mime_type", "file_uri"),
    ]:
        empty = {inline: {mime: "image/png", "data": ""}}
        asked = [
            {"text": "hm", "thought": True, "thoughtSignature": "s", "video_metadata": None},
            {call: {"name": "f", "args": {"a": 1}}},
            {call: {"name": "g", "id": "7"}},
            {call: {"name": "f", "args": {"a": 2}}},
            {inline: {mime: "image/png", "data": PIXEL}},
            {file: {mime: "video/mp4", uri: "gs://b/v"}},
            {call: {"args": {}}},
        ]
        given = [
            {response: {"name": "f", "response": {"output": 1}}},
            {response: {"name": "f", "response": {"error": "no"}}},
            {response: {"name": "g", "id": "7", "parts": [empty]}},
        ]
        state = {
            "history": [{"role": "model", "parts": asked}, {"role": "user", "parts": given}],
        }
        assert chat_of(state).path == "/history", call
        assert told(state) == [
            '0 assistant: (hm) | f#None {"a": 1} -> ={"output": 1} | g#7 {} -> <image image/png>'
            ' | f#None {"a": 2} ->! ={"error": "no"} | <image image/png 8>'
            f' | <video video/mp4 gs://b/v> | ={{"{call}": {{"args": {{}}}}}}'
        ], call


NOTHING: dict[str, Any] = {"state_delta": {}, "artifact_delta": {}, "requested_auth_configs": {}}


def event(author: str, *parts: Any, **more: Any) -> dict[str, Any]:
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


CALLED = {"function_call": {"id": "c1", "name": "weather", "args": {"city": "Lisbon"}}}
SKY = {"function_response": {"id": "c1", "name": "weather", "response": {"sky": "blue"}}}
CHANGED = {**NOTHING, "state_delta": {"mood": "calm"}}


@for_each(
    ("events", "lines"),
    [
        (
            [
                event("user", {"text": "hello"}),
                event("guide", {"text": "let me see", "thought": True}, {"text": "hi"}),
            ],
            ["0 user: hello", "1 assistant guide: (let me see) | hi"],
        ),
        (
            [event("guide", CALLED), event("guide", SKY)],
            ['0 assistant guide: weather#c1 {"city": "Lisbon"} -> ={"sky": "blue"}'],
        ),
        # One that says and changes nothing is left out, such as the last of an agent.
        (
            [
                event("user", {"text": "hello"}),
                event("guide", content=None),
                event("guide", {"text": "hi"}),
                event("guide"),
            ],
            ["0 user: hello", "2 assistant guide: hi"],
        ),
        # One without words shows what it did.
        (
            [
                event("guide", actions=CHANGED, content=None),
                event("user", actions={"rewind_before_invocation_id": "e-1"}, content=None),
                event("guide", content=None, error_code="429", error_message="too many"),
            ],
            [
                '0 assistant guide: ={"state_delta": {"mood": "calm"}}',
                '1 user: ={"rewind_before_invocation_id": "e-1"}',
                '2 assistant guide: ={"error_code": "429", "error_message": "too many"}',
            ],
        ),
        (
            [event("guide", {"function_response": {"name": "f", "response": 1}})],
            ["0 assistant guide: f#None -> =1"],
        ),
    ],
)
def test_events_of_adk(events: list[Any], lines: list[str]) -> None:
    history = [{"role": "user", "content": "a list in the state of the session is not the chat"}]
    state = {"state": {"messages": history, "history": history}, "events": events}
    assert chat_of(state).path == "/events"
    assert told(state) == lines


# Microsoft Agent Framework

MORE: dict[str, Any] = {"additional_properties": {}}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said, **MORE}


def contents(role: str, *blocks: Any, **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "contents": [*blocks], **more}


def called(id: str, name: str, arguments: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": id, "name": name, "arguments": arguments}


SUNNY = {"type": "function_result", "call_id": "c1", "result": "sunny", "items": [text("sunny")]}
FAILED = {"type": "function_result", "call_id": "c2", "result": None, "exception": "no map"}
PICTURE = {"media_type": "image/png", **MORE}
MESSAGES: list[Any] = [
    contents("user", text("Rome?"), **MORE),
    contents(
        "assistant",
        {"type": "text_reasoning", "text": "look it up", **MORE},
        called("c1", "weather", '{"in":"Rome"}'),
        called("c2", "map", {}),
        author_name="guide",
        **MORE,
    ),
    contents("tool", SUNNY, FAILED),
    contents(
        "assistant",
        text("Go!"),
        {"type": "uri", "uri": "https://x/rome.png", **PICTURE},
        {"type": "data", "uri": "data:image/png;base64,YWJj", **PICTURE},
        author_name="guide",
    ),
]
TOLD = [
    "0 user: Rome?",
    '1 assistant guide: (look it up) | weather#c1 {"in": "Rome"} -> sunny | map#c2 {} ->! no map',
    "3 assistant guide: Go! | <image image/png https://x/rome.png> | <image image/png 3>",
]


def checkpoint(messages: Any, executor: str = "guide") -> dict[str, Any]:
    pickled = {"__pickled__": "gAWVBgMAAAA=", "__type__": "agent_framework._types:Message"}
    session = {"type": "session", "session_id": "s", "state": {"in_memory": {"messages": messages}}}
    agent = {"cache": [], "full_conversation": [pickled], "agent_session": session}
    return {
        "workflow_name": "trip",
        "messages": {"hear": [pickled]},
        "state": {"_executor_state": {"hear": {"n": 1}, executor: agent}, "mood": "calm"},
        "pending_request_info_events": {},
        "iteration_count": 3,
    }


def test_the_session_of_an_agent_is_shown() -> None:
    state = checkpoint(MESSAGES)
    before = copy.deepcopy(state)
    path = "/state/_executor_state/guide/agent_session/state/in_memory/messages"
    assert (told(state), chat_of(state).path) == (TOLD, path)
    assert "state.mood" in dict(other_values(state, chat_of(state)))
    assert state == before
    # The longest one, and names may be odd; what the workflow keeps itself comes first.
    state = checkpoint(MESSAGES, "a/b~c")
    other = checkpoint(MESSAGES[:1])["state"]["_executor_state"]["guide"]
    state["state"]["_executor_state"]["other"] = other
    assert (told(state), chat_of(state).path) == (TOLD, "/state/_executor_state")
    assert "state.mood" in dict(other_values(state, chat_of(state)))
    state["state"]["messages"] = [{"role": "user", "content": "Paris?"}]
    assert chat_of(state).path == "/state/messages"
    others: list[Any] = [[], None, {}, "text", 7]
    for messages in others:
        assert read_chat(checkpoint(messages)) is None, messages


# Pydantic AI

NOW = "2026-11-18T03:38:58.885362Z"
REQUEST = {"timestamp": NOW, "run_id": "r", "conversation_id": "c", "state": "complete"}
RESPONSE = {**REQUEST, "usage": {"input_tokens": 1}, "model_name": "m", "provider_name": "p"}


def request(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"parts": list(parts), "kind": "request", **REQUEST, **more}


def response(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"parts": list(parts), "kind": "response", **RESPONSE, **more}


def part(kind: str, **fields: Any) -> dict[str, Any]:
    return {**fields, "timestamp": NOW, "part_kind": kind, "id": None, "provider_details": None}


def test_a_conversation_of_pydantic_ai() -> None:
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
    lines = [
        "0 system: be short | be kind",
        "0 user: add",
        '1 assistant: (hm) | ok | add#1 {"a": 1} -> =2',
        "2 user: and?",
        '3 assistant: two | ={"state": "interrupted"}',
    ]
    assert told(messages) == lines
    entries = [{"id": str(n), "message": each} for n, each in enumerate(messages)]
    assert told({"messages": entries}) == lines
    requests = [request(part("user-prompt", content="x"), instructions=each) for each in "aabNa"]
    requests[3]["instructions"] = None
    instructions = [line for line in told(requests) if "system" in line]
    assert instructions == ["0 system: a", "2 system: b", "4 system: a"]  # where they change


def prompt(item: Any) -> dict[str, Any]:
    return request(part("user-prompt", content=[item]))


def returned(kind: str, **more: Any) -> dict[str, Any]:
    return request(part(kind, tool_name="t", content="x", tool_call_id="1", tool_kind=None, **more))


FILE = {"kind": "binary", "data": "_wCA", "media_type": "application/pdf"}


@for_each(
    ("message", "line"),
    [
        (prompt("see"), "user: see"),
        (prompt({"kind": "text-content", "content": "see", "metadata": None}), "user: see"),
        (
            prompt({"kind": "image-url", "url": "https://x/y", "media_type": "image/png"}),
            "user: <image image/png https://x/y>",
        ),
        (prompt(FILE), "user: <document application/pdf 3>"),
        (prompt({"kind": "binary"}), 'user: ={"kind": "binary"}'),
        (prompt({"kind": "new"}), 'user: ={"kind": "new"}'),
        (prompt(7), "user: =7"),
        (returned("tool-return", outcome="success"), "tool: t#1 -> x"),
        (returned("tool-return", outcome="denied"), 'tool: t#1 ->! x + ={"outcome": "denied"}'),
        (returned("retry-prompt"), "tool: t#1 ->! x"),
        (returned("builtin-tool-return"), "system: t#1 -> x"),
        (request(part("retry-prompt", content="no", tool_name=None)), "user: no"),
        (response(part("speech", transcript="hi", speaker="a", audio=None)), "assistant: hi"),
        (response(part("file", content=FILE)), "assistant: <document application/pdf 3>"),
        (response({"part_kind": "new", "x": 1}), 'assistant: ={"part_kind": "new", "x": 1}'),
        (response(), "assistant: "),
    ],
)
def test_parts_of_pydantic_ai(message: Any, line: str) -> None:
    assert told([message]) == [f"0 {line}"]


def test_a_message_of_several_turns_has_one_anchor() -> None:
    message = request(part("system-prompt", content="a"), part("user-prompt", content="b"))
    state = {"messages": [message, message]}
    html = chat_window(state, chat_of(state), NewMessages())[0]
    assert [html.count(f'id="m{index}"') for index in range(3)] == [1, 1, 0]
