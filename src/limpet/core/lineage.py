"""Which snapshot follows which: the rules of parents."""

from collections.abc import Callable


def default_parent(
    *,
    own_id: str | None,
    head_id: str | None,
    head_kept: bool,
    head_parent_id: str | None,
    newest_kept: Callable[[], str | None],
) -> str | None:
    """Return the parent of a new snapshot whose caller named none.

    Always one that stays: the head if it is kept; else the parent of the draft that is the head;
    else the newest kept snapshot of the scope. Never the snapshot itself, which a draft may name
    when the snapshot it began from was deleted and is saved again.
    """
    if head_id is not None:
        named = head_id if head_kept else head_parent_id
        if named is not None and named != own_id:
            return named
    newest = newest_kept()
    return None if newest == own_id else newest
