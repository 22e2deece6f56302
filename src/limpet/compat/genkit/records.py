"""The record of `SessionStore`, how it is stored as a snapshot, and how it is read back. Pure.

The state is passed through unchanged, so it may be any JSON. Id, parent, status and state are those
of a kept snapshot; the other fields of the record are in `metadata["genkit"]`, unchanged.

The session of a tenant is stored as `tenant/session`, one without a tenant as `session`. `%` and
`/` inside either name are escaped, so no name can reach the session of another tenant.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, cast

from limpet.compat.wire import ABSENT, WireRecord, escaped, moment_of, require, unescaped, wire_time
from limpet.errors import Corrupt, InvalidInput
from limpet.model import JSON, ScopeKey, Snapshot, SnapshotInfo

S = TypeVar("S")

COMPLETED: Final = "completed"
FACADE: Final = "genkit"
_STATELESS = "genkit_stateless"  # in metadata: the row has no state, which differs from null
_NONCE = "genkit_born"  # in metadata: tells apart two equal rows that are created at once

_ELSEWHERE = ("snapshotId", "sessionId", "parentId", "status", "state")
_TIMES = ("created_at", "updated_at", "heartbeat_at")
_TEXTS = ("snapshot_id", "session_id", "parent_id", "status", "finish_reason", *_TIMES)


@dataclass(frozen=True)
class SessionSnapshot(WireRecord, Generic[S]):
    """A turn of a session: its status and its state.

    None is a missing field and is not written, except for the state, where ABSENT, None (null) and
    `{}` differ. Times are text, kept as given; a datetime may be given. Unknown fields are in
    `extra`. Change it with `dataclasses.replace`.
    """

    snapshot_id: str | None = None
    session_id: str | None = None
    parent_id: str | None = None
    created_at: str | None = None
    updated_at: str | None = None
    heartbeat_at: str | None = None
    status: str | None = None
    finish_reason: str | None = None
    error: Mapping[str, JSON] | None = field(default=None, hash=False)
    state: S = field(default=cast(Any, ABSENT), hash=False)
    extra: Mapping[str, JSON] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in _TEXTS:
            value: Any = getattr(self, name)
            require(isinstance(value, str | None), f"a field must be text. field=`{name}`", value)
        require(isinstance(self.error, Mapping | None), "error must be a mapping", self.error)

    def to_json(self) -> dict[str, JSON]:
        """Return the wire dict, without the missing fields."""
        known = {there for name, there in self._names().items() if name != "state"}
        wire = super().to_json()
        return {k: value for k, value in wire.items() if value is not None or k not in known}


Row: TypeAlias = SessionSnapshot[Any]


def save_options(row: Row, *, nonce: str) -> dict[str, Any]:
    return {
        "state": None if row.state is ABSENT else row.state,
        "parent": row.parent_id,
        "status": row.status,
        "metadata": {_NONCE: nonce, **_metadata(row)},
        "created_at": moment_of(row.created_at),
    }


def replaced(stored: Snapshot, row: Row) -> Snapshot:
    """Return a stored snapshot with the content of a row; metadata of other programs stays."""
    others = {k: v for k, v in stored.metadata.items() if k not in (FACADE, _STATELESS)}
    return stored.with_(
        state=None if row.state is ABSENT else row.state,
        status=row.status or stored.status,
        metadata={**others, **_metadata(row)},
    )


def row_of(info: SnapshotInfo, session_id: str) -> Row:
    """Return the row of a snapshot, whichever program saved it; without a state if `info` has none.

    Raises:
        Corrupt: the metadata is not that of a row.
    """
    envelope = _envelope(info)
    default = {
        "createdAt": wire_time(info.created_at),
        **({} if envelope else {"updatedAt": wire_time(info.updated_at)}),
    }
    facts: dict[str, JSON] = {
        "snapshotId": info.id,
        "sessionId": session_id,
        "parentId": info.parent_id,
        "status": info.status or COMPLETED,
    }
    if isinstance(info, Snapshot) and not (info.state is None and _STATELESS in info.metadata):
        facts["state"] = _state_of(info, session_id)
    try:
        return SessionSnapshot.from_json({**default, **envelope, **facts})
    except InvalidInput as cause:
        fact = f"the metadata is not that of a row. snapshot_id=`{info.id}`"
        raise Corrupt(fact, scope=info.scope, id=info.id) from cause


def _state_of(found: Snapshot, session_id: str) -> JSON:
    """Return the state; that of a fork names the new session, in which agents then go on."""
    state = found.state
    is_copy = found.forked_from is not None and isinstance(state, dict) and "sessionId" in state
    return {**state, "sessionId": session_id} if is_copy else state


def summary_of(info: SnapshotInfo, session_id: str) -> Row:
    """Return the fields of a row that decide which one is the latest."""
    made = _envelope(info).get("createdAt")
    return SessionSnapshot(
        snapshot_id=info.id,
        session_id=session_id,
        parent_id=info.parent_id,
        created_at=made if isinstance(made, str) else wire_time(info.created_at),
        status=info.status or COMPLETED,
    )


def _metadata(row: Row) -> dict[str, JSON]:
    envelope = {name: value for name, value in row.to_json().items() if name not in _ELSEWHERE}
    return {FACADE: envelope, **({_STATELESS: True} if row.state is ABSENT else {})}


def _envelope(info: SnapshotInfo) -> dict[str, JSON]:
    envelope = info.metadata.get(FACADE)
    if not isinstance(envelope, dict):
        return {}
    return {name: value for name, value in envelope.items() if name not in _ELSEWHERE}


KIND = "agent"

Context: TypeAlias = Mapping[str, Any] | str | None
PrefixOf: TypeAlias = Callable[[Any], str | None]


class Tenant(NamedTuple):
    """A tenant: its stored sessions begin with `prefix`, which is empty for no tenant."""

    prefix: str = ""

    def scope(self, session_id: str) -> ScopeKey:
        return ScopeKey(self.prefix + escaped(session_id))

    def session_of(self, stored: str) -> str | None:
        """Return the session of a stored name, None if it is not this tenant's."""
        if not stored.startswith(self.prefix):
            return None
        return unescaped(stored.removeprefix(self.prefix))


def tenant_of(context: Context, prefix_of: PrefixOf | None) -> Tenant:
    """Return the tenant of a context.

    Raises:
        InvalidInput: the context names no tenant. Without one, every caller would see the session.
    """
    named = prefix_of(context) if prefix_of is not None else _named_in(context)
    if named is None:
        return Tenant()
    if inspect.iscoroutine(named):
        named.close()
        raise InvalidInput("prefix_of must not be async")
    if not isinstance(named, str) or not named.strip():
        raise InvalidInput(f"a tenant must have a name. type=`{type(named).__name__}`")
    return Tenant(escaped(named) + "/")


def _named_in(context: Context) -> object:
    if context is None or isinstance(context, str):
        return context
    require(isinstance(context, Mapping), "a context must be a mapping", context)
    if not context:
        return None
    auth = context.get("auth")
    uid = auth.get("uid") if isinstance(auth, Mapping) else None
    if uid is None:
        raise InvalidInput("the context has no auth.uid: give the store a prefix_of")
    return uid
