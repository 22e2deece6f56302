"""The queue of runs: what waits for a worker, and which run a worker claims next.

Those that were written least recently come first. So a run that lost its worker goes behind all
that waited when its attempt began, and one that kills each worker does not keep the others waiting.
"""

import math
from dataclasses import replace
from heapq import nsmallest
from typing import Any

from limpet.api.opened import Tools
from limpet.api.store import AsyncStore, Store
from limpet.api.verbs import Pause, Steps, check_prefix, contend, each, scopes
from limpet.api.watching import Dispatcher, Subscription
from limpet.backends.support.backoff import Backoff
from limpet.core import limits, times
from limpet.errors import Conflict, Corrupt, InvalidInput, NotFound
from limpet.model import ScopeKey, SnapshotInfo
from limpet.protocol import Backend, Topic
from limpet.runs.attempt import (
    Plan,
    draft_after,
    in_place,
    new_record,
    new_run,
    read_head,
    task_label,
)
from limpet.runs.handles import prepare_claim, supervised
from limpet.runs.model import (
    COMPLETED,
    FACTS,
    KIND,
    QUEUED,
    RUNNING,
    SCOPE_ID,
    RunInfo,
    read_record,
    run_info,
)
from limpet.runs.verbs import is_held

_PAGE_MAX = 256  # runs for which one listing serves
_CHOICES = 16  # of the oldest, so that workers with the same page seldom want the same run
_PAUSE_S_MIN, _PAUSE_S_MAX = 0.01, 1.0
_LISTEN_S = 0.05  # between looks at what the watch found, which cost no I/O


def enqueue(tools: Tools, plan: Plan) -> Steps[RunInfo]:
    """Let a run wait for a worker, unless it waits, has one, or has completed."""

    def once(backend: Backend) -> RunInfo:
        found = read_head(plan.scope)(backend)
        head, body = found[0] if found else (None, b"")
        if head is None or (head.status == COMPLETED and plan.again):
            record = new_record(plan, times.from_us(tools.draw().now))
            record, expect = replace(record, enqueued=True), None if head is None else head.revision
            commit = new_run(tools, plan, record, status=QUEUED, expect=expect)
            return run_info(backend.commit(commit), is_held=False)
        before = read_record(head)
        held = head.status == RUNNING and is_held(tools, backend, plan.scope)
        comes_back = head.status == RUNNING and before.enqueued
        if held or comes_back or head.status in (QUEUED, COMPLETED):
            return run_info(head, is_held=held)
        record = replace(plan.applied(before), error=None, enqueued=True)
        metadata = {**head.metadata, FACTS: record.to_json()}
        labels = {**head.labels, **task_label(record)}
        given: Any = {"labels": labels, "metadata": metadata, "fence": None}
        commit = in_place(tools, head, body, status=QUEUED, **given)
        commit = draft_after(commit, plan.body_of(before, body))
        return run_info(backend.commit(commit), is_held=False)

    def attempt() -> Steps[RunInfo]:
        info: RunInfo = yield once
        return info

    return contend(tools, attempt, lambda backend: True)


class Queue:
    """What one worker knows of the queue: some of the runs that wait longest."""

    def __init__(self, store: Store | AsyncStore, plan: Plan, prefix: str, wait_s: float) -> None:
        self._store = store
        self._tools = store.driver.tools
        self._plan = plan
        self._prefix = check_prefix(prefix)
        self._wait_s = limits.check_seconds("wait_s", wait_s)
        self._page: list[ScopeKey] = []
        self._page_ends_s = -math.inf
        self._passed: set[ScopeKey] = set()

    def claim(self) -> Steps[None]:
        """Claim a run for a block; there is no `Block` if none waits for `wait_s`."""
        clock = self._tools.clock
        deadline = clock.monotonic() + self._wait_s
        backoff = Backoff(clock, first_s=_PAUSE_S_MIN, longest_s=_PAUSE_S_MAX)
        while True:
            if not self._page or clock.monotonic() > self._page_ends_s:
                self._page = yield self._oldest
                self._page_ends_s = clock.monotonic() + self._plan.ttl_s
            was_empty, may_be_more = not self._page, False
            while self._page:
                choice = int(clock.jitter() * min(_CHOICES, len(self._page)))
                found = yield from self._claimed(self._page.pop(choice))
                if found:
                    return
                may_be_more = may_be_more or found is None
            if may_be_more:
                continue
            left_s = deadline - clock.monotonic()
            if left_s <= 0:
                return
            if was_empty:
                # A lease that ends is no change: runs of dead workers are found by a listing.
                self._page = yield from self._heard(min(left_s, self._plan.ttl_s / 2))
            else:  # what waits is held by others that have not begun it
                yield Pause(min(left_s, backoff.pause_s() or left_s))

    def _claimed(self, scope: ScopeKey) -> Steps[bool | None]:
        """Claim a run for a block; False if it is held, None if another listing may find more."""
        plan = replace(self._plan, scope=scope)
        wanted, waiting = prepare_claim(self._tools, scope, plan.owner, self._plan.ttl_s, 0)
        waiting.is_patient = False
        try:
            yield from supervised(self._store, plan, wanted, waiting)
        except (Conflict, NotFound) as error:
            if waiting.has_begun:
                raise
            return None if getattr(error, "owner", None) is None else False
        except (Corrupt, InvalidInput):
            if waiting.has_begun:
                raise
            self._passed.add(scope)
            return None  # there may be others behind those on the page
        return True

    def _oldest(self, backend: Backend) -> list[ScopeKey]:
        listed = each(backend, scopes(None, kind=KIND, prefix=self._prefix))
        heads = (one.head for one in listed if one.head is not None)
        waiting = (head for head in heads if self._waits(head) or self._is_lost(backend, head))
        return [head.scope for head in nsmallest(_PAGE_MAX, waiting, lambda head: head.updated_at)]

    def _waits(self, head: SnapshotInfo, status: str = QUEUED) -> bool:
        is_run = head.scope[1:] == (SCOPE_ID, KIND) and head.scope not in self._passed
        return is_run and head.status == status

    def _is_lost(self, backend: Backend, head: SnapshotInfo) -> bool:
        is_begun = self._waits(head, RUNNING) and read_record(head).enqueued
        return is_begun and not is_held(self._tools, backend, head.scope)

    def _heard(self, wait_s: float) -> Steps[list[ScopeKey]]:
        """Wait until a run is enqueued, or some time has passed."""
        dispatcher, clock = self._store.driver.opened.service(Dispatcher), self._tools.clock
        subscription = Subscription(Topic(prefix=self._prefix), lambda: None)
        ends_s = clock.monotonic() + wait_s
        dispatcher.add(subscription)
        try:
            while clock.monotonic() < ends_s:
                try:
                    news, is_over = subscription.take()
                except Corrupt:
                    break  # the next listing passes it over
                found = [head.scope for head in news if self._waits(head)]
                if found or is_over:
                    return found
                yield Pause(_LISTEN_S)
            return []
        finally:
            dispatcher.remove(subscription)
