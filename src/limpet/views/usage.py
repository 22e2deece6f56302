"""How many tokens models took, as the messages of a state say, and what that costs.

Providers count differently: tokens from a cache are part of the input, or next to it, and so are
thoughts and the output. Here both are always a part. A message counts once, however many snapshots
and scopes of its session have it: what is counted are the heads.
"""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from math import inf
from typing import Any, NamedTuple, TypeVar

from limpet.api.store import Store
from limpet.errors import Corrupt, InvalidInput
from limpet.model import JSON, SnapshotInfo
from limpet.views.chat.messages import find_agent_results, find_messages, read_claude
from limpet.views.chat.model import Fields, text_of
from limpet.views.format import count_text

T = TypeVar("T")


class Usage(NamedTuple):
    """`cached` and `written`, of the input, were read from a cache and written to one.

    `reasoning` is of the output.
    """

    calls: int = 0
    input: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    reasoning: int = 0


class ModelCall(NamedTuple):
    """A message that says what it took; `position` is -1 if a state has only a total."""

    position: int
    usage: Usage
    message: Fields

    @property
    def model(self) -> str | None:
        return _first(lambda each: text_of(each, *_MODELS), self.message)

    @property
    def at(self) -> datetime | None:
        return _first(_time_of, self.message)

    @property
    def id(self) -> str | None:
        """The id of the answer: a transcript has an entry for each block of one."""
        said = self.message if read_claude(self.message) is None else self.message["message"]
        return _first(lambda each: text_of(each, *_IDS), said)


def usage_text(usage: Usage) -> str:
    """Return `3 calls: 3,400 in (2,000 cached), 560 out`."""
    cached = f" ({usage.cached:,} cached)" if usage.cached else ""
    calls = count_text(usage.calls, "call")
    return f"{calls}: {usage.input:,} in{cached}, {usage.output:,} out"


def total(found: Iterable[Usage]) -> Usage:
    return Usage(*map(sum, zip(*found, strict=True)))


# How frameworks and providers name it

_USAGES = (
    *("usage_metadata", "usageMetadata", "usage", "token_usage", "totalUsage"),
    *("accumulated_usage", "accumulatedUsage"),  # of an agent among several, in Strands
)
_AROUND = ("message", "data", "kwargs", "response_metadata", "metadata")
_HOLDERS = frozenset((*_USAGES, *_AROUND))
_MODELS = ("model", "model_name", "modelName", "model_version", "modelVersion", "modelId")
_TIMES = ("timestamp", "created_at", "createdAt", "created")
_IDS = ("id", "uuid", "message_id", "tracking_id", "trackingId")
_SAID_BY_OTHERS = ("user", "human", "tool", "system")
_TOKENS_MAX = 1e15  # of one call; beyond it is no count

# Anthropic and Bedrock count these next to the input; others that use the names count them in it.
_BESIDE = (
    *("cache_read_input_tokens", "cacheReadInputTokens"),
    *("cache_creation_input_tokens", "cacheWriteInputTokens"),
)
_THOUGHTS = ("thoughts_token_count", "thoughtsTokenCount", "thoughtsTokens")  # Gemini, as they are
_NUMBERS = (  # each by the names that it may have
    "input_tokens prompt_tokens inputTokens promptTokens input_token_count prompt_token_count"
    " promptTokenCount request_tokens",
    "output_tokens completion_tokens outputTokens completionTokens candidates_token_count"
    " candidatesTokenCount output_token_count response_tokens",
    "cache_read cached_tokens cache_read_tokens cacheReadTokens cached_content_token_count"
    " cachedContentTokenCount cachedContentTokens cachedInputTokens cache_read_input_tokens"
    " cacheReadInputTokens prompt_cache_hit_tokens",
    "cache_creation cache_write_tokens cacheWriteTokens cache_creation_input_tokens"
    " cacheWriteInputTokens ephemeral_5m_input_tokens ephemeral_1h_input_tokens",
    "reasoning reasoning_tokens output_reasoning_tokens reasoningTokens thinking_tokens"
    " thoughts_tokens thoughts_token_count thoughtsTokenCount thoughtsTokens",
    "total_tokens totalTokens total_token_count totalTokenCount",
    "tool_use_prompt_token_count toolUsePromptTokenCount",
)
_SLOTS = {name: slot for slot, names in enumerate(_NUMBERS) for name in names.split()}


