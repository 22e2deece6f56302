"""Heads: the document of a scope that everything is decided by, and what is remembered of it.

A writer that continues its own line knows the head from its last commit and need not read it: any
other write of the head changes its version, and then the compare-and-set fails.
"""

import threading
from collections import OrderedDict
from dataclasses import replace
from typing import NamedTuple

from limpet.backends.objects.documents import Doc, Files, Found, trail_after
from limpet.backends.support.forks import renew_after_fork
from limpet.core import ids
from limpet.core.document import Header
from limpet.core.layout import is_clipped
from limpet.core.rows import Row, unpack_ref
from limpet.errors import Corrupt
from limpet.model import ScopeKey
from limpet.protocol import Commit

_REMEMBERED_MAX = 4096


class Head(NamedTuple):
    """The head of a scope as it was read, or None; `version` is what a compare-and-set expects.

    `copied` says that its copy is known to be in history, `bare` that nothing was kept in the scope
    when it was written. `damage` is why it cannot be read.
    """

    doc: Doc | None = None
    version: str | None = None
    copied: bool = False
    bare: bool = False
    damage: Corrupt | None = None

    @property
    def header(self) -> Header | None:
        """Its header, also if it shows nothing."""
        return None if self.doc is None else self.doc.header

    @property
    def shown(self) -> Doc | None:
        """The snapshot in it; None if there is no head, or it is void."""
        return None if self.doc is None or self.doc.header.void else self.doc

    @property
    def line(self) -> str | None:
        """The line that it goes on with, if that is known."""
        return None if self.doc is None else self.doc.header.line

    @property
    def fence(self) -> str | None:
        """The lease under which it may be replaced by who names one."""
        return None if self.doc is None else self.doc.header.fence

    @property
    def is_void(self) -> bool:
        """Whether its snapshot was deleted: then the newest kept one is shown."""
        return self.doc is not None and self.doc.header.void

    @property
    def is_foreign(self) -> bool:
        """Whether another tool wrote it."""
        return self.doc is not None and self.doc.foreign

    def counts(self, header: Header) -> bool:
        """Tell whether a copy belongs to the present life of the scope.

        What another tool wrote has no line, and nor has what was only kept before there was a
        head. A head that is foreign or damaged tells nothing, so all copies count beneath it.
        """
        if header.line is None or self.is_foreign or self.damage is not None:
            return True
        return self.doc is not None and self.doc.header.line == header.line


class _Mark(NamedTuple):
    head: Head | None
    floor: str
    last: int


class Heads:
    """Reads heads, and remembers those that this process wrote."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._marks: OrderedDict[ScopeKey, _Mark] = OrderedDict()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.Lock()  # what is remembered is compared with the store anyway

    def read(self, scope: ScopeKey, *, whole: bool = False, versions: bool = False) -> Head:
        """Read the head of a scope."""
        doc = self._files.read_head(scope, whole=whole, versions=versions)
        return self.resolved(doc)

    def look(self, scope: ScopeKey, *, whole: bool = False) -> Head:
        """Read the head for the sake of what is beneath it, which its damage must not hide."""
        try:
            return self.read(scope, whole=whole)
        except Corrupt as error:
            return Head(damage=error)

    def found(self, doc: Found) -> Head:
        """Return the head that was read together with others."""
        if isinstance(doc, Corrupt):
            return Head(damage=doc)
        return self.resolved(doc if isinstance(doc, Doc) else None)

    def resolved(self, doc: Doc | None) -> Head:
        """Return the head that a document is: a fork whose source died meanwhile is none."""
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
            return True  # a damaged source tells nothing, and must not hide what was made of it
        return source is not None and source.header.line in (None, header.pending)

    def remembered(self, scope: ScopeKey) -> Head | None:
        """Return the head that this process wrote last, if it wrote one."""
        with self._lock:
            mark = self._marks.get(scope)
            return None if mark is None else mark.head

    def remember(
        self, scope: ScopeKey, head: Head | None, *, floor: str = "", last: int = 0
    ) -> None:
        """Remember a head (None: forget it), and the greatest id and place given in its scope."""
        with self._lock:
            mark = self._marks.pop(scope, _NOTHING)
            self._marks[scope] = _Mark(head, max(mark.floor, floor), max(mark.last, last))
            if len(self._marks) > _REMEMBERED_MAX:
                self._marks.popitem(last=False)

    def forget(self, session_id: str) -> None:
        """Forget the heads of a session; what it has given stays given."""
        with self._lock:
            for scope, mark in self._marks.items():
                if scope.session_id == session_id:
                    self._marks[scope] = mark._replace(head=None)

    def given(self, scope: ScopeKey) -> tuple[str, int]:
        """Return the greatest id and place that this process has given in a scope."""
        with self._lock:
            mark = self._marks.get(scope, _NOTHING)
            return mark.floor, mark.last


_NOTHING = _Mark(None, "", 0)


# Headers of documents: of a new snapshot, of a new version, and of one as it was committed.


class Life(NamedTuple):
    """The present life of a scope: its line, and what new places and ids must exceed."""

    line: str
    last: int
    floor: str
    fence: str | None
    is_new: bool
    mixed: bool
    foreign: bool


def new_header(commit: Commit, row: Row, life: Life, *, line: str | None) -> Header:
    """Return the header of a new snapshot."""
    scope = commit.scope
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
        session_id=scope.session_id if is_clipped(scope.session_id) else None,
        scope_id=scope.scope_id if is_clipped(scope.scope_id) else None,
        parent=row.parent_id,
        forked_from=row.forked_from,
        status=row.status,
        labels=row.labels,
        metadata=row.metadata,
    )


def as_committed(commit: Commit, row: Row) -> Row:
    """Return a snapshot as this commit left it, whatever has become of it since.

    With a later revision a caller would overwrite what it has never seen.
    """
    if row.nonce == commit.stamp.nonce:
        return row
    rev = 0 if commit.replaces is None else ids.rev_of(commit.replaces) + 1
    size = len(commit.body) if isinstance(commit.body, bytes) else row.size
    return row._replace(
        rev=rev,
        nonce=commit.stamp.nonce,
        status=commit.status,
        labels=commit.labels,
        metadata=commit.metadata,
        updated_at=commit.stamp.now,
        size=size,
    )


def replaced_header(header: Header, row: Row) -> Header:
    """Return the header of a new version of a snapshot.

    If it was the head of a fork not finished yet, it is now: what is replaced was just read, and
    then the line of its source was alive.
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
