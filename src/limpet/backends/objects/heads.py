"""Heads: the document whose compare-and-set is the commit, and a memory of it.

A writer that continues its own work knows the head from its last commit and need not read it: any
other write changes the version of the head, and then the compare-and-set fails.
"""

import threading
from collections import OrderedDict
from dataclasses import replace
from typing import NamedTuple

from limpet.backends.objects.documents import Doc, Files, Found, trail_after
from limpet.backends.support.forks import renew_after_fork
from limpet.core import ids
from limpet.core.document import Header
from limpet.core.layout import clipped_ids
from limpet.core.rows import Row, unpack_ref
from limpet.errors import Corrupt
from limpet.model import ScopeKey
from limpet.protocol import Commit

_REMEMBERED_MAX = 4096


class Head(NamedTuple):
    """The head of a scope as it was read; `version` is what a compare-and-set expects.

    `copied`: its copy is known to be in history. `bare`: nothing was kept in the scope when it was
    written. `damage` is why it cannot be read.
    """

    doc: Doc | None = None
    version: str | None = None
    copied: bool = False
    bare: bool = False
    damage: Corrupt | None = None

    @property
    def header(self) -> Header | None:
        return None if self.doc is None else self.doc.header

    @property
    def shown(self) -> Doc | None:
        """The snapshot in it; None if there is no head, or it is void."""
        return None if self.doc is None or self.doc.header.void else self.doc

    @property
    def line(self) -> str | None:
        return None if self.doc is None else self.doc.header.line

    @property
    def fence(self) -> str | None:
        return None if self.doc is None else self.doc.header.fence

    @property
    def is_void(self) -> bool:
        """Whether its snapshot was deleted: the scope then shows the newest kept one."""
        return self.doc is not None and self.doc.header.void

    @property
    def is_foreign(self) -> bool:
        return self.doc is not None and self.doc.foreign

    def counts(self, header: Header) -> bool:
        """Return whether a copy belongs to the present life of the scope.

        Documents of other tools have no line, nor have snapshots kept before there was a head. A
        foreign or damaged head has none either, so all copies count below it.
        """
        if header.line is None or self.is_foreign or self.damage is not None:
            return True
        return self.doc is not None and self.doc.header.line == header.line


class _Remembered(NamedTuple):
    head: Head | None
    floor: str
    last: int


class Heads:
    """Reads heads, and remembers the last ones that this process wrote."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._remembered: OrderedDict[ScopeKey, _Remembered] = OrderedDict()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.Lock()  # what is remembered is compared with the store anyway

    def read(self, scope: ScopeKey, *, whole: bool = False, versions: bool = False) -> Head:
        doc = self._files.read_head(scope, whole=whole, versions=versions)
        return self.resolved(doc)

    def look(self, scope: ScopeKey, *, whole: bool = False) -> Head:
        """Read the head; damage is a value, which must not hide what is below the head."""
        try:
            return self.read(scope, whole=whole)
        except Corrupt as error:
            return Head(damage=error)

    def found(self, doc: Found) -> Head:
        if isinstance(doc, Corrupt):
            return Head(damage=doc)
        return self.resolved(doc if isinstance(doc, Doc) else None)

    def resolved(self, doc: Doc | None) -> Head:
        """Return the head that a document is; none if it is a fork whose source was deleted."""
        if doc is None:
            return Head()
        if doc.header.pending is not None and not self._lives(doc.header):
            return Head(None, doc.version)
        return Head(doc, doc.version)

    def _lives(self, header: Header) -> bool:
        ref = unpack_ref(header.forked_from)
        try:
            source = None if ref is None else self._files.read_head(ref.scope)
        except Corrupt:
            return True  # a damaged source must not hide its forks
        return source is not None and source.header.line in (None, header.pending)

    def remembered(self, scope: ScopeKey) -> Head | None:
        with self._lock:
            known = self._remembered.get(scope)
            return None if known is None else known.head

    def remember(
        self, scope: ScopeKey, head: Head | None, *, floor: str = "", last: int = 0
    ) -> None:
        """Remember a head (None: forget it), and the greatest id and `seq` assigned."""
        with self._lock:
            known = self._remembered.pop(scope, _NOTHING)
            self._remembered[scope] = _Remembered(
                head, max(known.floor, floor), max(known.last, last)
            )
            if len(self._remembered) > _REMEMBERED_MAX:
                self._remembered.popitem(last=False)

    def forget(self, session_id: str) -> None:
        """Forget the heads of a session, but not the ids and places assigned."""
        with self._lock:
            for scope, known in self._remembered.items():
                if scope.session_id == session_id:
                    self._remembered[scope] = known._replace(head=None)

    def given(self, scope: ScopeKey) -> tuple[str, int]:
        """Return the greatest id and `seq` that this process has assigned in a scope."""
        with self._lock:
            known = self._remembered.get(scope, _NOTHING)
            return known.floor, known.last


_NOTHING = _Remembered(None, "", 0)


class Life(NamedTuple):
    """The present life of a scope: its line, and what a new `seq` and id must exceed."""

    line: str
    last: int
    floor: str
    fence: str | None
    is_new: bool
    mixed: bool
    foreign: bool


def new_header(commit: Commit, row: Row, life: Life, *, line: str | None) -> Header:
    session_id, scope_id = clipped_ids(commit.scope)
    return Header(
        id=row.id,
        line=line,
        seq=row.seq,
        rev=row.rev,
        nonce=row.nonce,
        born=row.nonce,
        w=row.nonce,
        created_at=row.created_at,
        updated_at=row.updated_at,
        at=ids.place_us(row.seq) // 1000,
        size=row.size,
        last=row.seq,
        kept=bool(row.kept),
        mixed=life.mixed,
        foreign=life.foreign,
        floor=life.floor if commit.id is not None else row.id,
        fence=life.fence,
        session_id=session_id,
        scope_id=scope_id,
        parent=row.parent_id,
        forked_from=row.forked_from,
        status=row.status,
        labels=row.labels,
        metadata=row.metadata,
    )


def as_committed(commit: Commit, row: Row) -> Row:
    """Return a snapshot as this commit left it.

    With a later revision the caller would overwrite changes that it has never seen.
    """
    if row.nonce == commit.stamp.nonce:
        return row
    rev = 0 if commit.replaces is None else ids.rev_of(commit.replaces) + 1
    size = len(commit.body) if isinstance(commit.body, bytes) else row.size
    return row._replace(
        rev=rev,
        nonce=commit.stamp.nonce,
        status=row.status if commit.status is None else commit.status,
        labels=commit.labels,
        metadata=commit.metadata,
        updated_at=commit.stamp.now,
        size=size,
    )


def replaced_header(header: Header, row: Row) -> Header:
    """Return the header of a new version of a snapshot.

    This also finishes a pending fork: the head was just read, and its source existed then.
    """
    return replace(
        header,
        pending=None,
        rev=row.rev,
        nonce=row.nonce,
        w=row.nonce,
        trail=trail_after(header),
        updated_at=row.updated_at,
        size=row.size,
        kept=bool(row.kept),
        parent=row.parent_id,
        forked_from=row.forked_from,
        status=row.status,
        labels=row.labels,
        metadata=row.metadata,
    )
