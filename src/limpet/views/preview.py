"""What a fork, a restore or a prune would do."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from itertools import islice
from typing import NamedTuple

from limpet.api.store import Store
from limpet.core.diff import diff
from limpet.core.ids import fork_name
from limpet.core.retention import Choice, check_retention
from limpet.errors import Corrupt, NotFound
from limpet.model import Pruned, ScopeKey, Snapshot, SnapshotInfo
from limpet.views.chat import read_chat
from limpet.views.diff import KINDS


class Difference(NamedTuple):
    """How two states differ: how many messages each has, if both are chats, and other changes."""

    messages: tuple[int, int] | None
    counts: Mapping[str, int]


def difference(before: Snapshot, after: Snapshot) -> Difference:
    """Return how a state differs from an earlier one."""
    found: Counter[str] = Counter(change.kind for change in diff(before.state, after.state).changes)
    chats = [read_chat(each.state) for each in (before, after)]
    lengths = [len(chat.turns) for chat in chats if chat is not None]
    messages = (lengths[0], lengths[1]) if len(lengths) == len(chats) else None
    return Difference(messages, {kind: found[kind] for kind in KINDS if found[kind]})


def free_name(store: Store, source: ScopeKey, bits: int) -> str:
    """Return a name for a fork that no scope of the session has now; `bits` are random."""
    taken = {each.key for each in store.scopes(source.session_id)}
    name = fork_name(source.scope_id, bits)
    while source._replace(scope_id=name) in taken:
        bits += 1
        name = fork_name(source.scope_id, bits)
    return name


def scopes_to_prune(
    store: Store,
    session_id: str | None,
    scope_id: str | None = None,
    kind: str | None = None,
    prefix: str = "",
) -> Iterator[ScopeKey]:
    """Yield the scopes that match; NotFound if a session is given and there is none."""
    found = False
    for each in store.scopes(session_id, kind=kind, prefix=prefix):
        if scope_id in (None, each.key.scope_id):
            found = True
            yield each.key
    if not found and session_id is not None:
        where = f"session_id=`{session_id}`"
        where += "" if scope_id is None else f" scope_id=`{scope_id}`"
        raise NotFound(f"there is no such session or scope. {where}")


def pruned_sum(all: Iterable[Pruned]) -> Pruned:
    count = size = 0
    for each in all:
        count, size = count + each.count, size + each.bytes
    return Pruned(count, size)


class PrunePreview(NamedTuple):
    """What a prune would delete: how much of each scope, and the first snapshots of it."""

    scopes: list[tuple[ScopeKey, Pruned]]
    first: list[SnapshotInfo]
    damaged: list[Corrupt]

    @property
    def total(self) -> Pruned:
        return pruned_sum(pruned for _, pruned in self.scopes)


def preview_prune(
    store: Store,
    scopes: Iterable[ScopeKey],
    *,
    keep_last: int | None,
    older_than: timedelta | None,
    now_us: int,
    limit: int,
) -> PrunePreview:
    """Return what `prune` would delete now, with its first `limit` snapshots, the newest first."""
    policy = check_retention(keep_last, older_than, now_us=now_us)
    found = PrunePreview([], [], [])
    for key in scopes:
        scope = store.scope(*key)
        try:
            pruned = scope.prune(keep_last=keep_last, older_than=older_than, dry_run=True)
            if pruned.count:
                found.scopes.append((key, pruned))
                doomed = filter(Choice(policy, scope.info()).drops, scope.history())
                found.first.extend(islice(doomed, limit - len(found.first)))
        except Corrupt as error:
            found.damaged.append(error)
    return found
