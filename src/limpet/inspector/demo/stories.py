"""What the agents of the demo say and do, and their messages as each framework writes them.

All of it is made up, in `stories.json`. A beat of a story is what a user said, what an agent said,
or a call of a tool with its result: `{"user": …}`, `{"say": …}`, `{"tool": …, "arguments": …}`.
"""

import json
from collections.abc import Callable, Iterable
from importlib.resources import files
from typing import Any, Final, TypeAlias

from limpet.model import JSON

Beat: TypeAlias = dict[str, Any]
Message: TypeAlias = dict[str, Any]
Shape: TypeAlias = Callable[[Beat, str], list[Message]]
"""Makes the messages of a beat; the text is the id of its tool call."""

_STORIES = json.loads((files(__package__) / "stories.json").read_text(encoding="utf-8"))
TRIP: Final[list[Beat]] = _STORIES["trip"]
TRIP_BY_DAY: Final[list[Beat]] = _STORIES["trip-by-day"]
TRIP_STOP: Final[list[Beat]] = _STORIES["trip-stop"]
TRIP_CHEAP: Final[list[Beat]] = _STORIES["trip-cheap"]
BUG: Final[list[Beat]] = _STORIES["bug"]
BUG_DEAD_END: Final[list[Beat]] = _STORIES["bug-dead-end"]
KELP: Final[list[Beat]] = _STORIES["kelp"]
INCIDENT: Final[list[Beat]] = _STORIES["incident"]
SUPPORT: Final[dict[str, Any]] = _STORIES["support"]

TRIP_FORK_AT = 3  # messages: the options are shown, and nothing is chosen
BUG_BRANCH_AT = 5  # messages: the file has been read
TRIP_PROMPT = "You plan trips by train. Never spend money without asking first."
LIGHTHOUSE = (
    "The lighthouse had been automatic for thirty years, and for thirty years Inge had gone up"
    " every evening to check that it was. \u201cSomebody should,\u201d she told the gulls. Tonight"
    " the lamp turned, the fog came in from the north, and out there, between two sweeps of the"
    " light, somebody"
)
INVOICE = {"number": 2041, "from": "Nordlicht GmbH", "euros": 4180.0, "order": "PO-118"}
ORDER = {"order": "PO-118", "euros": 4000.0, "lines": ["20 lamps at 200.00"]}


def _test_runs() -> str:
    """Return a long result: of tests of which one fails now and then."""
    runs = [
        f"tests/test_checkout.py::test_{name}[{run}-{size}] "
        + ("FAILED" if (run, size, name) in ((7, 3, "total"), (31, 3, "total")) else "PASSED")
        for run in range(60)
        for name in ("total", "discount", "tax", "currency", "empty_basket")
        for size in range(8)
    ]
    error = "E   AssertionError: assert Decimal('59.97') == Decimal('79.96')"
    return "\n".join([*runs, "", error, f"2 failed, {len(runs) - 2} passed in 84.20s"])


BUG[1]["result"] = _test_runs()


def messages_of(story: Iterable[Beat], shape: Shape) -> list[Message]:
    return [each for at, beat in enumerate(story) for each in shape(beat, f"call-{at}")]


def strands(beat: Beat, id: str) -> list[Message]:
    if "user" in beat:
        blocks: list[Message] = [{"text": beat["user"]}]
        if "image" in beat:
            blocks.append({"image": {"format": "png", "source": {"bytes": beat["image"]}}})
        return [{"role": "user", "content": blocks}]
    content: list[Message] = []
    if "thought" in beat:
        content.append({"reasoningContent": {"reasoningText": {"text": beat["thought"]}}})
    if "say" in beat:
        return [{"role": "assistant", "content": [*content, {"text": beat["say"]}]}]
    use = {"toolUseId": id, "name": beat["tool"], "input": beat["arguments"]}
    kind = "text" if isinstance(beat["result"], str) else "json"
    status = "error" if "failed" in beat else "success"
    result = {"toolUseId": id, "status": status, "content": [{kind: beat["result"]}]}
    return [
        {"role": "assistant", "content": [*content, {"toolUse": use}]},
        {"role": "user", "content": [{"toolResult": result}]},
    ]


def anthropic(beat: Beat, id: str) -> list[Message]:
    if "user" in beat:
        return [{"role": "user", "content": beat["user"]}]
    content: list[Message] = []
    if "thought" in beat:
        content.append({"type": "thinking", "thinking": beat["thought"], "signature": "ZGVtbw=="})
    if "say" in beat:
        content.append({"type": "text", "text": beat["say"]})
        return [{"role": "assistant", "content": content}]
    use = {"type": "tool_use", "id": id, "name": beat["tool"], "input": beat["arguments"]}
    result: Message = {"type": "tool_result", "tool_use_id": id, "content": _text(beat["result"])}
    result |= {"is_error": True} if "failed" in beat else {}
    return [
        {"role": "assistant", "content": [*content, use]},
        {"role": "user", "content": [result]},
    ]


def openai(beat: Beat, id: str) -> list[Message]:
    if "user" in beat:
        return [{"role": "user", "content": beat["user"]}]
    thought = {"reasoning_content": beat["thought"]} if "thought" in beat else {}
    if "say" in beat:
        return [{"role": "assistant", "content": beat["say"], **thought}]
    arguments = json.dumps(beat["arguments"], ensure_ascii=False)
    function = {"name": beat["tool"], "arguments": arguments}
    calls = [{"id": id, "type": "function", "function": function}]
    return [
        {"role": "assistant", "content": None, "tool_calls": calls, **thought},
        {"role": "tool", "tool_call_id": id, "content": _text(beat["result"])},
    ]


def genkit(beat: Beat, id: str) -> list[Message]:
    if "user" in beat:
        parts: list[Message] = [{"text": beat["user"]}]
        if "image" in beat:
            url = f"data:image/png;base64,{beat['image']}"
            parts.append({"media": {"contentType": "image/png", "url": url}})
        return [{"role": "user", "content": parts}]
    content: list[Message] = [{"reasoning": beat["thought"]}] if "thought" in beat else []
    if "say" in beat:
        return [{"role": "model", "content": [*content, {"text": beat["say"]}]}]
    request = {"name": beat["tool"], "ref": id, "input": beat["arguments"]}
    response = {"name": beat["tool"], "ref": id, "output": beat["result"]}
    return [
        {"role": "model", "content": [*content, {"toolRequest": request}]},
        {"role": "tool", "content": [{"toolResponse": response}]},
    ]


def _text(result: JSON) -> str:
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
