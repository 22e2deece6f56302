"""The parts of the engine in memory: one scope, and who hears of its changes."""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue

from limpet.core.leases import LeaseRow
from limpet.core.notes import NoteRow
from limpet.core.rows import Row
from limpet.listening import Topic


class MemoryScope:
    """One scope: snapshots by place, places by id, and notes by address."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.bodies: dict[int, bytes] = {}
        self.order: list[int] = []
        self.places: dict[str, int] = {}
        self.notes: dict[tuple[str, str], NoteRow] = {}
        self.head: int | None = None
        self.floor = ""
        self.lease: LeaseRow | None = None

    @property
    def fence(self) -> str | None:
        """The key of the lease that it carries."""
        return None if self.lease is None else self.lease.key

    @property
    def head_row(self) -> Row | None:
        """The snapshot that it shows."""
        return None if self.head is None else self.rows[self.head]

    def row(self, snapshot_id: str | None) -> Row | None:
        """Return a snapshot by its id; None asks for the head."""
        place = self.head if snapshot_id is None else self.places.get(snapshot_id)
        return None if place is None else self.rows[place]

    def newest_kept(self) -> Row | None:
        """Return the newest kept snapshot."""
        return next((self.rows[p] for p in reversed(self.order) if self.rows[p].kept), None)

    def put(self, row: Row, body: bytes) -> None:
        """Add a snapshot, or another version of one."""
        if row.seq not in self.rows:
            insort(self.order, row.seq)
        self.rows[row.seq] = row
        self.bodies[row.seq] = body
        self.places[row.id] = row.seq

    def drop(self, row: Row) -> None:
        """Remove a snapshot."""
        del self.rows[row.seq], self.bodies[row.seq], self.places[row.id]
        del self.order[bisect_left(self.order, row.seq)]

    def remove(self, snapshot_id: str, *, spare_head: bool) -> Row | None:
        """Remove what there is of an id, with its notes; a head uncovers the newest kept one."""
        row = self.row(snapshot_id)
        if row is not None and row.seq == self.head and spare_head:
            return None
        for at in [at for at in self.notes if at[0] == snapshot_id]:
            del self.notes[at]
        if row is not None:
            self.drop(row)
            if self.head == row.seq:
                newest = self.newest_kept()
                self.head = None if newest is None else newest.seq
        return row

    def newest_first(self, after: int | None) -> Iterator[Row]:
        """Yield snapshots, the last saved first, those behind a place."""
        end = len(self.order) if after is None else bisect_left(self.order, after)
        return (self.rows[self.order[at]] for at in range(end - 1, -1, -1))

    def holds_anything(self) -> bool:
        """Tell whether it holds a snapshot, a note or a lease."""
        return bool(self.rows or self.notes or self.lease)


class MemoryListener:
    """Is told by whoever changes something."""

    def __init__(self) -> None:
        # Not a condition: the garbage collector may wake it in a thread that holds its lock.
        self._said: SimpleQueue[str | None] = SimpleQueue()

    def tell(self, session_id: str) -> None:
        """Say that something in a session has changed."""
        self._said.put(session_id)

    def follow(self, topics: Collection[Topic]) -> None:
        """Nothing: everything is heard."""

    def wait(self, *, lively: bool) -> frozenset[str] | None:
        """Wait until somebody says something."""
        heard = {self._said.get()}
        with suppress(Empty):
            while True:
                heard.add(self._said.get_nowait())
        return frozenset(each for each in heard if each is not None)

    def wake(self) -> None:
        """End a wait."""
        self._said.put(None)

    def close(self) -> None:
        """Nothing is held."""
