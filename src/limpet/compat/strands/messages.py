"""The message logs of the older Python session managers, read as snapshots.

They keep one file for each message and one for the agent::

    session_<session>/agents/agent_<agent>/agent.json
    session_<session>/agents/agent_<agent>/messages/message_<n>.json
    session_<session>/multi_agents/multi_agent_<id>/multi_agent.json

What comes of an agent is what its own manager would restore: the messages from the first that its
conversation manager has not removed on, the redacted ones as they were redacted. The removed ones
stay in `app_data`, under `removed_messages`.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

from limpet.backends._objects.files import walk
from limpet.compat.strands.sources import Item, Source, refusal
from limpet.compat.strands.storage import moment_of
from limpet.core import codec
from limpet.errors import Corrupt, LimpetError
from limpet.model import JSON, ScopeKey

if TYPE_CHECKING:
    from limpet.backends._bucket.protocol import Bucket

_PAGE_FILES = 64  # read at a time
_PLACE = re.compile(
    r"session_(?P<session>[^/]+)/"
    r"(?:agents/agent_(?P<agent>[^/]+)/(?:agent|messages/message_(?P<number>\d{1,18}))"
    r"|multi_agents/multi_agent_(?P<several>[^/]+)/multi_agent)\.json"
)


def read(files: "Bucket", prefix: str) -> Source:
    """Yield each agent of each session as a Python snapshot, or what is wrong with its files."""
    keys = (each.key for each in walk(files, f"session_{prefix}"))
    places = (found for found in map(_PLACE.fullmatch, keys) if found)
    for scope, group in groupby(places, key=_scope_of):
        try:
            wire = _snapshot(files, scope, list(group))
            yield Item(scope, None, wire, moment_of(wire))
        except LimpetError as cause:
            yield refusal("corrupt", cause, scope)


def _scope_of(place: re.Match[str]) -> ScopeKey:
    if place["several"] is not None:
        return ScopeKey(place["session"], place["several"], "multiAgent")
    return ScopeKey(place["session"], place["agent"], "agent")


def _snapshot(files: "Bucket", scope: ScopeKey, places: list[re.Match[str]]) -> dict[str, JSON]:
    numbered = {int(each["number"]): each[0] for each in places if each["number"] is not None}
    whole = next((each[0] for each in places if each["number"] is None), None)
    if whole is None:
        raise Corrupt(f"messages without an agent. session_id=`{scope.session_id}`")
    record = next(_read(files, [whole]))
    if scope.kind == "multiAgent":
        data: dict[str, JSON] = {"orchestrator_id": scope.scope_id, "state": record}
        return _document(scope, record, data, {})
    log = list(_read(files, [numbered[number] for number in sorted(numbered)]))
    said = [each.get("redact_message") or each.get("message") for each in log]
    managed, inner = (
        _object(record, "conversation_manager_state"),
        _object(record, "_internal_state"),
    )
    removed = managed.get("removed_message_count")
    first = removed if isinstance(removed, int) else 0
    data = {
        "messages": said[first:],
        "state": _object(record, "state"),
        "conversation_manager_state": managed,
        **{name: inner[name] for name in ("interrupt_state", "model_state") if name in inner},
    }
    return _document(scope, record, data, {"removed_messages": said[:first]} if first else {})


def _document(
    scope: ScopeKey, record: Mapping[str, Any], data: dict[str, JSON], app_data: dict[str, JSON]
) -> dict[str, JSON]:
    created = record.get("updated_at") or record.get("created_at") or "1970-01-01T00:00:00Z"
    return {
        "scope": scope.kind,
        "schema_version": "1.0",
        "created_at": created,
        "data": data,
        "app_data": app_data,
    }


def _object(record: Mapping[str, Any], name: str) -> dict[str, JSON]:
    value = record.get(name)
    return value if isinstance(value, dict) else {}


def _read(files: "Bucket", keys: list[str]) -> Iterator[dict[str, Any]]:
    for at in range(0, len(keys), _PAGE_FILES):
        page = keys[at : at + _PAGE_FILES]
        for key, stored in zip(page, files.get(page), strict=True):
            # A space before it lets integers of any length be read as they are.
            value = None if stored is None else codec.decode(b" " + stored.data)
            if not isinstance(value, dict):
                raise Corrupt(f"the file is no JSON object. key=`{key}`")
            yield value
