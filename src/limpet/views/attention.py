"""Which heads need a person: work that stopped before its end, and damage."""

from collections.abc import Iterable

from limpet.api.store import Store
from limpet.model import ScopeKey, SnapshotInfo
from limpet.runs.model import RUNNING, read_record
from limpet.runs.verbs import is_held
from limpet.views.format import clipped, visible

STOPPED = frozenset(
    {"failed", "failure", "error", "errored", "aborted", "expired", "interrupted", "timeout"}
    | {"waiting"}
)
"""Statuses, in lower case, of work that stopped before its end, or waits for a person."""

DAMAGED = "the head is damaged: run limpet check"
NO_WORKER = "running, but no worker holds it"
_ERROR_CHARS_MAX = 120


def reasons(store: Store, heads: Iterable[tuple[ScopeKey, SnapshotInfo | None, bool]]) -> list[str]:
    """Return why these scopes need attention, each reason once; nothing if they do not.

    A scope comes with its head, and whether that is damaged. Of each that is running the lease is
    read: whether its worker is alive is a hint, as in `runs.list`.
    """
    found = (
        DAMAGED if damaged else None if head is None else _reason(store, head)
        for _, head, damaged in heads
    )
    return list(dict.fromkeys(filter(None, found)))


def _reason(store: Store, head: SnapshotInfo) -> str | None:
    status = head.status.lower()
    if status == RUNNING:
        driver = store.driver
        held = driver.run(lambda backend: is_held(driver.tools, backend, head.scope))
        return None if held else NO_WORKER
    if status not in STOPPED:
        return None
    error = read_record(head).error
    if error is None:
        return visible(head.status)
    what = " ".join(f"{error.type}: {error.message}".strip(": ").split())
    return clipped(visible(f"{head.status}: {what}"), _ERROR_CHARS_MAX)
