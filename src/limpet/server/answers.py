"""What operations return, and the records of the API as schemas."""

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, NamedTuple

from limpet.model import JSON
from limpet.protocol import Backend
from limpet.server import schema
from limpet.server.schema import (
    BOOLEAN,
    COUNT,
    ID,
    KIND,
    LABELS,
    METADATA,
    REVISION,
    STATUS,
    TEXT,
    TIME,
    Schema,
    array,
    nullable,
    record,
)

JSON_TYPE = "application/json"
FORM_TYPE = "application/x-www-form-urlencoded"
LINES_TYPE = "application/jsonl"
EVENTS_TYPE = "text/event-stream"
PROBLEM_TYPE = "application/problem+json"
LIST_ITEMS_MAX = 65_536  # of one request: a thread of LangGraph is deleted by one


class Answer(NamedTuple):
    """A record, encoded, and its revision."""

    body: bytes
    revision: str | None = None


class Listing(NamedTuple):
    """A list: how a page of it is read, where it goes on after an item, and an item as JSON."""

    fetch: Callable[[Backend, str | None, int], list[Any]]
    cursor: Callable[[Any], str]
    encode: Callable[[Any], JSON]


class Stream(NamedTuple):
    """An answer that goes on: its parts as they come.

    One that is `endless` ends when the server stops; `weight` is its share of what may be open.
    Lines of JSON that are cut off end with a problem.
    """

    parts: AsyncGenerator[bytes, None]
    media_type: str
    endless: bool = False
    weight: int = 1


class Response:
    """Headers and a body, or parts that go on."""

    def __init__(
        self,
        status: int,
        body: bytes | Stream = b"",
        media_type: str = JSON_TYPE,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status
        self.body = body
        self.headers = {
            "content-type": body.media_type if isinstance(body, Stream) else media_type,
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
            **(headers or {}),
        }


_ADDRESS: dict[str, Schema] = {"session_id": ID, "scope_id": ID, "kind": KIND}
SCOPE = record(_ADDRESS)
REF = record({**_ADDRESS, "id": ID})
_INFO: dict[str, Schema] = {
    "size": COUNT,
    **_ADDRESS,
    "id": ID,
    "parent_id": nullable(ID),
    "forked_from": nullable(REF),
    "status": STATUS,
    "labels": LABELS,
    "metadata": METADATA,
    "created_at": TIME,
    "updated_at": TIME,
    "kept": BOOLEAN,
    "revision": REVISION,
}
INFO = record(_INFO)
SNAPSHOT = record({**_INFO, "state": schema.ANYTHING})
SCOPE_INFO = record({**_ADDRESS, "head": nullable(INFO)})
NOTE = record(
    {
        "name": ID,
        "value": schema.ANYTHING,
        "revision": TEXT,
        "updated_at": TIME,
        "snapshot_id": nullable(ID),
    }
)
FOUND_NOTE = record(
    {
        "scope": SCOPE,
        "name": ID,
        "value": schema.ANYTHING,
        "revision": TEXT,
        "updated_at": {"type": "integer"},
    }
)
HOLD = record({"key": TEXT, "owner": TEXT, "left_us": {"type": "integer"}, "held": BOOLEAN})
PRUNED = record({"count": COUNT, "bytes": COUNT})
DELETED = record({"deleted": COUNT})
FINDING = record(
    {
        "severity": TEXT,
        "code": TEXT,
        "message": TEXT,
        "scope": nullable(SCOPE),
        "id": nullable(TEXT),
        "repaired": BOOLEAN,
    }
)
FINDINGS = record({"items": array(FINDING)})
STATS = record(
    {
        "sessions": COUNT,
        "scopes": COUNT,
        "snapshots": COUNT,
        "logical_bytes": COUNT,
        "stored_bytes": COUNT,
        "largest": array({"type": "array", "items": schema.ANYTHING}),
    }
)
DIFF = record(
    {
        "changes": array(
            record(
                {
                    "path": TEXT,
                    "kind": {"type": "string", "enum": ["added", "removed", "changed", "moved"]},
                    "before": schema.ANYTHING,
                    "after": schema.ANYTHING,
                }
            )
        ),
        "patch": array({"type": "object"}),
    }
)
PROBLEM: Schema = {
    "type": "object",
    "properties": {
        "type": TEXT,
        "title": TEXT,
        "status": {"type": "integer"},
        "detail": TEXT,
        "scope": SCOPE,
        "id": TEXT,
        "expected": TEXT,
        "found": TEXT,
        "owner": TEXT,
        "expires_at": TIME,
        "path": TEXT,
        "outcome_known": BOOLEAN,
    },
    "required": ["type", "title", "status", "detail"],
}
COMPONENTS: dict[str, Schema] = {
    "Scope": SCOPE,
    "Ref": REF,
    "Info": INFO,
    "Snapshot": SNAPSHOT,
    "ScopeInfo": SCOPE_INFO,
    "Note": NOTE,
    "FoundNote": FOUND_NOTE,
    "Hold": HOLD,
    "Pruned": PRUNED,
    "Deleted": DELETED,
    "Finding": FINDING,
    "Stats": STATS,
    "Diff": DIFF,
    "Problem": PROBLEM,
}


def page_of(item: Schema) -> Schema:
    return record({"items": array(item), "next": nullable(TEXT)})


IDS = array(ID, maxItems=LIST_ITEMS_MAX)
