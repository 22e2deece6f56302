"""How a `SessionManager` takes the state of an agent and hands it to a storage."""

import asyncio
import logging
import threading
import traceback
from collections.abc import Coroutine, Mapping
from typing import Any

from limpet.compat.strands.manager_agents import Agent, settled
from limpet.compat.strands.records import (
    SCHEMA_VERSION,
    Snapshot,
    SnapshotLocation,
)
from limpet.compat.strands.storage import SnapshotStorage
from limpet.compat.wire import wire_time
from limpet.core import ids, times
from limpet.errors import InvalidInput
from limpet.model import JSON
from limpet.opening import draw

_LATEST = "latest"  # what the tools give as the id of the latest; nobody looks at it
_log = logging.getLogger("limpet.compat.strands")


def log(fact: str, place: SnapshotLocation, error: Exception) -> None:
    """Say what went wrong and is not raised.

    As text: a record that holds the error would hold on to the agent, whose id is then taken.
    """
    _log.warning(
        "%s. session_id=`%s` scope_id=`%s`\n%s",
        fact,
        place.session_id,
        place.scope_id,
        "".join(traceback.format_exception(error)).rstrip(),
    )


async def take(agent: Agent, scope: str, app_data: Mapping[str, JSON]) -> Snapshot:
    """Return the state of an agent as a snapshot of this moment."""
    data: Any = await settled(agent.take_snapshot())
    if not isinstance(data, dict):
        raise InvalidInput(f"the state of an agent is a dict. type=`{type(data).__name__}`")
    moment = wire_time(times.from_us(draw().now))
    return Snapshot(scope, SCHEMA_VERSION, moment, data, dict(app_data))


async def put(
    storage: SnapshotStorage, place: SnapshotLocation, snapshot: Snapshot, id: str | None = None
) -> None:
    """Put a snapshot into history, or without an id make it the latest."""
    await storage.save_snapshot(place, _LATEST if id is None else id, id is None, snapshot)


async def finished(save: Coroutine[Any, Any, None]) -> None:
    """Wait for a save to its end, also when that is cancelled.

    What has begun goes on in any case; were the next one not to wait for it, it could be overtaken.
    """
    task = asyncio.ensure_future(save)
    cancelled = False
    while not task.done():
        try:
            # Not `shield`: what it raises would live on in the loop, and the agent with it.
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    del task
    try:
        if cancelled:
            raise asyncio.CancelledError
        if error is not None:
            raise error
    finally:
        del error


_minting = threading.Lock()
_last_minted = ""


def mint() -> str:
    """Return a new id, greater than all that this process has minted before."""
    global _last_minted
    stamp = draw()
    with _minting:
        _last_minted = ids.mint(stamp.now, stamp.bits, _last_minted)
        return _last_minted
