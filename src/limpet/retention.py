"""Retention: rules that are stored with the store, and what deletes by them.

::

        from limpet.retention import Policy, Rule

    policy = Policy(store)
    policy.set(Rule(keep_last=50, older_than=timedelta(days=30)))
    policy.set(Rule(prefix="demo/", delete_session_after=timedelta(days=7)))
    print(policy.apply(dry_run=True))

Nothing is deleted until `apply` is called, or `limpet prune --policy`, or by
`limpet serve --policy-every`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from os.path import commonprefix
from typing import Any, NamedTuple, TypeAlias

from limpet.api import upkeep, verbs
from limpet.api.driver import awaited
from limpet.api.opened import ScopeContext, Tools
from limpet.api.store import AsyncStore, Store
from limpet.api.verbs import Ask, Steps
from limpet.core import limits
from limpet.core.retention import Rule, check_retention, cutoff_of, read_rule, rule_for, rule_json
from limpet.errors import Conflict, Corrupt
from limpet.model import Note, ScopeInfo, ScopeKey
from limpet.protocol import OWN_SESSION, Backend
from limpet.runs.model import ABORTED, COMPLETED, FAILED, KIND

__all__ = ["AsyncPolicy", "Deleted", "Policy", "Rule", "Swept"]

_PLACE = ScopeKey(OWN_SESSION, "main", "policy")
_ENDED = frozenset((COMPLETED, FAILED, ABORTED))


class Deleted(NamedTuple):
    """What was deleted of one scope, or of a whole session if `scope` is None."""

    session_id: str
    scope: ScopeKey | None
    snapshots: int
    bytes: int


class Swept(NamedTuple):
    """What was deleted in all; `snapshots` has also those of the `sessions`.

    `items` are those of long-term memory whose time to live has passed. `skipped` are sessions that
    were left because they are damaged, or because others changed them at that moment. `after` is
    where the next call goes on, if this one had a limit and reached it.
    """

    sessions: int
    snapshots: int
    bytes: int
    items: int
    skipped: int
    after: str | None = None


Report: TypeAlias = Callable[[Deleted], object]


class Policy:
    """The retention rules of a store. A `copy` or `export` of the whole store has them too.

    Example:
        Policy(store).set(Rule(keep_last=50, older_than=timedelta(days=30)))
    """

    def __init__(self, store: Store) -> None:
        """Take an opened store."""
        self.driver = store.driver
        self._rules = store.scope(*_PLACE)

    def rules(self) -> list[Rule]:
        """Return the rules, by kind and prefix.

        Example:
            for rule in policy.rules(): print(rule)
        """
        return self.driver.run(_read)

    def set(self, rule: Rule) -> Note | None:
        """Store a rule, in place of that with the same prefix and kind; return its note.

        Example:
            policy.set(Rule(prefix="demo/", delete_session_after=timedelta(days=7)))
        """
        return self._rules.set_note(_name(rule.prefix, rule.kind), rule_json(rule))

    def remove(self, *, prefix: str = "", kind: str | None = None) -> int:
        """Remove the rule with this prefix and kind; return 1, or 0 if there was none.

        Example:
            policy.remove(prefix="demo/")
        """
        return self._rules.delete_note(_name(prefix, kind))

    def apply(
        self,
        *,
        dry_run: bool = False,
        report: Report | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Swept:
        """Delete by the rules, and items of long-term memory whose time to live has passed.

        Each scope has one rule: that with the longest prefix, then one that names its kind. A head
        goes only with its session, and a session stays if a worker holds a lease in it, or if it
        changed since it was read. What LangGraph computes a kept checkpoint from stays too.
        Others can use the store meanwhile. It may be interrupted and repeated.

        Example:
            print(policy.apply(dry_run=True).snapshots)
            swept = policy.apply(limit=10)
            swept = policy.apply(limit=10, after=swept.after)  # now and then, where no server does

        Args:
            dry_run: delete nothing, only report.
            report: is called with each deletion.
            limit: look at so many sessions at most; by default at all.
            after: where a call with a limit ended; None: at the beginning.
        """
        verb = _swept(
            self.driver.tools,
            dry_run=limits.check_flag("dry_run", dry_run),
            report=report,
            left=limits.check_count("limit", limit),
            after=verbs.check_prefix(after or "", "after"),
        )
        return self.driver.drive(verb)


class AsyncPolicy:
    """Async twin of `Policy`: the same methods, awaited."""

    def __init__(self, store: AsyncStore) -> None:
        """Take an opened store."""
        self.driver = store.driver
        self._rules = store.scope(*_PLACE)

    rules = awaited(Policy.rules)
    set = awaited(Policy.set)
    remove = awaited(Policy.remove)
    apply = awaited(Policy.apply)


def _name(prefix: str, kind: str | None) -> str:
    return f"{kind or '*'} {prefix}"


def _read(backend: Backend) -> list[Rule]:
    return [read_rule(note.value) for note in verbs.each(backend, verbs.notes(_PLACE, None))]


def _swept(
    tools: Tools, *, dry_run: bool, report: Report | None, left: int | None, after: str
) -> Steps[Swept]:
    rules: list[Rule] = yield _read
    now_us = tools.draw().now
    total: dict[str, Any] = dict.fromkeys(Swept._fields[:-1], 0)
    prefix = commonprefix([each.prefix for each in rules])  # noqa: RUF071  # of characters
    while rules:
        size = limits.PAGE_ITEMS_MAX if left is None else min(left, limits.PAGE_ITEMS_MAX)
        page: list[str] = yield partial(_list_sessions, prefix, after, size)
        for session_id in page:
            begun_s, deleted = tools.clock.monotonic(), list[Deleted]()
            try:
                yield from _session(tools, rules, session_id, now_us, deleted, dry_run=dry_run)
            except (Conflict, Corrupt):
                total["skipped"] += 1
            for each in deleted:
                total["sessions"] += each.scope is None
                total["snapshots"] += each.snapshots
                total["bytes"] += each.bytes
                if report is not None:
                    yield Ask(report, each)
            if deleted and not dry_run:
                yield upkeep.rest_after(begun_s, tools)
        if len(page) < size:
            break
        after = page[-1] if page else after
        left = None if left is None else left - len(page)
        if left == 0:
            return Swept(**total, after=after)
    total["items"] = yield from upkeep.expire_items(tools, dry_run=dry_run)
    return Swept(**total)


def _list_sessions(prefix: str, after: str, limit: int, backend: Backend) -> list[str]:
    return backend.list_sessions(prefix=prefix, after=after, limit=limit)


def _session(
    tools: Tools,
    rules: Sequence[Rule],
    session_id: str,
    now_us: int,
    deleted: list[Deleted],
    *,
    dry_run: bool,
) -> Steps[None]:
    """Delete a session, or else prune its scopes; add what was done to `deleted`."""
    scopes: list[ScopeInfo] = yield lambda backend: [
        *verbs.each_scope(backend, session_id=session_id)
    ]
    found = [(each, rule_for(rules, each.key)) for each in scopes]
    ages = [rule.delete_session_after for each, rule in found if _may_end(each)]
    known = [age for age in ages if age is not None]
    if known and len(known) == len(found):
        cutoff = cutoff_of("delete_session_after", max(known), now_us)
        names = {name for _, rule in found for name in rule.keep_labels}
        gone = yield from upkeep.expire(tools, scopes, cutoff, keep_labels=names, dry_run=dry_run)
        if gone is not None:
            deleted.append(Deleted(session_id, None, gone.count, gone.bytes))
            return
    for key, rule in ((each.key, rule) for each, rule in found):
        if (rule.keep_last, rule.older_than) == (None, None):
            continue
        limit = check_retention(rule.keep_last, rule.older_than, rule.keep_labels, now_us=now_us)
        context = ScopeContext(key, tools)
        pruned = yield from upkeep.pruned(context, limit, dry_run=dry_run, total=[0, 0])
        if pruned.count:
            deleted.append(Deleted(session_id, key, pruned.count, pruned.bytes))


def _may_end(info: ScopeInfo) -> bool:
    """Return whether a scope may go with its session: a run that waits or is at work may not."""
    status = None if info.head is None else info.head.status
    return info.key.kind != KIND or status in _ENDED
