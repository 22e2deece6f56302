"""The folder of Genkit's own `FileSessionStore`, read and written beside a Node process.

Among processes of ours nothing is lost: a file is replaced under a lock of its folder, and only if
it still holds what the change was made from. Node has no lock. What it writes is noticed until the
rename that puts ours in place, and then the change is made again, from that. What remains:

- Node writes within the microseconds between our last look and our rename: its write is lost.
- Node has read a snapshot, we write it, Node writes what it made of the old one: ours is lost. That
  is how two processes of Node lose theirs, too. Ours was stored, read by others, and acknowledged.

So the last writer wins there, by one write each time; a file is whole in any case, for both sides,
and nobody is refused. Two that save different snapshots never meet. To have one snapshot changed by
both, let one side alone write it, or both ask one process of ours.
"""

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Callable
from typing import Generic

from limpet.backends.buckets.protocol import Moved
from limpet.compat.genkit import rules
from limpet.compat.genkit.node_files.check import folders_below, judge
from limpet.compat.genkit.node_files.folder import Shelf
from limpet.compat.genkit.node_files.format import GLOBAL, check_name, check_prefix
from limpet.compat.genkit.node_files.watch import subscribe
from limpet.compat.genkit.places import (
    Context,
    PrefixOf,
    Tenant,
    check_prefix_of,
    tenant_of,
)
from limpet.compat.genkit.records import S, SessionSnapshot
from limpet.compat.genkit.store import Callback, Mutator
from limpet.compat.wire import folder_of, shown
from limpet.core import ids, limits
from limpet.errors import AlreadyExists, InvalidInput, Unavailable
from limpet.model import Finding
from limpet.opening import CLOCK, draw, open_files

_PAUSE_S_MIN = 0.001
_PAUSE_S_MAX = 0.1
_SHELVES_MAX = 256  # tenants of whose files something is remembered
_POLL_S = 0.2