def read_calls(state: JSON) -> list[ModelCall]:
    """Return what each message of a state took, in their order, whatever framework wrote them."""
    found = find_messages(state)
    messages: Sequence[JSON] = () if found is None else found.messages
    if found is None and (agents := find_agent_results(state)) is not None:
        messages = [result for _, result in agents.results]
    calls = [
        ModelCall(position, usage, each)
        for position, each in enumerate(messages)
        if isinstance(each, dict)
        and not _HOLDERS.isdisjoint(each)
        and (usage := _first(_usage_in, each)) is not None
    ]
    if found is not None and found.is_transcript:
        calls = list({each.id or each.position: each for each in calls}.values())
    if calls or not isinstance(state, dict):
        return calls
    # Only totals: of a run that is stored with its counters, or that waits for a person.
    inner = state.get("context") if "$schemaVersion" in state else state
    whole: Fields = {"usage": inner, **inner} if isinstance(inner, dict) else {}
    usage = _first(_usage_in, whole)
    return [] if usage is None else [ModelCall(-1, usage, whole)]


def _first(read: Callable[[Fields], T | None], message: Fields) -> T | None:
    """Return the first that a message has, or what is around it or in it."""
    if message.get("role", message.get("type")) in _SAID_BY_OTHERS:
        return None
    if (found := read(message)) is not None:
        return found
    inner = (message[name] for name in _AROUND if isinstance(message.get(name), dict))
    return next((each for held in inner if (each := _first(read, held)) is not None), None)


def _usage_in(message: Fields) -> Usage | None:
    if "__event__" in message and not str(message["__event__"]).endswith("UsageEvent"):
        return None  # AG2 counts by events of their own
    for name in _USAGES:
        given = message.get(name)
        if isinstance(given, dict) and (usage := read_usage(given)) is not None:
            return usage
    return None


def read_usage(given: Fields) -> Usage | None:
    """Return what one call took; None if the object does not say so."""
    if "__dataclass__" in given and isinstance(given.get("data"), dict):
        given = given["data"]
    input, output, cached, written, reasoning, everything, of_tools = _filled(given, [0] * 7)
    if not input and not output:
        return None
    aside = cached + written
    if aside > input or (aside and any(name in given for name in _BESIDE)):
        is_part = everything < input + output + aside if everything else "prompt_tokens" in given
        input += 0 if is_part and aside <= input else aside
    if reasoning > output or (reasoning and any(name in given for name in _THOUGHTS)):
        output += 0 if 0 < everything < input + output + reasoning else reasoning
    return Usage(1, input + of_tools, cached, written, max(output, reasoning), reasoning)


def _filled(given: Fields, numbers: list[int]) -> list[int]:
    """Return the numbers with those of an object, then of its details, that were not known."""
    details = []
    for name, value in given.items():
        slot = _SLOTS.get(name)
        if slot is not None and type(value) in (int, float):
            if not numbers[slot] and 0 < value < _TOKENS_MAX:
                numbers[slot] = int(value)
        elif value and name.endswith(("details", "Details")):
            details += value if isinstance(value, list) else [value]
    for each in details:
        numbers = _filled(each, numbers) if isinstance(each, dict) else numbers
    return numbers


def _time_of(given: Fields) -> datetime | None:
    for name in _TIMES:
        value = given.get(name)
        with suppress(ValueError, OverflowError, OSError):
            if isinstance(value, str):
                found = datetime.fromisoformat(value)
                return found.replace(tzinfo=found.tzinfo or UTC).astimezone(UTC)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return datetime.fromtimestamp(value / (1 if value < 1e11 else 1000), UTC)
    return None


# Of sessions


