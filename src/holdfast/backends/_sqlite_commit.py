"""A commit inside one transaction: read what the decision needs, decide, and carry it out."""

from holdfast.backends._sqlite_tables import Scope, Tables
from holdfast.core import codec, commits
from holdfast.core.commits import Line, Verdict
from holdfast.core.rows import Row
from holdfast.protocol import Append, Commit


def carry_out(tables: Tables, commit: Commit, squeezed: tuple[int, bytes] | None) -> Row:
    """Store what a commit asks for, or raise why it may not; return the row that stands then."""
    scope = tables.scope(commit.scope)
    if commit.again and scope is not None:
        stored = tables.row("snapshot_by_nonce", scope, commit.stamp.nonce)
        if stored is not None:
            return stored
    if commit.forked_from is not None and commit.source is not None:
        source = tables.scope(commit.forked_from.scope)
        found = None if source is None else tables.named(source, commit.forked_from.id)
        commits.check_source(commit, found)
    line = _line(tables, scope)
    existing = None
    if commit.id is not None and scope is not None:
        existing = tables.named(scope, commit.id)
    verdict = commits.judge(
        commit,
        line,
        existing,
        lambda: existing is not None and tables.body(existing.seq) == commit.body,
    )
    if existing is not None and verdict is Verdict.UNCHANGED:
        return existing
    body = commit.body
    if isinstance(body, Append):
        body = commits.appended(body, None if line.head is None else tables.body(line.head.seq))
    if squeezed is None:
        squeezed = codec.squeeze(body)
    if scope is not None and existing is not None:
        row = commits.replaced_row(commit, existing, size=len(body))
        tables.replace(scope, existing, row, squeezed)
        if row.kept and not existing.kept:
            tables.move_scope(scope._replace(tip_seq=max(scope.tip_seq or 0, row.seq)))
        return row
    return _insert(tables, commit, line, scope, len(body), squeezed)


def _insert(
    tables: Tables,
    commit: Commit,
    line: Line,
    scope: Scope | None,
    size: int,
    squeezed: tuple[int, bytes],
) -> Row:
    """Add a new snapshot, and make the scope show it if asked; a draft that it covers goes."""
    if scope is None:
        scope = tables.add_scope(commit.scope)

    def newest_kept() -> str | None:
        row = tables.newest_kept(scope)
        return None if row is None else row.id

    row = commits.new_row(commit, line, size=size, newest_kept=newest_kept)
    tables.insert(scope, row, squeezed)
    head_seq = scope.head_seq
    if commit.head:
        head_seq = row.seq
        if line.head is not None and not line.head.kept:
            tables.remove(line.head.seq)
    tip_seq = row.seq if row.kept else scope.tip_seq
    floor = commits.floor_after(commit, line, row)
    tables.move_scope(Scope(scope.pk, head_seq, tip_seq, row.seq + 1, floor, scope.fence))
    return row


def _line(tables: Tables, scope: Scope | None) -> Line:
    last_seq, last_saved_at = tables.newest_place()
    if scope is None:
        return Line(next_seq=last_seq + 1, next_saved_at=last_saved_at + 1)
    next_seq = max(last_seq + 1, scope.next_seq)
    return Line(
        tables.head(scope),
        scope.floor,
        scope.fence,
        next_seq,
        last_saved_at + 1,
        tables.is_taken(scope),
    )