class JsonFileSessionStore(Generic[S]):
    """The snapshots of sessions as files that Genkit's `FileSessionStore` in JavaScript keeps.

    A snapshot is `<dir>/<tenant>/<snapshot_id>.json`, and `<tenant>/.pointers/<session_id>.json`
    names the latest of a session; who has no tenant is in `global`. So an id must be one plain name
    of a file. Any number of processes may use the folder, of ours and of Node: see above for what
    the latter can lose. Files are made durable and can be read by their owner alone. The folder is
    created with the first save; reading creates nothing but a pointer that is missing or wrong.

    The options and the three verbs of Genkit are those of `SessionStore`. The latest of a session
    is the one that its pointer names, which is the last that was new, wherever no branches are
    refused and `latest` is `leaf`. `prefix_of` may return several names with `/` between.

    `max_persisted_chain_length` is how many snapshots of a line are kept: with each new one those
    before are removed, back to the first from which another line branches off, which stays.
    `poll_s` is how long a change may go unnoticed by those who watch.
    """

    def __init__(
        self,
        dir: str | os.PathLike[str],
        *,
        reject_branching_sessions: bool = False,
        latest: rules.Latest = "leaf",
        prefix_of: PrefixOf | None = None,
        max_persisted_chain_length: int | None = None,
        poll_s: float = _POLL_S,
    ) -> None:
        if latest not in rules.POLICIES:
            raise InvalidInput(f"latest must be leaf or newest. latest=`{shown(latest)}`")
        self._keep = limits.check_count("max_persisted_chain_length", max_persisted_chain_length)
        if self._keep == 0:
            raise InvalidInput("max_persisted_chain_length must be at least 1")
        self._poll_s = limits.check_seconds("poll_s", poll_s)
        if self._poll_s == 0:
            raise InvalidInput("poll_s must be more than 0")
        self._dir = folder_of(dir)
        self._bucket = open_files(self._dir)
        self._rejects = reject_branching_sessions
        self._policy: rules.Latest = latest
        self._prefix_of = check_prefix_of(prefix_of)
        self._shelves: dict[str, Shelf] = {}

    async def get_snapshot(
        self,
        *,
        snapshot_id: str | None = None,
        session_id: str | None = None,
        context: Context = None,
    ) -> SessionSnapshot[S] | None:
        """Return a snapshot by its id, or the latest of a session; None if there is none.

        Exactly one id must be given; an empty one is none. A pending snapshot whose heartbeat is
        older than a minute is `expired`. Files that cannot be read are passed over where a session
        is asked for; `check` tells.

        Raises:
            InvalidInput: both ids are given, or neither, or one cannot be the name of a file.
            Conflict: the session branches and that is refused, or its parents form a circle.
            Corrupt: the snapshot was asked for by its id, and its file holds none.
        """
        if bool(snapshot_id) == bool(session_id):
            raise InvalidInput("give either a snapshot_id or a session_id")
        shelf = self._shelf(context)
        row: rules.Row | None
        if snapshot_id:
            held = await asyncio.to_thread(shelf.read, check_name("snapshot_id", snapshot_id))
            row = None if held is None else held.row
        else:
            checked = check_name("session_id", session_id)
            row = await asyncio.to_thread(shelf.read_latest, checked)
        return None if row is None else rules.as_read(row, draw().now)

    async def save_snapshot(
        self, snapshot_id: str | None, mutator: Mutator[S], *, context: Context = None
    ) -> str | None:
        """Let a function decide what a snapshot becomes, and store that, as one step. Durable.

        As `SessionStore.save_snapshot`, among all processes that use this class.

        Raises:
            InvalidInput: it returned what is no snapshot, or what this one may not become; or
                something in it is not JSON; or an id cannot be the name of a file.
            Conflict: the snapshot has ended, and would get another status.
            AlreadyExists: no id was given, and there is one with the id that it returned.
            Corrupt: what stands there cannot be read. It is left alone.
        """
        if not callable(mutator):
            raise InvalidInput(f"a mutator is a function. type=`{type(mutator).__name__}`")
        shelf = self._shelf(context)
        asked_id = check_name("snapshot_id", snapshot_id) if snapshot_id else None
        deadline = CLOCK.monotonic() + limits.CONTENTION_WAIT_S_MAX
        pause_s = _PAUSE_S_MIN
        while True:
            held = None if asked_id is None else await asyncio.to_thread(shelf.read, asked_id)
            before = None if held is None else rules.repaired(held.row)
            after = await _asked(mutator, before)
            if after is None:
                return None
            stamp = draw()
            id = asked_id or after.snapshot_id or ids.mint(stamp.now, stamp.bits, "")
            check_name("snapshot_id", id)
            row = rules.next_row(id, before, after, stamp.now)
            check_name("session_id", rules.session_of(row))
            version = None if held is None else held.version
            try:
                await asyncio.to_thread(shelf.write, row, expect=version, keep=self._keep)
            except Moved:
                if asked_id is None:
                    raise AlreadyExists(
                        f"the snapshot is there already. snapshot_id=`{id}`"
                    ) from None
                if CLOCK.monotonic() > deadline:
                    raise Unavailable(f"others kept getting in first. snapshot_id=`{id}`") from None
            else:
                return id
            await asyncio.sleep(CLOCK.jitter() * pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    def on_snapshot_state_change(
        self, snapshot_id: str, callback: Callback[S], *, context: Context = None
    ) -> Callable[[], None]:
        """Call a function, which may be async, with a snapshot as it is now, and when it changes.

        Whoever changes it. The snapshot need not exist yet. Versions in between may be left out,
        the last one never. That it expires is no change. What the function raises is logged, and it
        goes on. It ends by the function returned, which may be called again, from anywhere, or with
        the loop. Call this in a task: it runs in the loop of that.
        """
        if not callable(callback):
            raise InvalidInput(f"a callback is a function. type=`{type(callback).__name__}`")
        shelf = self._shelf(context)
        id = check_name("snapshot_id", snapshot_id)
        return subscribe(shelf, id, callback, poll_s=self._poll_s)

    async def check(self) -> AsyncIterator[Finding]:
        """Read all files of all tenants and yield what is wrong with them. Changes nothing.

        The codes: `snapshot_damaged`, `snapshot_unreadable` (errors); `snapshot_id_differs`,
        `parent_is_itself`, `name_wrong`, `pointer_wrong` (warnings); `temporary_left`
        (information).
        """
        for prefix in await asyncio.to_thread(folders_below, self._dir):
            shelf = self._shelf_of(prefix)
            for found in await asyncio.to_thread(judge, shelf):
                yield found

    def _shelf(self, context: Context) -> Shelf:
        tenant = tenant_of(context, self._prefix_of)
        # The name of a tenant stands there as that of a session of nobody does.
        named = Tenant().session_of(tenant.prefix.removesuffix("/"))
        if named == GLOBAL and self._prefix_of is None:
            raise InvalidInput("a tenant cannot have the name of those who have none")
        return self._shelf_of(GLOBAL if named is None else check_prefix(named))

    def _shelf_of(self, prefix: str) -> Shelf:
        found = self._shelves.get(prefix)
        if found is None:
            if len(self._shelves) >= _SHELVES_MAX:
                self._shelves.clear()
            found = Shelf(
                self._bucket, self._dir, prefix, policy=self._policy, reject=self._rejects
            )
            self._shelves[prefix] = found
        return found


async def _asked(
    mutator: Mutator[S], current: SessionSnapshot[S] | None
) -> SessionSnapshot[S] | None:
    answer = mutator(current)
    if inspect.isawaitable(answer):
        answer = await answer
    return None if answer is None else SessionSnapshot.of(answer)
