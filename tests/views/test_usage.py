"""Tokens that messages took: in the words of each framework, each once, and what they cost."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

import limpet
from limpet import InvalidInput
from limpet.compat.langgraph import LimpetSaver
from limpet.views.usage import Usage, parse_prices, read_calls, read_usage, report, total
from tests.cases import for_each


@for_each(
    ("given", "used"),
    [
        # OpenAI: chat, responses, the SDK's own, and LiteLLM, which has Anthropic's names too
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 20,
                "total_tokens": 120,
                "prompt_tokens_details": {"cached_tokens": 60, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 15},
            },
            (100, 60, 0, 20, 15),
        ),
        (
            {
                "input_tokens": 100,
                "input_tokens_details": [{"cached_tokens": 60, "cache_write_tokens": 5}],
                "output_tokens": 20,
                "output_tokens_details": [{"reasoning_tokens": 15}],
                "total_tokens": 120,
            },
            (100, 60, 5, 20, 15),
        ),
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 20,
                "cache_read_input_tokens": 60,
                "prompt_tokens_details": {"cached_tokens": 60},
            },
            (100, 60, 0, 20, 0),
        ),
        # Anthropic, with and without a cache; LangChain's of it
        ({"input_tokens": 10, "output_tokens": 20, "service_tier": "standard"}, (10, 0, 0, 20, 0)),
        (
            {
                "input_tokens": 10,
                "output_tokens": 20,
                "cache_read_input_tokens": 60,
                "cache_creation_input_tokens": 30,
                "cache_creation": {"ephemeral_5m_input_tokens": 30},
            },
            (100, 60, 30, 20, 0),
        ),
        (
            {
                "input_tokens": 100,
                "output_tokens": 20,
                "total_tokens": 120,
                "input_token_details": {
                    "cache_read": 60,
                    "cache_creation": 0,
                    "ephemeral_5m_input_tokens": 30,
                },
                "output_token_details": {"reasoning": 15},
            },
            (100, 60, 30, 20, 15),
        ),
        # Gemini and ADK: thoughts are not part of the candidates
        (
            {
                "promptTokenCount": 90,
                "toolUsePromptTokenCount": 10,
                "candidatesTokenCount": 5,
                "thoughtsTokenCount": 15,
                "cachedContentTokenCount": 60,
                "totalTokenCount": 120,
            },
            (100, 60, 0, 20, 15),
        ),
        (
            {
                "prompt_token_count": 100,
                "candidates_token_count": 5,
                "thoughts_token_count": 15,
                "cached_content_token_count": 60,
            },
            (100, 60, 0, 20, 15),
        ),
        # Strands: of Bedrock, where the cache is next to the input, and of OpenAI
        (
            {
                "inputTokens": 10,
                "outputTokens": 20,
                "totalTokens": 120,
                "cacheReadInputTokens": 60,
                "cacheWriteInputTokens": 30,
            },
            (100, 60, 30, 20, 0),
        ),
        (
            {
                "inputTokens": 100,
                "outputTokens": 20,
                "totalTokens": 120,
                "cacheReadInputTokens": 60,
            },
            (100, 60, 0, 20, 0),
        ),
        # Pydantic AI, Genkit, Vercel, AG2
        (
            {
                "input_tokens": 100,
                "cache_read_tokens": 60,
                "cache_write_tokens": 30,
                "output_tokens": 20,
                "output_reasoning_tokens": 15,
                "details": {"input_tokens": 10, "cache_read_input_tokens": 60},  # Anthropic's own
            },
            (100, 60, 30, 20, 15),
        ),
        (
            {"details": {"input_tokens": 7}, "input_tokens": 10, "output_tokens": 2},
            (10, 0, 0, 2, 0),
        ),
        (
            {
                "inputTokens": 100,
                "outputTokens": 5,
                "thoughtsTokens": 15,
                "cachedContentTokens": 60,
                "totalTokens": 120,
            },
            (100, 60, 0, 20, 15),
        ),
        (
            {
                "inputTokens": 100,
                "inputTokenDetails": {"noCacheTokens": 40, "cacheReadTokens": 60},
                "outputTokens": 20,
                "outputTokenDetails": {"textTokens": 5, "reasoningTokens": 15},
            },
            (100, 60, 0, 20, 15),
        ),
        (
            {
                "__dataclass__": "ag2.events.types.Usage",
                "data": {"prompt_tokens": 100, "completion_tokens": 20, "thinking_tokens": None},
            },
            (100, 0, 0, 20, 0),
        ),
        ({"input_tokens": 0, "output_tokens": 0}, None),
        ({"input_tokens": "many", "output_tokens": True, "total": 3}, None),
        ({"input_tokens": -1, "output_tokens": 1e300, "cached_tokens": [1]}, None),
    ],
)
def test_each_provider_is_understood(given: Any, used: tuple[int, ...] | None) -> None:
    assert read_usage(given) == (None if used is None else Usage(1, *used))


Graph: Any = StateGraph  # whose types are too strict for functions of these tests
OPENAI = {"prompt_tokens": 10, "completion_tokens": 2}
ANTHROPIC = {"input_tokens": 10, "output_tokens": 2}
ENTRY = {"id": "msg-1", "role": "assistant", "model": "claude-x", "content": []}
CLAUDE = {"type": "assistant", "sessionId": "s", "timestamp": "2026-01-02T03:04:05.678Z"}


@for_each(
    ("message", "model", "day"),
    [
        ({"role": "assistant", "content": "hi", "usage": OPENAI, "model": "m"}, "m", None),
        ({**CLAUDE, "uuid": "1", "message": {**ENTRY, "usage": ANTHROPIC}}, "claude-x", 2),
        (
            {
                "type": "ai",
                "content": "hi",
                "usage_metadata": None,
                "response_metadata": {"token_usage": OPENAI, "model_name": "m"},
            },
            "m",
            None,
        ),
        (
            {
                "lc": 1,
                "type": "constructor",
                "id": ["langchain", "AIMessage"],
                "kwargs": {"content": "hi", "usage_metadata": ANTHROPIC},
            },
            None,
            None,
        ),
        (
            {
                "author": "agent",
                "actions": {},
                "content": {"parts": [{"text": "hi"}]},
                "usage_metadata": {"prompt_token_count": 10, "candidates_token_count": 2},
                "model_version": "gemini-x",
                "timestamp": 1767409445.5,
            },
            "gemini-x",
            3,
        ),
        (
            {
                "id": "1",
                "role": "assistant",
                "parts": [],
                "metadata": {"totalUsage": {"inputTokens": 10, "outputTokens": 2}, "model": "m"},
            },
            "m",
            None,
        ),
    ],
)
def test_where_a_message_says_it(message: Any, model: str | None, day: int | None) -> None:
    others = [{"role": "user", "content": "hello", "usage": OPENAI}, message]
    key = "entries" if "sessionId" in message else "events" if "author" in message else "messages"
    (call,) = read_calls({key: others[1:] if key == "events" else others})
    assert (call.usage, call.model) == (Usage(1, 10, 0, 0, 2, 0), model)
    assert (call.at and call.at.day) == day


@for_each("at", [True, "0001-01-01T00:00:00+14:00", -1e300, [1], {}])
def test_what_is_no_time_is_none(at: Any) -> None:
    (call,) = read_calls([{"role": "assistant", "content": "hi", "usage": OPENAI, "created": at}])
    assert call.at is None


def test_an_answer_of_several_entries_counts_once() -> None:
    usages: list[Any] = [{**ANTHROPIC, "output_tokens": each} for each in (1, 1, 7)]
    entries = [
        {**CLAUDE, "uuid": str(n), "message": {**ENTRY, "usage": u}} for n, u in enumerate(usages)
    ]
    (call,) = read_calls({"entries": entries})
    assert call.usage.output == 7


def test_a_state_may_have_only_totals() -> None:
    run = {"messages": [{"role": "user", "content": "hi"}], "input_tokens": 10, "output_tokens": 2}
    waiting = {"$schemaVersion": "1", "context": {"usage": ANTHROPIC}, "model_responses": []}
    for state in (run, waiting):
        (call,) = read_calls(state)
        assert (call.position, call.usage.output) == (-1, 2)
    silent = {"messages": [{"role": "assistant", "content": "hi"}]}
    nothing: list[Any] = [{"n": 1}, [], None, silent]
    assert [each for each in nothing if read_calls(each)] == []


# Of sessions


def said(text: str, **more: Any) -> Any:
    return {"role": "assistant", "content": text, "usage": OPENAI, **more}


def rows(store: limpet.Store, by: str, prices: str = "") -> dict[str, Any]:
    skipped: list[Any] = []
    found = report(store, store.sessions(), by, parse_prices(prices), skipped.append)
    return {row.key: row for row in found}


def test_a_message_counts_once_in_a_session() -> None:
    with limpet.open("memory:") as store:
        line = store.scope("s")
        for text in ("ok", "ok", "done"):  # equal messages are several
            line.append("messages", [said(text)])
        fork = line.fork(line.info().id, scope_id="fork")  # type: ignore[union-attr]
        fork.append("messages", [said("other", id="7")])
        store.scope("s", "team").save({"messages": [said("other", id="7"), said("ok")]})
        assert rows(store, "session")["s"].usage.calls == 5
        store.scope("s", "team", kind="graph").save({"messages": [said("more")] * 2})
        own = said("its own", id="7", usage={"input_tokens": 3, "output_tokens": 1})
        store.scope("s", "other").save({"messages": [own]})
        skipped: list[Any] = []
        found = [*report(store, ["s"], "message", parse_prices(""), skipped.append)]
        assert [row.usage.calls for row in found] == [1] * 8


def test_a_thread_of_graphs_in_graphs_counts_each_answer_once() -> None:
    usage: Any = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}

    def say(_: Any) -> Any:
        return {"messages": [AIMessage("hi", usage_metadata=usage)]}

    inner = Graph(MessagesState).add_node("say", say).add_edge(START, "say")
    outer = Graph(MessagesState).add_node("inner", inner.compile(checkpointer=True))
    with limpet.open("memory:") as store:
        graph = outer.add_edge(START, "inner").compile(checkpointer=LimpetSaver(store))
        for text in ("hello", "again"):
            graph.invoke({"messages": [("user", text)]}, {"configurable": {"thread_id": "t"}})
        assert len([*store.scopes("t")]) == 2
        assert rows(store, "session")["t"].usage == Usage(2, 20, 0, 0, 4, 0)


PRICES = """
currency = "EUR"
["gpt*"]
input = 1
output = 10
["gpt-5*"]
input = 2
output = 20
cached = 0.5
"""


def test_what_it_cost() -> None:
    cached = {**OPENAI, "prompt_tokens_details": {"cached_tokens": 4}}
    with limpet.open("memory:") as store:
        line = store.scope("s")
        for model in ("gpt-4", "gpt-5-mini", "other"):
            line.append("messages", [said("hi", model=model, usage=cached)], labels={"who": "ann"})
        store.scope("t").save({"messages": [said("hi")]})
        found = rows(store, "model", PRICES)
        assert [*found] == ["", "gpt-4", "gpt-5-mini", "other"]
        costs = [(round(row.cost * 1e6, 6), row.unpriced) for row in found.values()]
        assert costs == [(0, 1), (30, 0), (6 * 2 + 4 * 0.5 + 2 * 20, 0), (0, 1)]
        by_label = rows(store, "label=who", PRICES)
        assert {key: (round(row.cost * 1e6, 6), row.unpriced) for key, row in by_label.items()} == {
            "": (0, 1),
            "ann": (84, 1),
        }
        assert total(row.usage for row in found.values()) == total(
            row.usage for row in rows(store, "day").values()
        )


@for_each(
    "text",
    [
        "[",
        '["m"]\ninput = 1',
        '["m"]\ninput = 1\noutput = "2"',
        "m = 1",
        "[m]\ninput = 1\noutput = inf",
    ],
)
def test_a_wrong_table_of_prices_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_prices(text)
