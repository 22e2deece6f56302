"""How an operation is declared: its address, its parameters, its schemas, and what it does.

An operation checks, asks the backend once (or drives a verb of `limpet.api`), and returns a record.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from limpet.core import codec, wire
from limpet.model import JSON, Finding, SnapshotInfo
from limpet.protocol import FoundNote
from limpet.server.answers import Answer, Listing, Response, Stream
from limpet.server.call import Call, Param
from limpet.server.schema import COUNT, ID, KIND, PREFIX, STATUS, TEXT, Schema

Result: TypeAlias = JSON | Answer | Listing | Stream | Response | None
Handler: TypeAlias = Callable[[Call], Awaitable[Result]]


class Operation(NamedTuple):
    """One operation. `writes` says what a read-only token may not do.

    A `public` one needs no token. One that takes a `form` is sent by a page of this server.
    """

    method: str
    path: str
    handler: Handler
    params: Mapping[str, Param]
    body: Schema | None
    answer: Schema
    writes: bool
    conditional: bool = False
    form: bool = False
    public: bool = False

    @property
    def name(self) -> str:
        """Its name in the OpenAPI document."""
        return self.handler.__name__

    @property
    def what(self) -> str:
        """What it does, in a sentence."""
        return self.handler.__doc__ or ""


OPERATIONS: list[Operation] = []

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


def operation(
    method: str,
    path: str,
    *params: Param,
    answer: Schema,
    body: Schema | None = None,
    writes: bool | None = None,
    conditional: bool = False,
) -> Callable[[Handler], Handler]:
    """Declare an operation, described by the docstring of its handler.

    With `conditional` it compares If-Match and If-None-Match; by default all but GET write.
    """

    def declare(handler: Handler) -> Handler:
        known = {each.name: each for each in params}
        is_write = method != "GET" if writes is None else writes
        OPERATIONS.append(
            Operation(method, path, handler, known, body, answer, is_write, conditional)
        )
        return handler

    return declare


def stored(call: Call, info: SnapshotInfo) -> Answer:
    """Return a snapshot without its state, as it was written or read."""
    return Answer(codec.encode(info_json(call, info)), info.revision)


def found_notes(found: Iterable[FoundNote]) -> Answer:
    """Return notes; there may be many, so this belongs into the thread that has read them."""
    return Answer(codec.encode({"items": [wire.found_note_json(each) for each in found]}))


def info_json(call: Call, info: SnapshotInfo) -> dict[str, JSON]:
    return wire.info_json(call.grant.visible(info))


def finding_json(call: Call, finding: Finding) -> dict[str, JSON]:
    return {**wire.finding_json(finding), "message": call.grant.told(finding.message)}
