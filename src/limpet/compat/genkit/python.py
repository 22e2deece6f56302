"""Sessions of Genkit agents in Python: its `SessionStore` on every engine.

Any process can continue them, and watch or abort a turn in the background::

    from genkit.exp import Genkit
    from limpet.compat.genkit.python import LimpetGenkitStore

    with limpet.open("sqlite:///agents.db") as store:
        agent = Genkit().define_agent("guide", model=model, store=LimpetGenkitStore(store))
        answer = await agent.chat(session_id="chat-42").send("hello")

Sessions are stored as `limpet.compat.genkit.SessionStore` stores them, so that agents in JavaScript
and in Python can share them.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import iscoroutine
from typing import Any, Final, NoReturn, TypeAlias

from limpet import Scope
from limpet.compat import needs
from limpet.compat.genkit import rules
from limpet.compat.genkit.records import COMPLETED, Context, Row
from limpet.compat.genkit.records import SessionSnapshot as Record
from limpet.compat.genkit.store import Sessions, Subscription, check_function
from limpet.compat.wire import require
from limpet.errors import Conflict, Corrupt, InvalidInput, LimpetError, Unavailable
from limpet.model import Snapshot

with needs("genkit", "Genkit", extra="genkit"):
    from genkit import GenkitError
    from genkit.exp.agent import SessionSnapshot, SnapshotStatus
    from pydantic import ValidationError

__all__ = ["LimpetGenkitStore"]

Mutator: TypeAlias = Callable[[SessionSnapshot | None], SessionSnapshot | None]

_REFUSED: Final = "FAILED_PRECONDITION"
_STATUSES: Final[dict[type[LimpetError], Any]] = {
    InvalidInput: "INVALID_ARGUMENT",
    Conflict: _REFUSED,
    Unavailable: "UNAVAILABLE",
    Corrupt: "DATA_LOSS",
}


class LimpetGenkitStore(Sessions[Any]):
    """Snapshots in an open store, sync or async. Safe for tasks, threads and processes.

    The options are those of `limpet.compat.genkit.SessionStore`. The context of a call is that of
    the agent: with `auth.uid` in it, each user has sessions of their own.

    Errors are raised as `GenkitError`, which agents expect; the error of Limpet is its cause.
    InvalidInput is `INVALID_ARGUMENT`, Conflict `FAILED_PRECONDITION`, Unavailable `UNAVAILABLE`,
    Corrupt `DATA_LOSS`. A snapshot that the package cannot read is `FAILED_PRECONDITION` too.
    """

    async def get_snapshot(
        self,
        *,
        snapshot_id: str | None = None,
        session_id: str | None = None,
        context: Context = None,
    ) -> SessionSnapshot | None:
        """Return a snapshot by its id, or the latest of a session; None if there is none.

        Exactly one id must be given. A pending snapshot whose heartbeat is older than a minute is
        `expired`.
        """
        with _genkit_errors():
            row = await self._get(Scope.load, snapshot_id, session_id, context)
            return None if row is None else _snapshot_of(row)

    async def save_snapshot(
        self, snapshot_id: str, fn: Mutator, *, context: Context = None
    ) -> SessionSnapshot | None:
        """Compute a snapshot from the stored one and store it, as one step. Durable.

        `fn` gets the stored snapshot, or None, and returns the one to store, or None to write
        nothing. If another writer was faster it is called again, so it must not have side effects.
        A status that is left out is `completed`, a time of creation is now; a final status, the
        session, the parent and the time of creation of a stored snapshot cannot change.

        Returns the snapshot as it is stored, None if nothing was written.
        """
        given: SessionSnapshot | None = None

        def mutate(current: Row | None) -> Row | None:
            nonlocal given
            given = fn(None if current is None else _snapshot_of(current))
            return None if given is None else _row_of(given, current)

        with _genkit_errors():
            check_function("mutator", fn)
            row = await self._save(self._tenant(context), snapshot_id, mutate)
        if row is None or given is None:
            return None
        stored = {
            "snapshot_id": row.snapshot_id,
            "session_id": row.session_id,
            "parent_id": row.parent_id,
            "created_at": row.created_at,
            "status": given.status or SnapshotStatus.COMPLETED,
        }
        return given.model_copy(update=stored)

    async def on_snapshot_status_change(
        self, snapshot_id: str, *, context: Context = None
    ) -> "StatusStream":
        """Return the status of a snapshot, and each later one, as a stream.

        Changes by any process count. The snapshot need not exist yet. Intermediate statuses may be
        skipped, the last one never. The stream ends after `completed`, `failed` or `aborted`, or
        when the store is closed; `aclose()` ends it earlier.
        """
        with _genkit_errors():
            tenant = self._tenant(context)
            return StatusStream(lambda call: self._watch(tenant, snapshot_id, call))


class StatusStream:
    """The statuses of a snapshot, to be read with `async for`."""

    def __init__(self, watch: Callable[[Callable[[Snapshot], None]], Subscription]) -> None:
        self._statuses: asyncio.Queue[SnapshotStatus | None] = asyncio.Queue()
        self._last: str | None = None
        self._watching = watch(self._changed)
        self._watching.task.add_done_callback(lambda _: self._statuses.put_nowait(None))

    def __aiter__(self) -> "StatusStream":
        return self

    async def __anext__(self) -> SnapshotStatus:
        status = await self._statuses.get()
        if status is None:
            self._statuses.put_nowait(None)  # for one who asks again
            raise StopAsyncIteration
        return status

    async def aclose(self) -> None:
        """End the stream, also for a task that waits for a status. May be repeated."""
        self._watching.end()
        self._statuses.put_nowait(None)

    def _changed(self, snapshot: Snapshot) -> None:
        status = snapshot.status or COMPLETED
        if status != self._last and status in rules.STORED:
            self._statuses.put_nowait(SnapshotStatus(status))
        self._last = status
        if status in rules.TERMINAL:
            self._watching.end()


@contextmanager
def _genkit_errors() -> Iterator[None]:
    try:
        yield
    except LimpetError as error:
        raise GenkitError(
            status=next(
                (_STATUSES[kind] for kind in _STATUSES if isinstance(error, kind)), "INTERNAL"
            ),
            message=str(error),
        ) from error


def _snapshot_of(row: Row) -> SessionSnapshot:
    try:
        return SessionSnapshot.model_validate(row.to_json())
    except ValidationError as error:
        # Not chained: its message quotes the state.
        where = ".".join(map(str, error.errors(include_input=False)[0]["loc"]))
        fact = "the snapshot is not one that Genkit for Python can read"
        message = f"{fact}. snapshot_id=`{row.snapshot_id}` field=`{where}`"
    raise GenkitError(status=_REFUSED, message=message)


def _row_of(given: Any, current: Row | None) -> Row:
    if iscoroutine(given):
        given.close()
        raise InvalidInput("the mutator must not be async")
    require(isinstance(given, SessionSnapshot), "expected a SessionSnapshot", given)
    row: Row = Record.from_json({"status": COMPLETED, **_wire(given)})
    if current is not None and rules.session_of(row) not in (None, current.session_id):
        id = current.snapshot_id
        message = f"a snapshot cannot move to another session. snapshot_id=`{id}`"
        raise GenkitError(status=_REFUSED, message=message)
    return row


def _wire(given: SessionSnapshot) -> dict[str, Any]:
    """Return the JSON of a snapshot. Fields that are None are left out, but not in custom state."""
    options: Any = {"mode": "json", "fallback": _refuse}
    try:
        wire = given.model_dump(exclude={"state": {"custom"}}, **options)
        if given.state is not None and given.state.custom is not None:
            custom = given.state.model_dump(include={"custom"}, exclude_none=False, **options)
            wire["state"].update(custom)
    except ValueError as error:
        raise InvalidInput("a value in the snapshot is not JSON") from error
    return wire


def _refuse(value: object) -> NoReturn:
    raise InvalidInput(f"a value in the snapshot is not JSON. type=`{type(value).__name__}`")
