"""One supervised run: why it failed, and who worked on it."""

from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

from limpet import runs
from limpet.api.store import Store
from limpet.core.times import from_us
from limpet.model import SnapshotInfo
from limpet.protocol import Hold
from limpet.runs.model import QUEUED, RUNNING, read_record
from limpet.runs.processes import is_alive, without_process
from limpet.views.format import ago_text, duration_text, moment_text, visible

_HISTORY_MAX = 200  # snapshots that are read for earlier attempts


_COLUMNS = ("attempt", "owner", "status", "begun", "took", "steps", "error")


class Panel(NamedTuple):
    """A run as it is shown, all texts visible. `error` are lines, the message first."""

    run: runs.RunInfo
    facts: dict[str, str]
    error: list[str]
    attempts: list[dict[str, str]]


def read_run(store: Store, run_id: str) -> Panel | None:
    """Return a run with its attempts, or None if there is none."""
    run = runs.get(store, run_id)
    if run is None:
        return None
    scope, now_us = run.info.scope, store.driver.tools.draw().now
    lease = store.driver.run(lambda backend: backend.read_lease(scope, now=now_us))
    history = list(islice(store.scope(*scope).history(), _HISTORY_MAX))
    now, error = from_us(now_us), run.error
    whole = "" if error is None else f"{error.type}: {error.message}\n{error.traceback or ''}"
    return Panel(
        run,
        {name: text for name, text in _facts(run, lease, now).items() if text},
        [visible(line) for line in whole.splitlines()],
        _attempts(run, history) if run.attempt else [],
    )


def _facts(run: runs.RunInfo, lease: Hold | None, now: datetime) -> dict[str, str]:
    def at(moment: datetime) -> str:
        return f"{moment_text(moment)} UTC, {ago_text(moment, now)}"

    return {
        "task": visible(run.task or ""),
        "owner": visible(run.owner or ""),
        "host": visible(read_record(run.info).host or ""),
        "enqueued" if run.status == QUEUED else "begun": at(run.started_at),
        "changed": at(run.updated_at),
        "attempts": f"{run.attempt:,}",
        "steps": f"{run.steps:,}",
        "lease": "no worker holds it" if lease is None else _lease_text(run, lease, now),
    }


def _lease_text(run: runs.RunInfo, lease: Hold, now: datetime) -> str:
    left_s, ttl_s = lease.left_us / 1_000_000, read_record(run.info).ttl_s
    owner = visible(without_process(lease.owner))
    ends = f"ends in {duration_text(left_s)}" if left_s > 0 else "has ended"
    dead = ", its process is dead" if is_alive(lease.owner) is False else ""
    beat = "" if ttl_s is None else ago_text(now - timedelta(seconds=ttl_s - left_s), now)
    return f"of {owner}, {ends}{dead}" + (beat and f"; last heartbeat {beat}")


def _attempts(run: runs.RunInfo, history: list[SnapshotInfo]) -> list[dict[str, str]]:
    """Return what is known of each attempt: the last that it wrote, if that was kept."""
    last = {read_record(info).attempt: info for info in [*reversed(history), run.info]}
    rows = []
    for number, info in last.items():
        record = read_record(info)
        begun, is_over = record.began_at or record.started_at, info.status != RUNNING
        status = info.status if is_over or number == run.attempt else "lost its worker"
        took = duration_text((info.updated_at - begun).total_seconds())
        error = "" if record.error is None else record.error.type
        texts = (record.owner or "", status, moment_text(begun), took, f"{record.steps or 0:,}")
        shown = (f"{number:,}", *map(visible, (*texts, error)))
        rows.append(dict(zip(_COLUMNS, shown, strict=True)))
    return rows
