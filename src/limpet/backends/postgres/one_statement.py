"""A save in one statement, by a writer that was the last one to change the scope.

It knows the row of the scope, since it wrote it, and so can decide everything beforehand. The
statement stores the snapshot only if the scope still has the stamps that the writer left
(`scopes.stamps`); if not, nothing happened, and the save is made in the ordinary way.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple, NoReturn

from limpet.backends.postgres.lost_answers import STAMP_BYTES
from limpet.backends.postgres.tables import PostgresTables
from limpet.backends.sql.commit import PreparedDelta, apply_commit
from limpet.backends.sql.tables import ScopeRow
from limpet.core.deltas.chain import ChainState
from limpet.core.limits import MIB
from limpet.core.rows import Row
from limpet.errors import LimpetError
from limpet.protocol import Commit, Copy

KNOWN_SCOPES_BYTES_MAX = 8 * MIB  # some thousand scopes
_SCOPE_BYTES = 2048  # of a scope without its variable columns
_NONE = "{}"  # an empty array, which costs less to send than an empty list
_BODY = ("seq", "base", "encoding", "body", "body_checksum")


class KnownScope(NamedTuple):
    """What a process knows of a scope that it changed last."""

    scope: ScopeRow
    alone: bool  # no other process had changed it just before

    def cost(self) -> int:
        head = self.scope.shown
        head_bytes = 0 if head is None else len(head.labels) + len(head.metadata)
        return _SCOPE_BYTES + len(self.scope.codec or b"") + head_bytes

    @property
    def kept_chain(self) -> ChainState | None:
        """What is remembered of its last body, unless a draft is about to be covered."""
        head = self.scope.shown
        return self.scope.chain if head is not None and head.kept else None

    def would_replace(self, commit: Commit) -> bool:
        """Tell whether a commit stores the head again, as one that overwrites mostly does."""
        head = self.scope.shown if commit.overwrite else None
        return head is not None and commit.id == head.id


class OneStatement(NamedTuple):
    """A save that needs no question: the values of the one statement, and what it leads to."""

    values: dict[str, Any]
    row: Row
    body: bytes | None
    moved: ScopeRow
    stamp: bytes
    known: bytes


def as_one_statement(
    known: KnownScope, commit: Commit, prepared: PreparedDelta | None
) -> OneStatement | None:
    """Return a commit as one statement, or None if it has to ask the server first."""
    in_place = commit.replaces is not None or commit.again or known.would_replace(commit)
    if in_place or commit.source is not None or isinstance(commit.body, Copy) or not known.alone:
        return None
    recorder = _Recorder()
    tables = _KnownTables(recorder, known.scope)
    try:
        row, body = apply_commit(tables, commit, prepared)
    except (_Asked, LimpetError):
        return None  # what is known may be out of date: only the server refuses
    moved = tables.moved
    if moved is None or not recorder.is_one_save():
        return None
    ((*_, checksum, _, apart),) = recorder.written["add_snapshot"]
    (stored,) = recorder.written["bodies.add"]
    labels = recorder.written.get("add_label")
    names, texts, _ = map(list, zip(*labels, strict=True)) if labels else (_NONE, _NONE, None)
    values: dict[str, Any] = {
        **row._asdict(),
        **dict(zip(_BODY, stored, strict=True)),
        "checksum": checksum,
        "apart": apart,
        "pk": moved.pk,
        "head_seq": moved.head_seq,
        "tip_seq": moved.tip_seq,
        "next_seq": moved.next_seq,
        "floor": moved.floor,
        "codec": moved.codec,
        "stamps": moved.stamps,
        "known": known.scope.stamps,
        "fence": commit.fence,
        "overwrite": commit.overwrite,
        "names": names,
        "values": texts,
    }
    return OneStatement(values, row, body, moved, moved.stamps[:STAMP_BYTES], known.scope.stamps)


class _Asked(Exception):
    """A query to the server is needed."""


class _Recorder:
    """A transaction that records writes and cannot run queries."""

    def __init__(self) -> None:
        self.written: dict[str, list[Any]] = {}

    def is_one_save(self) -> bool:
        counts = {name: len(rows) for name, rows in self.written.items() if name != "add_label"}
        return counts == {"add_snapshot": 1, "bodies.add": 1, "move_scope": 1}

    def do(self, name: str, values: Any = ()) -> None:
        self.written.setdefault(name, []).append(values)

    def do_many(self, name: str, rows: Iterable[Any]) -> None:
        for row in rows:
            self.do(name, row)

    def _ask(self, *_: Any) -> NoReturn:
        raise _Asked

    one = all = each = page = count = later = many = _ask


class _KnownTables(PostgresTables):
    def __init__(self, recorder: _Recorder, scope: ScopeRow) -> None:
        super().__init__(recorder)  # type: ignore[arg-type]
        self._scope = scope

    def scope_to_commit(self, commit: Commit) -> ScopeRow | None:
        self.use_nonce_of(commit)
        return self._scope

    def head(self, scope: ScopeRow) -> Row | None:
        return scope.shown

    def existing(self, scope: ScopeRow, snapshot_id: str) -> Row | None:
        return None  # if it does exist, the statement fails, and the ordinary way finds out
