"""The messages of the two Strands SDKs, word by word.

Most blocks are the same in both. What differs is in two tables, one for each `Way`: names, the
spelling of bytes, where the text of a reasoning stands, how a citation says where it points. What
is not known is left as it is, and so is what stands in the words of the goal already.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from limpet.model import JSON

_ENCODED = "__bytes_encoded__"
_MEDIA = ("audio", "document", "image", "video")
_REASONING = ("text", "signature")


class Way(NamedTuple):
    """How content is put into the words of one of the SDKs."""

    message: Mapping[str, str]
    blocks: Mapping[str, str]
    cache_point: Mapping[str, str]
    formats: Mapping[str, str]
    locations: Mapping[str, str]
    bytes: Callable[[JSON], JSON]
    reasoning: Callable[[dict[str, Any]], dict[str, Any]]
    location: Callable[[dict[str, Any], Mapping[str, str]], dict[str, Any]]


def renamed(found: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return an object with other names in the same places."""
    return {names.get(name, name): value for name, value in found.items()}


def message(found: JSON, way: Way) -> JSON:
    """Return a message in the words of the goal."""
    if not isinstance(found, dict):
        return found
    told = renamed(found, way.message)
    if "content" in told:
        told["content"] = blocks(told["content"], way)
    return told


def blocks(found: JSON, way: Way) -> JSON:
    """Return a list of blocks, of a message or of a system prompt, in the words of the goal."""
    if not isinstance(found, list):
        return found
    return [_block(each, way) for each in found]


def tool_result(found: JSON, way: Way) -> JSON:
    """Return the result of a tool in the words of the goal."""
    if not isinstance(found, dict) or "content" not in found:
        return found
    return {**found, "content": blocks(found["content"], way)}


def _block(found: JSON, way: Way) -> JSON:
    if not isinstance(found, dict):
        return found
    return {
        way.blocks.get(name, name): _inner(name, value, way) if isinstance(value, dict) else value
        for name, value in found.items()
    }


def _inner(name: str, value: dict[str, Any], way: Way) -> JSON:
    if name in _MEDIA:
        return _media(value, way)
    if name == "toolResult":
        return tool_result(value, way)
    if name == "cachePoint":
        return renamed(value, way.cache_point)
    if name == "guardContent" and isinstance(value.get("image"), dict):
        return {**value, "image": _media(value["image"], way)}
    if name in ("reasoning", "reasoningContent"):
        return way.reasoning(value)
    if name in ("citations", "citationsContent") and isinstance(value.get("citations"), list):
        return {**value, "citations": [_citation(each, way) for each in value["citations"]]}
    return value


def _media(value: dict[str, Any], way: Way) -> dict[str, Any]:
    told, source = dict(value), value.get("source")
    if isinstance(source, dict) and "bytes" in source:
        told["source"] = {**source, "bytes": way.bytes(source["bytes"])}
    if isinstance(value.get("format"), str):
        told["format"] = way.formats.get(value["format"], value["format"])
    return told


def _citation(found: JSON, way: Way) -> JSON:
    if not isinstance(found, dict) or not isinstance(found.get("location"), dict):
        return found
    return {**found, "location": way.location(found["location"], way.locations)}


def _wrapped(found: JSON) -> JSON:
    return {_ENCODED: True, "data": found} if isinstance(found, str) else found


def _unwrapped(found: JSON) -> JSON:
    if isinstance(found, dict) and found.get(_ENCODED) is True and "data" in found:
        return found["data"]
    return found


def _nested(value: dict[str, Any]) -> dict[str, Any]:
    text = {name: value[name] for name in _REASONING if name in value}
    rest = {name: each for name, each in value.items() if name not in _REASONING}
    if "redactedContent" in rest:
        rest["redactedContent"] = _wrapped(rest["redactedContent"])
    return {"reasoningText": text, **rest} if text else rest


def _flat(value: dict[str, Any]) -> dict[str, Any]:
    rest = dict(value)
    text = rest.pop("reasoningText") if isinstance(rest.get("reasoningText"), dict) else {}
    if "redactedContent" in rest:
        rest["redactedContent"] = _unwrapped(rest["redactedContent"])
    return {**text, **rest}


def _tagged(location: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """`{"type": kind, …}` becomes `{kind: {…}}`."""
    kind = location.get("type")
    if not isinstance(kind, str):
        return location
    rest = {name: value for name, value in location.items() if name != "type"}
    return {names.get(kind, kind): rest}


def _typed(location: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """`{kind: {…}}` becomes `{"type": kind, …}`."""
    if len(location) != 1:
        return location
    [(kind, rest)] = location.items()
    if not isinstance(rest, dict):
        return location
    return {"type": names.get(kind, kind), **rest}


def _back(names: Mapping[str, str]) -> dict[str, str]:
    return {there: here for here, there in names.items()}


TO_PYTHON = Way(
    message={"trackingId": "tracking_id"},
    blocks={"reasoning": "reasoningContent", "citations": "citationsContent"},
    cache_point={"cacheType": "type"},
    formats={"3gp": "three_gp"},
    locations={"searchResult": "searchResultLocation"},
    bytes=_wrapped,
    reasoning=_nested,
    location=_tagged,
)

TO_TYPESCRIPT = Way(
    message=_back(TO_PYTHON.message),
    blocks=_back(TO_PYTHON.blocks),
    cache_point=_back(TO_PYTHON.cache_point),
    formats=_back(TO_PYTHON.formats),
    locations=_back(TO_PYTHON.locations),
    bytes=_unwrapped,
    reasoning=_flat,
    location=_typed,
)
