"""Headers of documents: of a new snapshot, of a new version, and of one as it was committed."""

from dataclasses import replace
from typing import NamedTuple

from limpet.backends._objects.files import trail_after
from limpet.core import ids
from limpet.core.document import Header
from limpet.core.layout import is_clipped
from limpet.core.rows import Row
from limpet.protocol import Commit


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
