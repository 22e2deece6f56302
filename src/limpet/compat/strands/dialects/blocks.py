"""Translates the messages of the two Strands SDKs, block by block.

Most blocks are the same in both. The differences are in two tables, one for each direction: names,
the encoding of bytes, the nesting of reasoning text, the form of citation locations. Unknown values
are left as they are, and so are those that are in the target dialect already.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from limpet.model import JSON

_ENCODED = "__bytes_encoded__"
_MEDIA = ("audio", "document", "image", "video")
_REASONING = ("text", "signature")


class BlockNames(NamedTuple):
    """How content is translated to the dialect of one SDK."""

    message: Mapping[str, str]
    blocks: Mapping[str, str]
    cache_point: Mapping[str, str]
    formats: Mapping[str, str]
    locations: Mapping[str, str]
    bytes: Callable[[JSON], JSON]
    reasoning: Callable[[dict[str, Any]], dict[str, Any]]
    location: Callable[[dict[str, Any], Mapping[str, str]], dict[str, Any]]


def renamed(found: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in found.items()}


def message(found: JSON, to: BlockNames) -> JSON:
    if not isinstance(found, dict):
        return found
    translated = renamed(found, to.message)
    if "content" in translated:
        translated["content"] = blocks(translated["content"], to)
    return translated


def blocks(found: JSON, to: BlockNames) -> JSON:
    if not isinstance(found, list):
        return found
    return [_block(each, to) for each in found]


def tool_result(found: JSON, to: BlockNames) -> JSON:
    if not isinstance(found, dict) or "content" not in found:
        return found
    return {**found, "content": blocks(found["content"], to)}


def _block(found: JSON, to: BlockNames) -> JSON:
    if not isinstance(found, dict):
        return found
    return {
        to.blocks.get(name, name): _inner(name, value, to) if isinstance(value, dict) else value
        for name, value in found.items()
    }


def _inner(name: str, value: dict[str, Any], to: BlockNames) -> JSON:
    if name in _MEDIA:
        return _media(value, to)
    if name == "toolResult":
        return tool_result(value, to)
    if name == "cachePoint":
        return renamed(value, to.cache_point)
    if name == "guardContent" and isinstance(value.get("image"), dict):
        return {**value, "image": _media(value["image"], to)}
    if name in ("reasoning", "reasoningContent"):
        return to.reasoning(value)
    if name in ("citations", "citationsContent") and isinstance(value.get("citations"), list):
        return {**value, "citations": [_citation(each, to) for each in value["citations"]]}
    return value


def _media(value: dict[str, Any], to: BlockNames) -> dict[str, Any]:
    translated, source = dict(value), value.get("source")
    if isinstance(source, dict) and "bytes" in source:
        translated["source"] = {**source, "bytes": to.bytes(source["bytes"])}
    if isinstance(value.get("format"), str):
        translated["format"] = to.formats.get(value["format"], value["format"])
    return translated


def _citation(found: JSON, to: BlockNames) -> JSON:
    if not isinstance(found, dict) or not isinstance(found.get("location"), dict):
        return found
    return {**found, "location": to.location(found["location"], to.locations)}


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


def inverted(names: Mapping[str, str]) -> dict[str, str]:
    return {there: here for here, there in names.items()}


TO_PYTHON = BlockNames(
    message={"trackingId": "tracking_id"},
    blocks={"reasoning": "reasoningContent", "citations": "citationsContent"},
    cache_point={"cacheType": "type"},
    formats={"3gp": "three_gp"},
    locations={"searchResult": "searchResultLocation"},
    bytes=_wrapped,
    reasoning=_nested,
    location=_tagged,
)

TO_TYPESCRIPT = BlockNames(
    message=inverted(TO_PYTHON.message),
    blocks=inverted(TO_PYTHON.blocks),
    cache_point=inverted(TO_PYTHON.cache_point),
    formats=inverted(TO_PYTHON.formats),
    locations=inverted(TO_PYTHON.locations),
    bytes=_unwrapped,
    reasoning=_flat,
    location=_typed,
)
