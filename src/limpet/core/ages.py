"""Sessions in the order of their newest heads, for engines without an index of times."""

import heapq
from collections.abc import Iterable

from limpet.protocol import SessionAge


def newest_page(
    heads: Iterable[tuple[str, int | None]], after: SessionAge | None, limit: int
) -> list[SessionAge]:
    """Return a page as `Backend.list_newest` has it.

    `heads` are the scopes that hold anything: their session, and when the head was created.
    """
    found: dict[str, int | None] = {}
    for session_id, created_at in heads:
        known = found.get(session_id)
        is_newer = known is None or (created_at is not None and created_at > known)
        found[session_id] = created_at if is_newer else known
    ages = map(SessionAge._make, found.items())
    rest = ages if after is None else (each for each in ages if _order(each) > _order(after))
    return heapq.nsmallest(limit, rest, key=_order)


def _order(age: SessionAge) -> tuple[bool, int, str]:
    return age.created_at is None, -(age.created_at or 0), age.session_id
