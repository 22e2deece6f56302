"""The folder of one tenant: snapshots, pointers to the latest of each session, and what is pruned.

A snapshot counts once its own file is there; the pointer follows. Of several writers of a pointer
each compares what it read before its snapshot came, and whoever finds that others were there looks
at all snapshots. So a pointer of ours never leads back to an older one.
"""

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice, pairwise
from typing import NamedTuple

from limpet.backends.buckets.directory.folders import NOTHING, failure
from limpet.backends.buckets.protocol import Bucket, Moved
from limpet.compat.genkit import rules
from limpet.compat.genkit.node_files.format import (
    ENDING,
    POINTERS,
    bare,
    decode,
    decode_pointer,
    encode,
    encode_pointer,
    is_name,
)
from limpet.compat.genkit.rules import Row
from limpet.compat.wire import wire_time
from limpet.core import limits, times
from limpet.errors import Conflict, Corrupt, LimpetError, Unavailable
from limpet.model import Expect
from limpet.opening import draw

_TRIES_MAX = 100
_KNOWN_MAX = 50_000  # rows remembered, some hundred bytes each


class Held(NamedTuple):
    """A row as it stands in its file, the version of the file, and the id inside."""

    row: Row
    version: str
    inner_id: str | None


class Pointer(NamedTuple):
    """What a pointer names, and the version of its file; None for what is not there."""

    snapshot_id: str | None
    version: str | None


class _Known(NamedTuple):
    mark: str | None  # another after the file has changed
    row: Row | None  # None: it cannot be read


