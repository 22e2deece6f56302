"""The folder of one tenant: its snapshots, pointers to the latest of each session, and pruning.

A snapshot counts once its own file exists; the pointer follows. A writer moves the pointer only
from the version that it read before it stored its snapshot; if another writer moved it first, all
snapshots are read again. So a pointer of ours never goes back to an older snapshot.
"""

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice, pairwise
from typing import NamedTuple

from limpet.backends.buckets import NOTHING, Bucket, Moved, failure
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
from limpet.compat.json_files import check_size, read_files
from limpet.compat.wire import wire_time
from limpet.core import limits, times
from limpet.errors import Conflict, Corrupt, LimpetError, Unavailable
from limpet.model import Expect
from limpet.opening import draw

_TRIES_MAX = 100
_ROWS_MAX = 50_000  # rows remembered, some hundred bytes each


class FileRow(NamedTuple):
    """The row in a file, the version of the file, and the id inside."""

    row: Row
    version: str
    inner_id: str | None


class FilePointer(NamedTuple):
    """The snapshot that a pointer names, and the version of its file; None if missing."""

    snapshot_id: str | None
    version: str | None


class _ReadRow(NamedTuple):
    fingerprint: str | None  # changes with the file
    row: Row | None  # None: it cannot be read


class TenantFolder:
    """The snapshots of one tenant. Methods may wait for the disk; any thread may call them."""

    def __init__(
        self,
        bucket: Bucket,
        root: str,
        prefix: str,
        *,
        policy: rules.Latest = "leaf",
        reject: bool = False,
    ) -> None:
        self._bucket = bucket
        self.path = os.path.join(root, prefix)
        self._prefix = prefix
        self._policy: rules.Latest = policy
        self._reject = reject
        self._read_rows: dict[str, _ReadRow] = {}

    # Snapshots

    def read(self, id: str) -> FileRow | None:
        (stored,) = read_files(self._bucket, [self._key(id)])
        if stored is None:
            return None
        try:
            check_size(stored.size)
            row = decode(stored.data)
        except Corrupt as cause:
            raise Corrupt(f"{cause}. path=`{self.path_of(id)}`") from cause
        return FileRow(replace(row, snapshot_id=id), stored.version or "", row.snapshot_id)

    def fingerprint(self, id: str) -> str | None:
        """Return a text that changes with the file of a snapshot, None if there is none."""
        key = self._key(id)
        return self._bucket.fingerprints({key: None})[key]

    def write(self, row: Row, *, expect: str | None, keep: int | None) -> None:
        """Store a row if its file is at the version `expect`; keep `keep` rows of its branch.

        Raises:
            Moved: the file is at another version.
        """
        id, session_id = row.snapshot_id or "", rules.session_of(row) or ""
        data = encode(row)
        before = None if expect is not None else self.pointer(session_id).version
        self._bucket.put(self._key(id), data, expect=expect)  # this line is the commit
        if expect is None:
            self._advance(session_id, id, before)
            if keep is not None:
                with suppress(LimpetError):  # the row is stored; the next save prunes
                    self._prune(bare(id, row), keep)

    def path_of(self, id: str) -> str:
        return os.path.join(self.path, id + ENDING)

    def _key(self, id: str) -> str:
        return f"{self._prefix}/{id}{ENDING}"

    # The latest of a session

    def read_latest(self, session_id: str) -> Row | None:
        """Return the latest row of a session as it is stored.

        It is the one that the pointer names, if that is of the session; otherwise all rows are
        read, and the pointer is repaired. With the policy `newest`, or if branches are refused,
        all rows are read every time.
        """
        if self._policy == "leaf" and not self._reject:
            pointed = self._pointed(session_id)
            if pointed is not None:
                return pointed
        for _ in range(_TRIES_MAX):
            pointer = self.pointer(session_id)
            latest = rules.latest(
                self.rows(), session_id, policy=self._policy, reject_branching=self._reject
            )
            if latest is None or latest.snapshot_id is None:
                return None
            found = self.read(latest.snapshot_id)
            if found is None:
                continue  # it was removed meanwhile
            if self._policy == "leaf" and pointer.snapshot_id != latest.snapshot_id:
                # A reader without write permission still reads; a writer that was faster is right.
                with suppress(Moved, LimpetError):
                    self._point(session_id, latest.snapshot_id, expect=pointer.version)
            return found.row
        raise Unavailable(f"the snapshots keep vanishing. path=`{self.path}`")

    def pointer(self, session_id: str) -> FilePointer:
        (stored,) = read_files(self._bucket, [self._pointer_key(session_id)])
        if stored is None:
            return FilePointer(None, None)
        return FilePointer(decode_pointer(stored.data), stored.version)

    def _pointer_key(self, session_id: str) -> str:
        return f"{self._prefix}/{POINTERS}/{session_id}{ENDING}"

    def _pointed(self, session_id: str) -> Row | None:
        named = self.pointer(session_id).snapshot_id
        with suppress(Corrupt):
            found = None if named is None else self.read(named)
            if found is not None and rules.session_of(found.row) == session_id:
                return found.row
        return None

    def _point(self, session_id: str, snapshot_id: str, *, expect: Expect) -> None:
        data = encode_pointer(snapshot_id, wire_time(times.from_us(draw().now)))
        self._bucket.put(self._pointer_key(session_id), data, expect=expect)

    def _advance(self, session_id: str, snapshot_id: str, before: str | None) -> None:
        """Point to a new row. `before` is the pointer's version before the row was stored."""
        try:
            try:
                self._point(session_id, snapshot_id, expect=before)
            except Moved:  # another writer has saved in this session at the same time
                self._settle(session_id)
        except Unavailable:
            # The old pointer would lead readers to the previous row. Without one they read all.
            self._bucket.delete([self._pointer_key(session_id)])

    def _settle(self, session_id: str) -> None:
        for _ in range(_TRIES_MAX):
            pointer = self.pointer(session_id)
            try:
                latest = rules.latest(self.rows(), session_id)
            except Conflict:
                return  # there is no latest
            if latest is None or latest.snapshot_id in (None, pointer.snapshot_id):
                return
            with suppress(Moved):
                self._point(session_id, latest.snapshot_id or "", expect=pointer.version)
                return
        raise Unavailable(f"the pointer keeps moving. path=`{self.path}`", outcome_known=False)

    # All rows

    def rows(self) -> list[Row]:
        """Return all readable rows, without their states. Only changed files are read again."""
        keys = {self._key(id): id for id in self.ids()}
        fingerprints = self._bucket.fingerprints(dict.fromkeys(keys))
        before = self._read_rows
        found = {
            key: before[key]
            for key in keys
            if key in before
            and fingerprints[key] is not None
            and before[key].fingerprint == fingerprints[key]
        }
        missing = iter([key for key in keys if key not in found])
        while some := list(islice(missing, limits.PAGE_STATES_MAX)):
            for key, stored in zip(some, read_files(self._bucket, some), strict=True):
                row = None
                with suppress(Corrupt):
                    check_size(0 if stored is None else stored.size)
                    row = None if stored is None else bare(keys[key], decode(stored.data))
                found[key] = _ReadRow(fingerprints[key], row)
        self._read_rows = found if len(found) <= _ROWS_MAX else {}
        return [each.row for each in found.values() if each.row is not None]

    def ids(self) -> Iterator[str]:
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
            self._bucket.delete([self._key(id) for id in doomed])


def plan_pruning(rows: list[Row], newest: Row, *, keep: int) -> list[str]:
    """Return the ids to drop of the branch that ends in `newest`, of which `keep` rows stay.

    A row from which another branch starts stays, with everything before it. So does a row of
    another session, and one that a run still works on.
    """
    by_id = {row.snapshot_id: row for row in rows}
    children: defaultdict[str | None, set[str | None]] = defaultdict(set)
    for each in rows:
        children[each.parent_id].add(each.snapshot_id)
    branch: dict[str, None] = {}
    at: Row | None = newest
    while at is not None and at.snapshot_id is not None and at.snapshot_id not in branch:
        if at.session_id != newest.session_id:
            break
        branch[at.snapshot_id] = None
        at = by_id.get(at.parent_id)
    doomed: list[str] = []
    for younger, id in pairwise([*branch][keep - 1 :]):
        is_open = by_id[id].status in (rules.PENDING, rules.ABORTING)
        if children[id] != {younger} or is_open:
            break
        doomed.append(id)
    return doomed
