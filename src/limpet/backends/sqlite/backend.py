"""The engine in one SQLite file: the embedded default.

Tables that a person can read (`sql/`), statements by name (`sql/queries.sql`). A
commit is one transaction that holds the file's write lock from its first read on, so what it
decides (core/commits.py) is still true when it is written. Several processes may write at once.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from limpet.backends.sql.backend import SqlBackend
from limpet.backends.sql.tables import Tables
from limpet.backends.sqlite.check import check_some
from limpet.backends.sqlite.errors import is_full
from limpet.backends.sqlite.file import SqliteFile
from limpet.backends.sqlite.listen import SqliteListener
from limpet.backends.sqlite.read_only import FileChanged, ReadOnlyFile
from limpet.core.limits import CACHE_BYTES_MAX, LOCK_WAIT_S_MAX
from limpet.errors import Unavailable
from limpet.model import ANY, Expect, Finding, Pruned, ScopeKey
from limpet.protocol import Clock

T = TypeVar("T")

_READS_MAX = 10


class SqliteBackend(SqlBackend):
    """An engine whose storage is one file."""

    blocking = True
    capabilities = frozenset({"durable", "index", "atomic"})

    def __init__(
        self,
        path: str,
        *,
        clock: Clock,
        lock_wait_s: float = LOCK_WAIT_S_MAX,
        synchronous: str = "full",
        cache_bytes_max: int = CACHE_BYTES_MAX,
        mode: str = "rw",
    ) -> None:
        """Open the file, creating it or bringing its tables up to date; with `ro` only read it."""
        super().__init__(cache_bytes_max)
        self._clock = clock
        file = ReadOnlyFile if mode == "ro" else SqliteFile
        self._file = file(path, clock=clock, lock_wait_s=lock_wait_s, synchronous=synchronous)

    def close(self) -> None:
        self._file.close()
        self._cache.clear()

    def _read(self, action: Callable[[Tables], T]) -> T:
        for _ in range(_READS_MAX - 1):
            with suppress(FileChanged), self._file.transaction() as transaction:
                return action(Tables(transaction))
        with self._file.transaction() as transaction:
            return action(Tables(transaction))

    def _write(self, action: Callable[[Tables], T]) -> T:
        with self._file.transaction(write=True) as transaction:
            return action(Tables(transaction))

    # On a full disk SQLite still needs a few pages for its log. So the log is emptied first, and as
    # little as possible is deleted at a time.

    def delete_snapshots(
        self,
        scope: ScopeKey,
        ids: Sequence[str],
        *,
        spare_head: bool = False,
        fence: str | None = None,
    ) -> Pruned:
        delete = partial(super().delete_snapshots, scope, spare_head=spare_head, fence=fence)
        try:
            return delete(ids)
        except Unavailable as error:
            if not is_full(error):
                raise
        count = size = 0
        for each in ids:
            self._file.empty_log()
            done = delete([each])
            count, size = count + done.count, size + done.bytes
        return Pruned(count, size)

    def delete_scope(
        self, scope: ScopeKey, *, expect: Expect = ANY, fence: str | None = None
    ) -> int:
        delete = partial(super().delete_scope, scope, expect=expect, fence=fence)
        return self._with_empty_log(delete)

    def delete_session(self, session_id: str) -> int:
        return self._with_empty_log(partial(super().delete_session, session_id))

    def _with_empty_log(self, delete: Callable[[], int]) -> int:
        try:
            return delete()
        except Unavailable as error:
            if not is_full(error):
                raise
            self._file.empty_log()
            return delete()

    def listen(self) -> SqliteListener:
        return SqliteListener(self._file, self._clock)

    def _give_back(self) -> int:
        return self._file.compact()

    def check(self, after: str, *, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
        self._file.check_in_place()
        with self._file.transaction(write=repair) as transaction:
            return check_some(transaction, after, repair=repair, limit=limit)
