"""Counting what tables hold."""

from limpet.backends.sql.tables import Tables, is_text
from limpet.model import Stats


def stats_of(tables: Tables, session_id: str | None, limit: int) -> Stats:
    """Return the size of a session, or of the store with its largest sessions."""
    asked = {"session_id": session_id}
    ((sessions, scopes),) = tables.transaction.all("count_everything", asked)
    snapshots = logical = stored = 0
    if session_id is None:
        ((stored,),) = tables.transaction.all("stored_bytes", ())
    largest: list[tuple[str, int]] = []
    for name, count, size, length in tables.transaction.each("sizes_by_session", asked):
        snapshots, logical = snapshots + count, logical + int(size or 0)
        stored += 0 if session_id is None else length or 0
        if session_id is None and len(largest) < limit and is_text(name):
            largest.append((name, length or 0))
    return Stats(sessions, scopes, snapshots, logical, stored, tuple(largest))
