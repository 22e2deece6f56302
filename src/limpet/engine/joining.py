"""New notes that wait a moment for the save that follows them, and are stored in its transaction.

An agent saves what a step has written, and then its state: two syncs of the disk where one will do.
A note is acknowledged once it is stored, with a save or alone if none comes. Few wait at a time,
since each holds a thread, which may be one of a pool that has few.
"""

import threading
from contextlib import AbstractContextManager
from typing import Final

from limpet.core.limits import RETRY_S_MAX
from limpet.core.notes import written_note
from limpet.engine.saving import Known, Saved
from limpet.model import ScopeKey
from limpet.protocol import NoteWrite
from limpet.storage import TRAIL_BYTES_MAX, VERSION_BYTES, Change

_WAIT_S: Final = 0.004
_WAITING_MAX: Final = 4


class Waiting:
    """A note that waits. `outcome` is whether it is stored, or a change that may have stored it."""

    __slots__ = ("outcome", "told", "write")

    def __init__(self, write: NoteWrite) -> None:
        self.write = write
        self.outcome: bool | Change = False
        self.told = threading.Lock()
        self.told.acquire()


class Joining:
    """The notes that wait, and their scopes. Whoever takes one out is the only one to store it."""

    def __init__(self) -> None:
        self.waiting: dict[Waiting, ScopeKey] = {}

    def wait(self, write: NoteWrite, first: AbstractContextManager[None]) -> bool | Change:
        """Wait for a save that takes a note, and return what came of it.

        `first` is the lock of the scope: a save that has begun already takes no more notes.
        """
        mine, is_told = Waiting(write), False
        try:
            with first:
                addresses = [each.write[:3] for each in self.waiting.copy()]
                if len(addresses) >= _WAITING_MAX or write[:3] in addresses:
                    return False
                self.waiting[mine] = write.scope
            is_told = mine.told.acquire(timeout=_WAIT_S)
        finally:  # also if this thread was interrupted: then nobody stores it later
            is_taken = self.waiting.pop(mine, None) is None
        if is_taken and not is_told:
            mine.told.acquire(timeout=RETRY_S_MAX)
        return mine.outcome

    def take(self, key: ScopeKey) -> list[Waiting]:
        """Return the notes of a scope that wait, which wait for the caller from now on."""
        mine = [each for each, scope in self.waiting.copy().items() if scope == key]
        return [each for each in mine if self.waiting.pop(each, None)]


def joined(sent: tuple[Change, Saved], notes: list[Waiting]) -> tuple[Change, Saved]:
    """Return a save that continues, with new notes; it is refused if one of them is there.

    The nonce of a note behind its own in the trail distinguishes it from the same save without.
    """
    change, saved = sent
    known: Known = saved.known  # type: ignore[assignment]  # one that continues is known
    trail, nonce = known.record.trail, bytes.fromhex(notes[0].write.stamp.nonce)
    trail = (trail[:VERSION_BYTES] + nonce + trail[VERSION_BYTES:])[:TRAIL_BYTES_MAX]
    after = known.record._replace(notes=known.record.notes + len(notes), trail=trail)
    rows = [written_note(each.write, None) for each in notes]
    change = change._replace(after=after, notes=rows, new_note=True)
    return change, Saved(saved.row, known._replace(record=after))
