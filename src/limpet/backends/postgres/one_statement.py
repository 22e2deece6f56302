"""A save in one statement, by the writer that was the last one to change the scope.

The statement stores what `sql/continuing.py` has decided, and only if the scope still has the
stamps that the writer left (`scopes.stamps`), and the checksum: joining a fork group changes that
alone. If it does not, nothing happened.
"""

from typing import Any, NamedTuple

from limpet.backends.postgres.lost_answers import STAMPS_BYTES
from limpet.backends.sql.commit import PreparedDelta
from limpet.backends.sql.continuing import KnownScope, continued
from limpet.backends.sql.tables import moved_values
from limpet.core import ids
from limpet.core.rows import ROW_COLUMNS, Row
from limpet.protocol import Commit

_NONE = "{}"  # an empty array, which costs less to send than an empty list
_VALUES = (
    *(*ROW_COLUMNS, "checksum", "pk", "apart"),
    *("seq", "base", "encoding", "body", "body_checksum"),
    *("head_seq", "tip_seq", "next_seq", "floor", "scope_checksum", "codec", "pk", "stamps"),
    *("known", "known_checksum", "known_head", "fence", "overwrite", "names", "values"),
)
_FOLDED = ("seqs", "bases", "encodings", "bodies", "checksums")


class OneStatement(NamedTuple):
    """The name and the values of the statement, and what it leads to."""

    name: str
    values: dict[str, Any]
    row: Row
    body: bytes | None
    left: KnownScope
    stamp: bytes
    known: bytes


def as_one_statement(
    known: KnownScope, commit: Commit, prepared: PreparedDelta | None
) -> OneStatement | None:
    """Return a commit as one statement, or None if it has to ask the server first."""
    plan = continued(known, commit, prepared) if known.alone else None
    if plan is None:
        return None
    seq = ids.place(commit.stamp.now, known.scope.next_seq - 1, commit.stamp.bits)
    save = plan.at(seq, ids.place_us(seq))
    stamp, before = bytes.fromhex(commit.stamp.nonce), known.scope.stamps
    moved = save.known.scope._replace(stamps=(stamp + before)[:STAMPS_BYTES])
    names, texts, _ = map(list, zip(*save.labels, strict=True)) if save.labels else (_NONE,) * 3
    scope = (*moved_values(moved), moved.stamps)
    left = (before, known.scope.checksum, known.scope.head_seq)
    asked = (*left, commit.fence, commit.overwrite, names, texts)
    given = (*save.snapshot, *save.stored, *scope, *asked)
    values: dict[str, Any] = dict(zip(_VALUES, given, strict=True))
    name = "save_in_one"
    if plan.folded:
        name = "save_and_fold"
        whole = known.unfolded
        values |= {"whole": [row.seq for row in whole], "sums": [row.checksum for row in whole]}
        values |= zip(_FOLDED, map(list, zip(*plan.folded, strict=True)), strict=True)
    after = save.known._replace(scope=moved)
    return OneStatement(name, values, save.row, plan.body, after, stamp, before)