def session_calls(
    store: Store, session_id: str, skipped: Callable[[Corrupt], object]
) -> Iterator[tuple[ModelCall, SnapshotInfo]]:
    """Yield the calls of a session, each once: forks and graphs in graphs share messages.

    A damaged head is skipped, and reported.
    """
    seen: set[object] = set()
    for scope in store.scopes(session_id):
        head = None
        try:
            head = store.scope(*scope.key).load()
        except Corrupt as error:
            skipped(error)
        here: list[object] = [None]  # within one scope, equal messages are several
        for call in () if head is None else read_calls(head.state):
            # Some count their ids up in each scope. Without one it is the same only after the same.
            after = call.id or hash((here[-1], repr(call.message)))
            here.append((after, call.usage))
            if head is not None and here[-1] not in seen:
                yield call, head
        seen.update(here)


class Price(NamedTuple):
    """Of a million tokens; those of a cache cost what others do, unless they have a price."""

    input: float
    output: float
    cached: float
    written: float


class Prices(NamedTuple):
    """Prices by the name of a model, or by a pattern such as `gpt-5*`: the longest one counts."""

    currency: str = ""
    models: Mapping[str, Price] = {}

    def cost(self, call: ModelCall) -> float | None:
        """Return what a call cost; None if its model has no price."""
        names = [each for each in self.models if fnmatchcase(call.model or "", each)]
        if not names:
            return None
        price, (_, input, cached, written, output, _) = self.models[max(names, key=len)], call.usage
        plain = (input - cached - written) * price.input + output * price.output
        return (plain + cached * price.cached + written * price.written) / 1_000_000


def parse_prices(text: str) -> Prices:
    """Read a table of prices, which is TOML.

    Raises:
        InvalidInput: it is not one.
    """
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as cause:
        raise InvalidInput(f"the prices are not TOML: {cause}") from cause
    currency = given.pop("currency", "")
    return Prices(str(currency), {name: _price(name, each) for name, each in given.items()})


def _price(model: str, given: Any) -> Price:
    prices: Fields = given if isinstance(given, dict) else {}
    are_known = {"input", "output"} <= prices.keys() <= {*Price._fields}
    are_numbers = all(type(each) in (int, float) and 0 <= each < inf for each in prices.values())
    if not are_known or not are_numbers:
        fact = "a price must have input and output, and may have cached and written, each a number"
        hint = 'and a name with a dot is quoted, as in ["gpt-4.1"]'
        raise InvalidInput(f"{fact}; {hint}. model=`{model}`")
    return Price(**{"cached": prices["input"], "written": prices["input"], **prices})


LABEL = "label="


class Row(NamedTuple):
    """What calls took; `unpriced` counts those without a price."""

    key: str
    model: str = ""
    usage: Usage = Usage()
    cost: float = 0.0
    unpriced: int = 0

    def plus(self, other: "Row") -> "Row":
        used, cost = total([self.usage, other.usage]), self.cost + other.cost
        return Row(self.key, self.model, used, cost, self.unpriced + other.unpriced)


def report(
    store: Store,
    sessions: Iterable[str],
    by: str,
    prices: Prices,
    skipped: Callable[[Corrupt], object],
) -> Iterator[Row]:
    """Yield a row for each message, session, day, model or value of a label; see `limpet usage`.

    Those of messages and sessions come as they are read, others in the order of their keys.
    """
    rows: dict[str, Row] = {}
    for session_id in sessions:
        for call, head in session_calls(store, session_id, skipped):
            model, cost = call.model or "", prices.cost(call)
            row = Row(session_id, "", call.usage, cost or 0.0, int(cost is None))
            if by == "message":
                key = f"{head.scope.scope_id}:{call.position}"
                yield row._replace(key=key, model=model)
                continue
            if by == "day":
                key = (call.at or head.created_at).date().isoformat()
            elif by.startswith(LABEL):
                key = head.labels.get(by.removeprefix(LABEL), "")
            else:
                key = model if by == "model" else session_id
            rows[key] = rows[key].plus(row) if key in rows else row._replace(key=key)
        if by == "session":
            yield from rows.values()
            rows.clear()
    yield from (rows[key] for key in sorted(rows))
