"""The folder of Genkit's own `FileSessionStore`, shared with Node processes.

Among Limpet processes no write is lost: a file is replaced under a lock of its folder, and only if
it still has the content that the change is based on. Node takes no lock. A write of Node is noticed
until our rename, and then the change is made again from it. Two races remain:

- Node writes in the microseconds between our last check and our rename: its write is lost.
- Node reads a snapshot, we write it, Node writes its change of the old one: our write is lost, as
  with two Node processes, although it was stored and acknowledged.

So the last writer wins, by one write each time. A file is never torn, and no write is refused.
Writers of different snapshots never collide. If both sides must change one snapshot, let only one
of them write it.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from typing import Generic

from limpet.backends.buckets import Moved
from limpet.backends.support.recent import Recent
from limpet.compat.contention import Contention
from limpet.compat.genkit import rules
from limpet.compat.genkit.node_files.check import check_folder, folders_below
from limpet.compat.genkit.node_files.folder import TenantFolder
from limpet.compat.genkit.node_files.format import GLOBAL, check_name, check_prefix
from limpet.compat.genkit.node_files.watch import FileSubscription
from limpet.compat.genkit.records import S, SessionSnapshot
from limpet.compat.genkit.store import Callback, Mutator, apply_mutator, check_function
from limpet.compat.genkit.tenants import (
    Context,
    PrefixOf,
    Tenant,
    check_prefix_of,
    tenant_of,
)
from limpet.compat.wire import folder_of
from limpet.core import ids, limits
from limpet.errors import AlreadyExists, InvalidInput
from limpet.model import Finding
from limpet.opening import CLOCK, draw, open_files

_FOLDERS_MAX = 256  # tenants whose rows are remembered
_POLL_S = 0.2


class JsonFileSessionStore(Generic[S]):
    """The snapshots of sessions as files that Genkit's `FileSessionStore` in JavaScript keeps.

    A snapshot is `<dir>/<tenant>/<snapshot_id>.json`, and `<tenant>/.pointers/<session_id>.json`
    names the latest of a session; without a tenant the folder is `global`. So ids must be usable as
    file names. Any number of processes may use the folder, of Limpet and of Node; the module's
    docstring says what Node can lose. Files are durable and readable by their owner only. The first
    save creates the folder; reading only creates a pointer that is missing or wrong.

    The options and methods are those of `SessionStore`. If `latest` is `leaf` and branches are
    allowed, the latest of a session is the one that its pointer names: the last new one.
    `prefix_of` may return several names with `/` between.

    `max_persisted_chain_length` is how many snapshots of a branch are kept: each new one removes
    older ones, back to a snapshot with other branches, which stays. `poll_s` is how often the file
    of a watched snapshot is polled.
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
        self._keep = limits.check_count("max_persisted_chain_length", max_persisted_chain_length)
        if self._keep == 0:
            raise InvalidInput("max_persisted_chain_length must be at least 1")
        self._poll_s = limits.check_seconds("poll_s", poll_s)
        if self._poll_s == 0:
            raise InvalidInput("poll_s must be more than 0")
        self._dir = folder_of(dir)
        self._bucket = open_files(self._dir)
        self._rejects = reject_branching_sessions
        self._policy = rules.check_policy(latest)
        self._prefix_of = check_prefix_of(prefix_of)
        self._folders: Recent[str, TenantFolder] = Recent(_FOLDERS_MAX)

    async def get_snapshot(
        self,
        *,
        snapshot_id: str | None = None,
        session_id: str | None = None,
        context: Context = None,
    ) -> SessionSnapshot[S] | None:
        """As `SessionStore.get_snapshot`; ids must be usable as file names.

        The latest of a session skips files that cannot be read, which `check` reports; a snapshot
        read by its id is Corrupt then.
        """
        if bool(snapshot_id) == bool(session_id):
            raise InvalidInput("give either a snapshot_id or a session_id")
        folder = self._folder(context)
        row: rules.Row | None
        if snapshot_id:
            found = await asyncio.to_thread(folder.read, check_name("snapshot_id", snapshot_id))
            row = None if found is None else found.row
        else:
            checked = check_name("session_id", session_id)
            row = await asyncio.to_thread(folder.read_latest, checked)
        return None if row is None else rules.as_read(row, draw().now)

    async def save_snapshot(
        self, snapshot_id: str | None, mutator: Mutator[S], *, context: Context = None
    ) -> str | None:
        """As `SessionStore.save_snapshot`, atomic among all processes that use this class.

        A file that cannot be read is Corrupt, and is not overwritten.
        """
        check_function("mutator", mutator)
        folder = self._folder(context)
        asked_id = check_name("snapshot_id", snapshot_id) if snapshot_id else None
        contention = Contention(CLOCK, f"snapshot_id=`{asked_id or ''}`")
        while True:
            found = None if asked_id is None else await asyncio.to_thread(folder.read, asked_id)
            before = None if found is None else rules.repaired(found.row)
            after = await apply_mutator(mutator, before)
            if after is None:
                return None
            stamp = draw()
            id = asked_id or after.snapshot_id or ids.mint(stamp.now, stamp.bits, "")
            check_name("snapshot_id", id)
            row = rules.next_row(id, before, after, stamp.now)
            check_name("session_id", rules.session_of(row))
            version = None if found is None else found.version
            try:
                await asyncio.to_thread(folder.write, row, expect=version, keep=self._keep)
                return id
            except Moved:
                if asked_id is None:
                    raise AlreadyExists(f"the snapshot exists. snapshot_id=`{id}`") from None
            await contention.pause()

    def on_snapshot_state_change(
        self, snapshot_id: str, callback: Callback[S], *, context: Context = None
    ) -> Callable[[], None]:
        """As `SessionStore.on_snapshot_state_change`; it ends with the event loop at the latest."""
        check_function("callback", callback)
        folder = self._folder(context)
        id = check_name("snapshot_id", snapshot_id)
        return FileSubscription(folder, id, callback, poll_s=self._poll_s).end

    async def check(self) -> AsyncIterator[Finding]:
        """Read all files of all tenants and yield what is wrong with them. Changes nothing.

        The codes: `snapshot_damaged`, `snapshot_unreadable` (errors); `snapshot_id_differs`,
        `parent_is_itself`, `name_wrong`, `pointer_wrong` (warnings); `temporary_left`
        (information).
        """
        for prefix in await asyncio.to_thread(folders_below, self._dir):
            for found in await asyncio.to_thread(check_folder, self._open_folder(prefix)):
                yield found

    def _folder(self, context: Context) -> TenantFolder:
        tenant = tenant_of(context, self._prefix_of)
        # The prefix is escaped as a session without a tenant is.
        named = Tenant().session_of(tenant.prefix.removesuffix("/"))
        if named == GLOBAL and self._prefix_of is None:
            raise InvalidInput(f"a tenant cannot be named `{GLOBAL}`: that is the shared folder")
        return self._open_folder(GLOBAL if named is None else check_prefix(named))

    def _open_folder(self, prefix: str) -> TenantFolder:
        folder = self._folders.get(prefix)
        if folder is None:
            folder = TenantFolder(
                self._bucket, self._dir, prefix, policy=self._policy, reject=self._rejects
            )
            self._folders.put(prefix, folder)
        return folder
