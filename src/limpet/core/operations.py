"""The operations of the HTTP API, each declared once.

From this table are made: the routes of the server, with the checks of what is sent; the requests of
the engine `http`; and by `make docs`, `docs/openapi.json` and `clients/js/src/operations.js`.

To add an operation, add an entry here, and a function with its name in `server/operations.py`. The
function gets a checked `Call`, and returns a value that `result` turns into JSON. An entry with
`backend` needs no function, as it is that method of `Backend`: each argument is the parameter, or
the member of the body, that has its name; `scope` is three parameters, `expect` and `fence` are
headers. Such a method is one line in `HttpBackend` too. Saves, streams and watches have functions
on both sides.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from limpet.core import ids, schema, wire
from limpet.core.schema import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    ID,
    KIND,
    PREFIX,
    STATUS,
    TEXT,
    Schema,
    array,
    nullable,
    record,
)
from limpet.core.wire import Record
from limpet.model import ScopeKey

JSON_TYPE = "application/json"
LINES_TYPE = "application/jsonl"
EVENTS_TYPE = "text/event-stream"
_LIST_ITEMS_MAX = 65_536  # of one request: a thread of LangGraph is deleted by one
_TOPICS_MAX = 10_000  # of one listener
_TARGETS_MAX = 500  # of one poll

Handler: TypeAlias = Callable[[Any], Awaitable[Any]]


class Param(NamedTuple):
    """A parameter in the query of a request."""

    name: str
    schema: Schema
    what: str
    required: bool = False
    many: bool = False


class Cursor(NamedTuple):
    """Where a list goes on: the text that a client sends back, and what the engine gets for it.

    `after` is the text of an item, `read` what the engine gets, `write` the text for that; `begin`
    is what it gets for the first page.
    """

    after: Callable[[Any], str]
    read: Callable[[str], Any]
    write: Callable[[Any], str]
    begin: Any = None


class Operation(NamedTuple):
    """One operation of the API, or one page of the inspector.

    Attributes:
        what: what it does, in a sentence.
        body: the schema of what is sent.
        result: what it answers; with `cursor` that is each item of a list, which is answered in
            pages, or as lines if a client accepts them.
        cursor: how a list goes on.
        media_type: of an answer that goes on, lines or events; each is a `result`.
        backend: the method of `Backend` that it is.
        writes: a token that may only read may not use it.
        conditional: it compares If-Match and If-None-Match.
        idempotent: to make it twice is harmless, so that it is sent again if its answer was lost.
        handler: the function of a page; those of the API are in `server/operations.py`.
        form: it is sent by a page of this server.
        public: it needs no token.
    """

    name: str
    method: str
    path: str
    what: str
    params: Mapping[str, Param] = {}
    body: Schema | None = None
    result: Record = Record(TEXT)
    cursor: Cursor | None = None
    media_type: str = JSON_TYPE
    backend: str = ""
    writes: bool = False
    conditional: bool = False
    idempotent: bool = True
    handler: Handler | None = None
    form: bool = False
    public: bool = False


# Parameters

SESSION = Param("session_id", ID, "the session", required=True)
ANY_SESSION = SESSION._replace(required=False, what="only this session")
SCOPE_PARAMS = (
    SESSION,
    Param("scope_id", ID, "the scope in the session, `main` by default"),
    Param("kind", KIND, "the kind of the scope, `agent` by default"),
)
SNAPSHOT = Param("id", ID, "the snapshot; without it, the head")
ONE = SNAPSHOT._replace(required=True, what="the snapshot")
PREFIX_PARAM = Param("prefix", PREFIX, "only sessions whose ids begin with this")
AFTER = Param("after", TEXT, "`next` of the page before")
LIMIT = Param("limit", COUNT, "how many at most")
PAGE = (AFTER, LIMIT)
LABELS = Param("labels", TEXT, 'a JSON object, as in `{"run_id": "r-7"}`: all must match')
STATUS_PARAM = Param("status", STATUS, "only with this status")
NAME = Param("name", ID, "the name of the note", required=True)
ON = Param("on", ID, "the id of the snapshot that the note is on; without it, the scope's own")

# Cursors

BY_TEXT = Cursor(str, str, str, begin="")
BY_AGE = Cursor(wire.age_cursor, wire.age_at, wire.age_cursor)
BY_SCOPE = Cursor(
    lambda info: wire.cursor_text(*info.key),
    lambda text: ScopeKey(*wire.cursor_parts(text, 3)),
    lambda key: wire.cursor_text(*key),
)
BY_REVISION = Cursor(lambda info: str(info.revision), ids.seq_of, wire.seq_cursor)
BY_NOTE = Cursor(  # by the snapshot id that it is on, and its name
    lambda note: wire.cursor_text(note.snapshot_id or "", note.name),
    lambda text: wire.cursor_parts(text, 2),
    lambda place: wire.cursor_text(*place),
)

# Bodies

_IDS = array(ID, maxItems=_LIST_ITEMS_MAX)
_IDS_OR_NULL = array(nullable(ID), maxItems=_LIST_ITEMS_MAX)
_LABELLED: dict[str, Schema] = {"labels": schema.LABELS, "metadata": schema.METADATA}
_FACTS: dict[str, Schema] = {"status": STATUS, **_LABELLED}
_SAVE = record(
    {},
    {
        "state": ANYTHING,
        "id": ID,
        "parent": nullable(ID),
        "keep": BOOLEAN,
        "head": BOOLEAN,
        "overwrite": BOOLEAN,
        **_FACTS,
        "created_at": schema.TIME,
        "forked_from": wire.REF.schema,
        "replaces": TEXT,
        "source": TEXT,
        "copy": BOOLEAN,
        "new_scope": BOOLEAN,
        "past_damage": BOOLEAN,
    },
)
_APPEND = record(
    {"key": TEXT, "items": array(ANYTHING)},
    {"keep": BOOLEAN, **_FACTS, "state_bytes_max": COUNT},
)
_FORK = record({"id": ID}, {"to": ID, "scope_id": ID, "patch": {"type": "object"}, **_LABELLED})
_PRUNE = record({}, {"keep_last": COUNT, "older_than_s": schema.AGE, "dry_run": BOOLEAN})
_FIND_NOTES = record(
    {"scope_id": ID, "kind": KIND},
    {"under": PREFIX, "where": ANYTHING, "values": BOOLEAN, "limit": COUNT},
)
_NOTE_CHANGE = record(
    {"name": ID},
    {
        "on": nullable(ID),
        "value": ANYTHING,
        "delete": BOOLEAN,
        "expect": nullable(TEXT),
        "keep": record({"key": TEXT, "value": ANYTHING}),
        "stamp": TEXT,
    },
)
_KEY = {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$"}
_CLAIM: dict[str, Schema] = {"owner": ID, "ttl_s": schema.SECONDS}
_TARGET = record({"session_id": ID, "scope_id": ID, "kind": KIND}, {"id": nullable(ID)})
_TOPIC = record({}, {"session_id": ID, "scope_id": ID, "kind": KIND, "id": ID, "prefix": PREFIX})

# Results

_ABOUT = Record(
    record(
        {
            "server": TEXT,
            "version": TEXT,
            "capabilities": array(TEXT),
            "state_bytes_max": COUNT,
            "write": BOOLEAN,
            "prefix": TEXT,
        }
    )
)
_ID = Record(ID)
_DONE = Record(record({}), lambda _: {})
_INFOS = wire.items(wire.INFO)
_FINDINGS = wire.items(wire.FINDING)
_PART_OF_CHECK = wire.page(wire.FINDING)


class _Named(NamedTuple):
    """The first line of an entry: the name of an operation, its method and path, what it does."""

    name: str
    request: str
    what: str

    def takes(
        self,
        *params: Param,
        result: Record,
        cursor: Cursor | None = None,
        writes: bool | None = None,
        **more: Any,
    ) -> Operation:
        """Return the operation. Below /v1/scope it takes a scope; by default all but GET write."""
        method, _, path = self.request.partition(" ")
        of_scope = SCOPE_PARAMS if f"{path}/".startswith("/v1/scope/") else ()
        known = (*of_scope, *params, *(PAGE if cursor is not None else ()))
        return Operation(
            self.name,
            method,
            path,
            self.what,
            {each.name: each for each in known},
            result=result,
            cursor=cursor,
            writes=method != "GET" if writes is None else writes,
            **more,
        )


OPERATIONS = (
    # The store
    _Named("about", "GET /v1", "What this server can do, and what this token may do.").takes(
        result=_ABOUT
    ),
    _Named("sessions", "GET /v1/sessions", "The sessions, in text order.").takes(
        PREFIX_PARAM, result=_ID, cursor=BY_TEXT, backend="list_sessions"
    ),
    _Named(
        "newest",
        "GET /v1/newest",
        "The sessions, those with the newest head first; `created_at` is in microseconds.",
    ).takes(PREFIX_PARAM, result=wire.SESSION_AGE, cursor=BY_AGE, backend="list_newest"),
    _Named("delete_session", "DELETE /v1/sessions", "Delete a session.").takes(
        SESSION, result=wire.DELETED, backend="delete_session"
    ),
    _Named(
        "scopes", "GET /v1/scopes", "The scopes with their heads, by session, kind and id."
    ).takes(
        ANY_SESSION,
        Param("kind", KIND, "only of this kind"),
        PREFIX_PARAM,
        result=wire.SCOPE_INFO,
        cursor=BY_SCOPE,
        backend="list_scopes",
    ),
    _Named(
        "history", "GET /v1/history", "Kept snapshots of all scopes, the last saved first."
    ).takes(
        PREFIX_PARAM,
        SNAPSHOT._replace(what="only with this id"),
        LABELS,
        STATUS_PARAM,
        result=wire.INFO,
        cursor=BY_REVISION,
    ),
    _Named(
        "refs", "GET /v1/refs", "The addresses of kept snapshots whose ids begin with a text."
    ).takes(
        Param("id_prefix", PREFIX, "how the ids begin", required=True),
        LIMIT,
        result=wire.items(wire.REF),
        backend="find_refs",
    ),
    _Named(
        "watch",
        "GET /v1/watch",
        "The heads of a session, of a prefix, or one snapshot, as they change.",
    ).takes(
        ANY_SESSION,
        SNAPSHOT._replace(what="the snapshot with this id, in any scope"),
        PREFIX_PARAM,
        result=Record(TEXT),
        media_type=EVENTS_TYPE,
    ),
    _Named(
        "changes",
        "POST /v1/changes",
        "The sessions in which something of many topics has changed, as JSON lines.",
    ).takes(
        body=record({"topics": array(_TOPIC, maxItems=_TOPICS_MAX)}),
        result=Record(record({}, {"session_id": nullable(ID)})),
        media_type=LINES_TYPE,
        writes=False,
    ),
    _Named(
        "revisions",
        "POST /v1/revisions",
        "The revision of each head or snapshot, null where there is none.",
    ).takes(
        body=record({"targets": array(_TARGET, maxItems=_TARGETS_MAX)}),
        result=wire.member("revisions", array(nullable(TEXT))),
        writes=False,
    ),
    _Named(
        "find_notes",
        "POST /v1/notes/find",
        "Notes of scopes of many sessions, the last written first.",
    ).takes(body=_FIND_NOTES, result=wire.items(wire.FOUND_NOTE), writes=False),
    _Named("stats", "GET /v1/stats", "The size of the store or a session.").takes(
        ANY_SESSION,
        LIMIT._replace(what="of `largest`; then a session's largest keys are left out"),
        result=wire.STATS,
        backend="read_stats",
    ),
    _Named("largest", "GET /v1/largest", "The heads of a session with the largest states.").takes(
        SESSION, LIMIT, result=_INFOS, backend="list_largest_heads"
    ),
    _Named("compact", "POST /v1/compact", "Give unused space back.").takes(
        result=wire.member("bytes", COUNT), backend="compact"
    ),
    _Named("check", "GET /v1/check", "Check a part of the store.").takes(
        *PAGE, result=_PART_OF_CHECK
    ),
    _Named("repair", "POST /v1/repair", "Repair a part of the store.").takes(
        *PAGE, result=_PART_OF_CHECK
    ),
    _Named("unlisted", "GET /v1/unlisted", "What is in no scope that is listed.").takes(
        result=_FINDINGS, backend="list_unlisted"
    ),
    # The snapshots of a scope
    _Named(
        "save", "POST /v1/scope/save", "Save a state: kept, and the head, unless asked otherwise."
    ).takes(body=_SAVE, result=wire.INFO, conditional=True, idempotent=False),
    _Named(
        "append",
        "POST /v1/scope/append",
        "Add items to a list at the top level of the head's state.",
    ).takes(body=_APPEND, result=wire.INFO, conditional=True, idempotent=False),
    _Named("load", "GET /v1/scope/snapshot", "One snapshot with its state.").takes(
        SNAPSHOT, result=wire.SNAPSHOT, conditional=True
    ),
    _Named("info", "GET /v1/scope/info", "One snapshot without its state.").takes(
        SNAPSHOT, result=wire.INFO, conditional=True
    ),
    _Named(
        "load_many",
        "POST /v1/scope/load_many",
        "Snapshots with their states, each once, as JSON lines; missing ones are left out.",
    ).takes(
        body=record({"ids": _IDS_OR_NULL}),
        result=wire.SNAPSHOT,
        media_type=LINES_TYPE,
        writes=False,
    ),
    _Named(
        "scope_history",
        "GET /v1/scope/history",
        "The kept snapshots of a scope, the last saved first.",
    ).takes(
        SNAPSHOT._replace(what="only this one"),
        LABELS,
        STATUS_PARAM,
        Param("leaves", BOOLEAN, "without the parents of kept snapshots"),
        result=wire.INFO,
        cursor=BY_REVISION,
    ),
    _Named("scope_ids", "GET /v1/scope/ids", "The ids of kept snapshots, in text order.").takes(
        result=_ID, cursor=BY_TEXT, backend="list_ids"
    ),
    _Named(
        "ancestors",
        "GET /v1/scope/ancestors",
        "A snapshot, its parent and so on. Pass `next` as `id` to go on.",
    ).takes(ONE, LIMIT, result=wire.page(wire.INFO)),
    _Named("diff", "GET /v1/scope/diff", "What changed from one snapshot to another.").takes(
        Param("a", ID, "the old snapshot", required=True),
        Param("b", ID, "the new snapshot", required=True),
        result=wire.DIFF,
    ),
    _Named(
        "damage",
        "GET /v1/scope/damage",
        "What is so damaged in a scope that its listings leave it out.",
    ).takes(result=_FINDINGS, backend="list_damage"),
    _Named(
        "scope_watch", "GET /v1/scope/watch", "The head of a scope, or one snapshot, as it changes."
    ).takes(SNAPSHOT, result=Record(TEXT), media_type=EVENTS_TYPE),
    _Named("fork", "POST /v1/scope/fork", "Begin a new scope with an existing state.").takes(
        body=_FORK, result=wire.SCOPE_INFO, idempotent=False
    ),
    _Named("restore", "POST /v1/scope/restore", "Save an earlier state as the new head.").takes(
        body=record({"id": ID}, _LABELLED), result=wire.INFO, conditional=True, idempotent=False
    ),
    _Named("prune", "POST /v1/scope/prune", "Delete old snapshots, never the head.").takes(
        body=_PRUNE, result=wire.PRUNED
    ),
    _Named(
        "delete_snapshots",
        "POST /v1/scope/delete_snapshots",
        "Delete snapshots and the notes on their ids.",
    ).takes(
        body=record({"ids": _IDS}, {"spare_head": BOOLEAN}),
        result=wire.PRUNED,
        conditional=True,
        backend="delete_snapshots",
    ),
    _Named("delete_scope", "DELETE /v1/scope", "Delete a scope with its notes.").takes(
        result=wire.DELETED, conditional=True, backend="delete_scope"
    ),
    # The notes of a scope
    _Named(
        "list_notes",
        "GET /v1/scope/notes",
        "The notes of a scope, or on snapshot ids, ordered by name.",
    ).takes(
        Param("on", PREFIX, "a snapshot id, may be repeated; empty: the scope itself", many=True),
        Param("name", ID, "only with this name"),
        result=wire.NOTE,
        cursor=BY_NOTE,
    ),
    _Named(
        "list_many_notes",
        "POST /v1/scope/notes/list",
        "The same for more snapshot ids than an address can hold; null: the scope itself.",
    ).takes(
        body=record({"on": _IDS_OR_NULL}, {"name": ID}),
        result=wire.NOTE,
        cursor=BY_NOTE,
        writes=False,
    ),
    _Named("read_note", "GET /v1/scope/note", "One note.").takes(
        NAME, ON, result=wire.NOTE, conditional=True
    ),
    _Named("write_note", "PUT /v1/scope/note", "Write a note; the body is its value.").takes(
        NAME, ON, body=ANYTHING, result=wire.NOTE, conditional=True
    ),
    _Named("delete_note", "DELETE /v1/scope/note", "Delete a note.").takes(
        NAME, ON, result=wire.DELETED, backend="delete_note"
    ),
    _Named(
        "write_notes",
        "POST /v1/scope/notes",
        "Write and delete several notes, as one step where the engine can.",
    ).takes(
        body=record({"changes": array(_NOTE_CHANGE, maxItems=_LIST_ITEMS_MAX)}),
        result=_DONE,
        idempotent=False,
    ),
    _Named(
        "read_notes",
        "POST /v1/scope/notes/read",
        "The notes of a scope that exist, in the order of their names.",
    ).takes(
        body=record({"names": _IDS}),
        result=wire.items(wire.FOUND_NOTE),
        writes=False,
        backend="read_notes",
    ),
    _Named("noted", "GET /v1/scope/noted", "The snapshot ids with notes, in text order.").takes(
        result=_ID, cursor=BY_TEXT, backend="list_noted"
    ),
    # The lease of a scope
    _Named(
        "claim",
        "POST /v1/scope/lease",
        "Claim the lease of a scope; `held` says whether it is yours.",
    ).takes(body=record(_CLAIM, {"key": _KEY}), result=wire.HOLD),
    _Named("renew", "PUT /v1/scope/lease", "Renew a lease.").takes(
        body=record({**_CLAIM, "key": _KEY}), result=wire.HOLD
    ),
    _Named(
        "release", "DELETE /v1/scope/lease", "Release a lease, unless the scope carries another."
    ).takes(Param("key", _KEY, "the key of the lease", required=True), result=_DONE),
    _Named(
        "read_lease", "GET /v1/scope/lease", "The lease that a scope carries, ended or not."
    ).takes(result=wire.HOLD),
)
NAMED: Mapping[str, Operation] = {each.name: each for each in OPERATIONS}