class Shelf:
    """The snapshots of one tenant. Every method may wait for the disk; any thread may call it."""

    def __init__(
        self, bucket: Bucket, root: str, prefix: str, *, policy: rules.Latest, reject: bool
    ) -> None:
        self._bucket = bucket
        self.path = os.path.join(root, prefix)
        self._prefix = prefix
        self._policy: rules.Latest = policy
        self._reject = reject
        self._known: dict[str, _Known] = {}

    # Snapshots

    def read(self, id: str) -> Held | None:
        """Return a snapshot as it is stored, or raise Corrupt."""
        (stored,) = self._bucket.get([self.key(id)])
        if stored is None:
            return None
        try:
            row = decode(stored.data)
        except Corrupt as cause:
            raise Corrupt(f"{cause}. path=`{self.path_of(id)}`") from cause
        return Held(replace(row, snapshot_id=id), stored.version or "", row.snapshot_id)

    def mark(self, id: str) -> str | None:
        """Return a text that is another after a snapshot was written, None if there is none."""
        key = self.key(id)
        return self._bucket.fingerprints({key: None})[key]

    def write(self, row: Row, *, expect: str | None, keep: int | None) -> None:
        """Store a row where the version expected stands; of its line keep so many.

        Raises:
            Moved: something else stands there.
        """
        id, session_id = row.snapshot_id or "", rules.session_of(row) or ""
        data = encode(row)
        before = None if expect is not None else self.pointer(session_id).version
        self._bucket.put(self.key(id), data, expect=expect)  # this line is the commit
        if expect is None:
            self._advance(session_id, id, before)
            if keep is not None:
                with suppress(LimpetError):  # the row is stored; the next save prunes
                    self._prune(bare(id, row), keep)

    def key(self, id: str) -> str:
        """Return the key of a snapshot's file."""
        return f"{self._prefix}/{id}{ENDING}"

    def path_of(self, id: str) -> str:
        """Return the path of a snapshot's file, for people."""
        return os.path.join(self.path, id + ENDING)

    # The latest of a session

    def read_latest(self, session_id: str) -> Row | None:
        """Return the latest row of a session as it is stored.

        By the pointer, if it leads to one of the session; else all are looked at, and the pointer
        is put right. Where branches count, or the newest is wanted, all are looked at every time.
        """
        if self._policy == "leaf" and not self._reject:
            pointed = self._pointed(session_id)
            if pointed is not None:
                return pointed
        for _ in range(_TRIES_MAX):
            pointer = self.pointer(session_id)
            found = rules.latest(
                self.rows(), session_id, policy=self._policy, reject_branching=self._reject
            )
            if found is None or found.snapshot_id is None:
                return None
            held = self.read(found.snapshot_id)
            if held is None:
                continue  # it was removed meanwhile
            if self._policy == "leaf" and pointer.snapshot_id != found.snapshot_id:
                # Who cannot write may read all the same; who was faster knows better.
                with suppress(Moved, LimpetError):
                    self._point(session_id, found.snapshot_id, expect=pointer.version)
            return held.row
        raise Unavailable(f"the snapshots keep vanishing. path=`{self.path}`")

    def pointer(self, session_id: str) -> Pointer:
        """Return where the pointer of a session leads."""
        (stored,) = self._bucket.get([self._pointer_key(session_id)])
        if stored is None:
            return Pointer(None, None)
        return Pointer(decode_pointer(stored.data), stored.version)

    def _pointer_key(self, session_id: str) -> str:
        return f"{self._prefix}/{POINTERS}/{session_id}{ENDING}"

    def _pointed(self, session_id: str) -> Row | None:
        named = self.pointer(session_id).snapshot_id
        with suppress(Corrupt):
            held = None if named is None else self.read(named)
            if held is not None and rules.session_of(held.row) == session_id:
                return held.row
        return None

    def _point(self, session_id: str, snapshot_id: str, *, expect: Expect) -> None:
        data = encode_pointer(snapshot_id, wire_time(times.from_us(draw().now)))
        self._bucket.put(self._pointer_key(session_id), data, expect=expect)

    def _advance(self, session_id: str, snapshot_id: str, before: str | None) -> None:
        """Let the pointer lead to a new row. `before` is its version before the row was stored."""
        try:
            try:
                self._point(session_id, snapshot_id, expect=before)
            except Moved:  # others have saved in this session at the same time
                self._settle(session_id)
        except Unavailable:
            # A reader would be led to the row before this one. Without a pointer it looks at all.
            self._bucket.delete([self._pointer_key(session_id)])

    def _settle(self, session_id: str) -> None:
        for _ in range(_TRIES_MAX):
            pointer = self.pointer(session_id)
            try:
                found = rules.latest(self.rows(), session_id)
            except Conflict:
                return  # there is no latest
            if found is None or found.snapshot_id in (None, pointer.snapshot_id):
                return
            with suppress(Moved):
                self._point(session_id, found.snapshot_id or "", expect=pointer.version)
                return
        raise Unavailable(f"the pointer does not rest. path=`{self.path}`", outcome_known=False)

    # All of them

    def rows(self) -> list[Row]:
        """Return all rows that can be read, without what they hold.

        What was read before and has not changed is not read again.
        """
        keys = {self.key(id): id for id in self.ids()}
        marks = self._bucket.fingerprints(dict.fromkeys(keys))
        before = self._known
        known = {
            key: before[key]
            for key in keys
            if key in before and marks[key] is not None and before[key].mark == marks[key]
        }
        missing = iter([key for key in keys if key not in known])
        while some := list(islice(missing, limits.PAGE_STATES_MAX)):
            for key, stored in zip(some, self._bucket.get(some), strict=True):
                row = None
                with suppress(Corrupt):
                    row = None if stored is None else bare(keys[key], decode(stored.data))
                known[key] = _Known(marks[key], row)
        self._known = known if len(known) <= _KNOWN_MAX else {}
        return [each.row for each in known.values() if each.row is not None]

    def ids(self) -> Iterator[str]:
        """Yield the ids that files here have as their names."""
        for name in self.names():
            id = name.removesuffix(ENDING)
            if id != name and is_name(id):
                yield id

    def names(self, *below: str) -> list[str]:
        """Return the names of all files in the folder, or in one below it."""
        path = os.path.join(self.path, *below)
        try:
            with os.scandir(path) as entries:
                return sorted(each.name for each in entries if each.is_file(follow_symlinks=False))
        except OSError as cause:
            if cause.errno in NOTHING:
                return []
            raise failure(cause, path) from cause

    def _prune(self, row: Row, keep: int) -> None:
        doomed = plan_pruning([*self.rows(), row], row, keep=keep)
        if doomed:
            self._bucket.delete([self.key(id) for id in doomed])


def plan_pruning(rows: list[Row], newest: Row, *, keep: int) -> list[str]:
    """Return the ids to drop of the line that ends in a row, of which so many are kept.

    It ends at the first from which another line branches off as well: that one and what is before
    it stay. So it does at a row of another session, and at one that a run still works on.
    """
    by_id = {row.snapshot_id: row for row in rows}
    children: defaultdict[str | None, set[str | None]] = defaultdict(set)
    for each in rows:
        children[each.parent_id].add(each.snapshot_id)
    line: dict[str, None] = {}
    at: Row | None = newest
    while at is not None and at.snapshot_id is not None and at.snapshot_id not in line:
        if at.session_id != newest.session_id:
            break
        line[at.snapshot_id] = None
        at = by_id.get(at.parent_id)
    doomed: list[str] = []
    for younger, id in pairwise([*line][keep - 1 :]):
        is_open = by_id[id].status in (rules.PENDING, rules.ABORTING)
        if children[id] != {younger} or is_open:
            break
        doomed.append(id)
    return doomed
