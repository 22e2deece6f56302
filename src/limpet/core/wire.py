"""The public records and errors as JSON: what the HTTP API and `--json` write.

Pure. Each record has one form, written and read here, so that a server, the engine `http` and the
command line cannot differ. A snapshot is written with `size` first and `state` last: a client that
only passes the state on can cut its bytes out instead of parsing them.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any, NamedTuple

from limpet import errors
from limpet.core import codec
from limpet.core.schema import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    ID,
    INTEGER,
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
from limpet.errors import Conflict, Corrupt, InvalidInput, LimpetError, Unavailable
from limpet.model import (
    JSON,
    Diff,
    Finding,
    Note,
    Pruned,
    ScopeInfo,
    ScopeKey,
    SnapshotInfo,
    SnapshotRef,
    Stats,
)
from limpet.protocol import Found, FoundNote, Hold, SessionAge, Stamp, Target, Topic

_SIZE = re.compile(rb' ?\{"size":(\d+),')
_STATE = b',"state":'
STAMP_PATTERN = "^([0-9]{1,17})[.]([0-9a-f]{16})[.]([0-9a-f]{1,20})$"


def time_json(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def scope_json(scope: ScopeKey) -> dict[str, str]:
    return scope._asdict()


def scope_of(found: Mapping[str, Any]) -> ScopeKey:
    return ScopeKey(found["session_id"], found["scope_id"], found["kind"])


def ref_json(ref: SnapshotRef | None) -> dict[str, str] | None:
    return None if ref is None else {**scope_json(ref.scope), "id": ref.id}


def ref_of(found: Mapping[str, Any] | None) -> SnapshotRef | None:
    return None if found is None else some_ref_of(found)


def some_ref_of(found: Mapping[str, Any]) -> SnapshotRef:
    return SnapshotRef(scope_of(found), found["id"])


def info_json(info: SnapshotInfo) -> dict[str, JSON]:
    return {
        "size": info.size,
        **scope_json(info.scope),
        "id": info.id,
        "parent_id": info.parent_id,
        "forked_from": ref_json(info.forked_from),
        "status": info.status,
        "labels": info.labels,
        "metadata": info.metadata,
        "created_at": time_json(info.created_at),
        "updated_at": time_json(info.updated_at),
        "kept": info.kept,
        "revision": info.revision,
    }


def info_of(found: Mapping[str, Any]) -> SnapshotInfo:
    return SnapshotInfo(
        scope=scope_of(found),
        id=found["id"],
        parent_id=found["parent_id"],
        forked_from=ref_of(found["forked_from"]),
        status=found["status"],
        labels=found["labels"],
        metadata=found["metadata"],
        created_at=datetime.fromisoformat(found["created_at"]),
        updated_at=datetime.fromisoformat(found["updated_at"]),
        revision=found["revision"],
        kept=found["kept"],
        size=found["size"],
    )


def encode_found(found: Found) -> bytes:
    """Return a snapshot with its state, as one line of JSON."""
    info, body = found
    return b"%b%b%b}" % (codec.encode(info_json(info))[:-1], _STATE, body)


def decode_found(line: bytes) -> Found:
    """Return a snapshot and its encoded state, which is not parsed."""
    match = _SIZE.match(line)
    cut = len(line) - 1 - int(match[1]) if match else 0
    if line[cut - len(_STATE) : cut] == _STATE:
        info = codec.decode_foreign(line[: cut - len(_STATE)] + b"}")
        return info_of(info), line[cut:-1]
    record = codec.decode_foreign(line)
    return info_of(record), codec.encode(record["state"])


def diff_json(diff: Diff) -> dict[str, JSON]:
    return {"changes": [asdict(each) for each in diff.changes], "patch": diff.to_json_patch()}


def target_json(target: Target) -> dict[str, JSON]:
    named = {} if target.id is None else {"id": target.id}
    return {**scope_json(target.scope), **named}


def topic_json(topic: Topic) -> dict[str, JSON]:
    """Return a topic as members side by side: with a scope id it is a target."""
    if topic.target is not None:
        return target_json(topic.target)
    given = {"session_id": topic.session_id, "prefix": topic.prefix, "id": topic.id}
    return {name: value for name, value in given.items() if value}


# Kinds of values: the schema of each, and both directions between it and JSON


def _same(value: Any) -> Any:
    return value


class Record(NamedTuple):
    """A kind of value as it travels."""

    schema: Schema
    to_json: Callable[[Any], Any] = _same
    of_json: Callable[[Any], Any] = _same


def optional(value: Record) -> Record:
    """Return a value or null."""
    return Record(
        nullable(value.schema),
        lambda given: None if given is None else value.to_json(given),
        lambda found: None if found is None else value.of_json(found),
    )


def fields(make: Callable[..., Any], **of: Record) -> Record:
    """Return an object with these fields of what `make` returns for them."""
    return Record(
        record({name: each.schema for name, each in of.items()}),
        lambda given: {name: each.to_json(getattr(given, name)) for name, each in of.items()},
        lambda found: make(**{name: each.of_json(found[name]) for name, each in of.items()}),
    )


def member(name: str, value: Schema) -> Record:
    """Return an object with one member, which is the value."""
    return Record(record({name: value}), lambda found: {name: found}, lambda found: found[name])


def items(item: Record) -> Record:
    """Return an object whose member `items` is the list."""
    return Record(
        record({"items": array(item.schema)}),
        lambda found: {"items": [item.to_json(each) for each in found]},
        lambda found: [item.of_json(each) for each in found["items"]],
    )


def page(item: Record) -> Record:
    """Return an object for a list and the text with which it goes on, None at its end."""
    listed = items(item)
    return Record(
        record({"items": array(item.schema), "next": nullable(TEXT)}),
        lambda found: {**listed.to_json(found[0]), "next": found[1]},
        lambda found: (listed.of_json(found), found["next"]),
    )


_ID, _TEXT, _COUNT, _INTEGER, _ANYTHING = map(Record, (ID, TEXT, COUNT, INTEGER, ANYTHING))
_MOMENT = Record(TIME, time_json, datetime.fromisoformat)
_ADDRESS: dict[str, Schema] = {"session_id": ID, "scope_id": ID, "kind": KIND}
SCOPE = Record(record(_ADDRESS), scope_json, scope_of)
REF = Record(record({**_ADDRESS, "id": ID}), ref_json, some_ref_of)
_INFO: dict[str, Schema] = {
    "size": COUNT,
    **_ADDRESS,
    "id": ID,
    "parent_id": nullable(ID),
    "forked_from": nullable(REF.schema),
    "status": STATUS,
    "labels": LABELS,
    "metadata": METADATA,
    "created_at": TIME,
    "updated_at": TIME,
    "kept": BOOLEAN,
    "revision": REVISION,
}
INFO = Record(record(_INFO), info_json, info_of)
SNAPSHOT = Record(record({**_INFO, "state": ANYTHING}))
_HEAD = optional(INFO)
SCOPE_INFO = Record(
    record({**_ADDRESS, "head": _HEAD.schema, "revision": TEXT}),
    lambda info: {
        **scope_json(info.key),
        "head": _HEAD.to_json(info.head),
        "revision": info.revision,
    },
    lambda found: ScopeInfo(scope_of(found), _HEAD.of_json(found["head"]), found["revision"]),
)
SESSION_AGE = fields(SessionAge, session_id=_ID, created_at=optional(_INTEGER))
NOTE = fields(
    Note,
    name=_ID,
    value=_ANYTHING,
    revision=_TEXT,
    updated_at=_MOMENT,
    snapshot_id=optional(_ID),
)
FOUND_NOTE = fields(  # by whose times in microseconds they are sorted
    FoundNote, scope=SCOPE, name=_ID, value=_ANYTHING, revision=_TEXT, updated_at=_INTEGER
)
HOLD = Record(
    record({"key": TEXT, "owner": TEXT, "left_us": INTEGER, "held": BOOLEAN}),
    of_json=lambda found: Hold(found["key"], found["owner"], found["left_us"]),
)
PRUNED = fields(Pruned, count=_COUNT, bytes=_COUNT)
DELETED = member("deleted", COUNT)
FINDING = fields(
    Finding,
    severity=_TEXT,
    code=_TEXT,
    message=_TEXT,
    scope=optional(SCOPE),
    id=optional(_TEXT),
    repaired=Record(BOOLEAN),
)
finding_json = FINDING.to_json
_LARGEST = Record(
    array({"type": "array", "items": ANYTHING}),
    lambda parts: [list(each) for each in parts],
    lambda found: tuple((name, size) for name, size in found),
)
_COUNTS = ("sessions", "scopes", "snapshots", "logical_bytes", "stored_bytes")
STATS = fields(Stats, **dict.fromkeys(_COUNTS, _COUNT), largest=_LARGEST)
_CHANGE = {
    "path": TEXT,
    "kind": {"type": "string", "enum": ["added", "removed", "changed", "moved"]},
    "before": ANYTHING,
    "after": ANYTHING,
}
DIFF = Record(
    record({"changes": array(record(_CHANGE)), "patch": array({"type": "object"})}), diff_json
)
PROBLEM: Schema = {
    "type": "object",
    "properties": {
        "type": TEXT,
        "title": TEXT,
        "status": INTEGER,
        "detail": TEXT,
        "scope": SCOPE.schema,
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
    "Scope": SCOPE.schema,
    "Ref": REF.schema,
    "Info": INFO.schema,
    "Snapshot": SNAPSHOT.schema,
    "ScopeInfo": SCOPE_INFO.schema,
    "Note": NOTE.schema,
    "FoundNote": FOUND_NOTE.schema,
    "Hold": HOLD.schema,
    "Pruned": PRUNED.schema,
    "Deleted": DELETED.schema,
    "Finding": FINDING.schema,
    "Stats": STATS.schema,
    "Diff": DIFF.schema,
    "Problem": PROBLEM,
}


# Cursors and stamps, which a client returns as it got them


def cursor_text(*parts: str) -> str:
    """Return where a listing goes on, as text that has no meaning to the client."""
    return urlsafe_b64encode(codec.encode(list(parts))).decode().rstrip("=")


def cursor_parts(text: str, count: int) -> list[str]:
    """Undo `cursor_text`, or raise InvalidInput."""
    try:
        found = codec.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, Corrupt):
        found = None
    if not isinstance(found, list) or [type(each) for each in found] != [str] * count:
        raise InvalidInput("after must be the `next` of the page before")
    return found


def age_cursor(age: SessionAge) -> str:
    """Return where a listing by age goes on after a session."""
    return cursor_text(age.session_id, "" if age.created_at is None else str(age.created_at))


def age_at(cursor: str) -> SessionAge:
    """Undo `age_cursor`, or raise InvalidInput."""
    session_id, text = cursor_parts(cursor, 2)
    if re.fullmatch(r"(-?[0-9]{1,18})?", text) is None:
        raise InvalidInput("after must be the `next` of the page before")
    return SessionAge(session_id, int(text) if text else None)


def seq_cursor(seq: int) -> str:
    """Return where a history goes on: a revision, of which only this place counts."""
    return f"{seq:x}.0."


def stamp_text(stamp: Stamp) -> str:
    return f"{stamp.now}.{stamp.nonce}.{stamp.bits:x}"


def stamp_of(text: str) -> Stamp:
    match = re.fullmatch(STAMP_PATTERN, text)
    if match is None:
        raise InvalidInput("a stamp is `<microseconds>.<16 hex digits>.<up to 20 hex digits>`")
    return Stamp(int(match[1]), match[2], int(match[3], 16))


# Errors, as in RFC 9457

STATUSES: Mapping[type[LimpetError], int] = {
    errors.InvalidInput: 400,
    errors.NotFound: 404,
    errors.AlreadyExists: 409,
    errors.Conflict: 409,
    errors.Corrupt: 500,
    errors.Unsupported: 501,
    errors.Unavailable: 503,
}
_CLASSES = {each.__name__: each for each in STATUSES}


def problem_json(error: LimpetError, status: int | None = None) -> dict[str, JSON]:
    """Return an error as a problem: its message, and what it says as members."""
    kind = next(each for each in (*STATUSES, LimpetError) if isinstance(error, each))
    known = STATUSES.get(kind, 500) if status is None else status
    found: dict[str, JSON] = {
        "type": f"urn:limpet:{kind.__name__}",
        "title": kind.__name__,
        "status": known,
        "detail": _shown(str(error)),
        "scope": None if error.scope is None else scope_json(error.scope),
        "id": error.id,
    }
    for name in ("expected", "found", "owner", "path", "outcome_known"):
        value = getattr(error, name, None)
        found[name] = _shown(value) if isinstance(value, str) else value
    moment = getattr(error, "expires_at", None)
    found["expires_at"] = None if moment is None else time_json(moment)
    return {name: value for name, value in found.items() if value is not None}


def _shown(text: str) -> str:
    """Return text that can be encoded: the path of a value that is refused may have a surrogate."""
    return text.encode(errors="backslashreplace").decode()


def error_of(problem: Mapping[str, Any]) -> LimpetError | None:
    """Return the error of a problem that a server of ours wrote, None for another's."""
    kind = _CLASSES.get(problem.get("title", ""))
    message = problem.get("detail")
    if kind is None or not isinstance(message, str):
        return None
    if kind is InvalidInput:
        return InvalidInput(message, path=problem.get("path"))
    if kind is Unavailable:
        return Unavailable(message, outcome_known=bool(problem.get("outcome_known", False)))
    error = kind(message)
    if isinstance(error, Conflict):
        moment = problem.get("expires_at")
        error.expires_at = None if moment is None else datetime.fromisoformat(moment)
        for name in ("expected", "found", "owner"):
            setattr(error, name, problem.get(name))
    scope = problem.get("scope")
    error.scope = None if scope is None else scope_of(scope)
    error.id = problem.get("id")
    return error
