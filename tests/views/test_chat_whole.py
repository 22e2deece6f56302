"""Nothing that a message holds is lost, and no file in it is printed."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from limpet.views.chat import (
    Answer,
    Call,
    Media,
    Result,
    Text,
    Value,
    turn_text,
    value_text,
)
from limpet.views.chat.model import TECHNICAL
from tests.views.chat_kit import LINK, PIXEL, chat_of, done

ODD = {"extra": "EXTRA"}


def parts_of(*messages: Any) -> list[Any]:
    return [part for turn in chat_of({"messages": [*messages]}).turns for part in turn.parts]


def said(*content: Any) -> list[Any]:
    return parts_of({"role": "assistant", "content": [*content]})


# Members that nobody knows.


MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {"role": "user", "content": [{"text": "hi"}]},
    {"role": "model", "parts": [{"text": "hi"}]},
    {"role": "assistant", "content": None, "refusal": "no"},
    {"role": "tool", "tool_call_id": "1", "content": "hi"},
    {"role": "tool", "name": "f", "args": {}, "content": "hi"},
    {"type": "human", "content": "hi"},
    {"type": "ai", "data": {"content": "hi"}},
    {"message": {"role": "user", "content": "hi"}, "message_id": 3},
    {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "1", "output": "hi"},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
    {"type": "image_generation_call", "result": PIXEL},
]
NAMES = st.text(alphabet="xyz", min_size=1)
WORTH = st.booleans() | st.integers() | st.text(min_size=1) | st.lists(st.none(), min_size=1)


def values_in(part: Any) -> list[Any]:
    if isinstance(part, Call | Answer):
        return [] if part.result is None else [*part.result.parts]
    return [part]


@given(st.sampled_from(MESSAGES), st.dictionaries(NAMES, WORTH, min_size=1))
def test_members_that_nobody_knows_are_there_as_they_are(
    message: dict[str, Any], odd: dict[str, Any]
) -> None:
    parts = [each for part in parts_of({**message, **odd}) for each in values_in(part)]
    assert Value(odd) in parts


def test_a_message_that_is_known_whole_has_nothing_more() -> None:
    for message in MESSAGES:
        empty: dict[str, Any] = {"a": None, "b": "", "c": [], "d": {}, "status": "completed"}
        technical = dict.fromkeys(TECHNICAL - {"type", "role"}, "x")
        assert parts_of({**technical, **empty, **message}) == parts_of(message), message


def test_members_around_a_message() -> None:
    wrapped = {"type": "human", "data": {"content": "hi"}, **ODD}
    logged = {"message": {"role": "user", "content": "hi"}, "redact_message": {"a": 1}}
    assert parts_of(wrapped) == [Text("hi"), Value(ODD)]
    assert parts_of(logged) == [Text("hi"), Value({"redact_message": {"a": 1}})]


def test_what_langchain_keeps_as_the_model_gave_it() -> None:
    call = {"name": "f", "args": {}, "id": "1", "type": "tool_call"}
    again = [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]
    more = {"tool_calls": again, "function_call": {"name": "f"}, "refusal": None, **ODD}
    message = {"type": "ai", "content": "", "tool_calls": [call], "additional_kwargs": more}
    result = {"type": "tool", "content": "5", "tool_call_id": "1", "artifact": {"rows": 3}}
    assert parts_of(message, result) == [
        done("f", {}, "1", Text("5"), Value({"artifact": {"rows": 3}})),
        Value(ODD),
    ]


def test_a_text_that_stands_in_the_parts_too_is_said_once() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert parts_of({"role": "user", "content": "ab", "parts": parts}) == [Text("a"), Text("b")]
    assert parts_of({"role": "user", "content": "c", "parts": parts[:1]}) == [Text("c"), Text("a")]


def test_thoughts_that_are_written_twice_are_thought_once() -> None:
    message = {"role": "assistant", "content": "x", "reasoning": "hm", "reasoning_content": "hm"}
    assert parts_of(message) == [Text("hm", thinking=True), Text("x")]


# What was spoken, refused, cited.


def test_audio_is_its_transcript_and_a_file() -> None:
    audio = {"id": "a1", "transcript": "spoken", "data": PIXEL, "expires_at": 1}
    message = {"role": "assistant", "content": None, "audio": audio}
    assert parts_of(message) == [Text("spoken"), Media("audio", "a1", None, 8)]
    assert turn_text(chat_of([message]).turns[0]) == "spoken [audio a1 (8 B)]"
    assert parts_of({**message, "audio": {"id": "a1"}}) == [Media("audio", "a1", None, None)]
    assert parts_of({**message, "audio": 3}) == [Value({"audio": 3})]
    block = {"type": "output_audio", "transcript": "spoken", "data": PIXEL}
    assert said(block) == [Text("spoken"), Media("audio", None, None, 8)]


def test_a_refusal_is_told_apart() -> None:
    assert said({"type": "refusal", "refusal": "no"}) == [Text("refused: no")]
    message = {"role": "assistant", "content": "", "refusal": "no"}
    assert parts_of(message) == [Text("refused: no")]
    assert parts_of({**message, "refusal": 3}) == [Value({"refusal": 3})]


def test_developers_are_called_so() -> None:
    assert chat_of([{"role": "developer", "content": "x"}]).turns[0].role == "developer"


def test_citations_are_kept() -> None:
    cited = {"citations": [{"title": "T", "location": {"web": {"url": "http://x"}}}]}
    page = {"type": "page_location", "cited_text": "c"}
    link = {"type": "url_citation", "url": "http://x"}
    assert said(
        {"citationsContent": {"content": [{"text": "a"}, {"odd": 1}], **cited}},
        {"citations": {"content": [{"text": "b"}], "citations": []}},
        {"type": "text", "text": "c", "citations": [page]},
        {"type": "output_text", "text": "d", "annotations": [link], "logprobs": []},
    ) == [
        *(Text("a"), Value({"odd": 1}), Value(cited), Text("b")),
        *(Text("c"), Value({"citations": [page]}), Text("d"), Value({"annotations": [link]})),
    ]
    message = {"role": "assistant", "content": "e", "annotations": [link]}
    assert parts_of(message) == [Text("e"), Value({"annotations": [link]})]


# Files.


def test_files_by_their_location() -> None:
    places: list[Any] = [
        {"source": {"s3Location": {"uri": "s3://b/v.mp4", "bucketOwner": "1"}}},
        {"source": {"location": {"type": "s3", "uri": "s3://b/v.mp4"}}},
        {"source": {"location": "s3://b/v.mp4"}},
        {"location": {"uri": "s3://b/v.mp4"}},
        {"s3Location": {"uri": "s3://b/v.mp4"}},
    ]
    for held in places:
        found = Media("video", None, "video/mp4", None, "s3://b/v.mp4")
        assert said({"video": {"format": "mp4", **held}}) == [found], held


def test_a_screenshot_is_an_image() -> None:
    shot = {"type": "computer_screenshot", "image_url": LINK}
    items = [
        {"type": "computer_call", "call_id": "1", "action": {"type": "click"}},
        {"type": "computer_call_output", "call_id": "1", "output": shot},
    ]
    image = Media("image", None, "image/png", 8)
    assert parts_of(*items) == [done("computer", {"type": "click"}, "1", image)]


def test_a_text_that_is_a_file_is_a_file() -> None:
    image = Media("image", None, "image/png", 8)
    drawing = Media("image", None, "image/svg+xml", 5)
    assert said(LINK, {"text": LINK}, {"type": "text", "text": LINK}) == [image] * 3
    assert said("data:image/svg+xml,%3Csvg/", LINK.replace("data", "DATA")) == [drawing, image]
    assert parts_of({"role": "tool", "tool_call_id": "1", "content": LINK}) == [
        Answer(None, "1", Result((image,)))
    ]
    for text in ("data: a, b", "data:a/b", "see data:image/png;base64,AA", "data:text/plain,a b"):
        assert said(text) == [Text(text)]


def test_bytes_in_a_value_give_way_to_their_size() -> None:
    assert value_text({"odd": LINK}) == '{"odd": "… 8 B of image/png"}'
    assert value_text("data:text/plain,a%20b") == '"… 3 B of text/plain"'
    wrapped = f"data:image/png;base64,{PIXEL[:4]}\r\n{PIXEL[4:]}"
    assert value_text([wrapped]) == '["… 8 B of image/png"]'


def test_what_built_in_tools_gave() -> None:
    outputs = [{"type": "logs", "logs": "5"}, {"type": "image", "url": LINK}]
    ran = {"type": "code_interpreter_call", "id": "1", "code": "x", "outputs": outputs}
    image = Media("image", None, "image/png", 8)
    assert parts_of({**ran, "container_id": "c"}) == [
        done("code_interpreter", "x", "1", Value(outputs[0]), image),
        Value({"container_id": "c"}),
    ]
    found = {"type": "file_search_call", "id": "1", "queries": ["q"], "results": [{"file": "f"}]}
    assert parts_of(found) == [done("file_search", ["q"], "1", Value([{"file": "f"}]))]
