"""What a retention rule deletes: which snapshots of a history, and after which time a session."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from limpet.core import limits, schema, times
from limpet.core.wire import Record, fields, optional
from limpet.errors import Corrupt, InvalidInput
from limpet.model import JSON, ScopeKey, SnapshotInfo
from limpet.protocol import NoteQuery

ITEMS = NoteQuery("main", "items")  # long-term memory; an item may expire
VECTORS = "vectors"  # the snapshot id that the embedding of an item is on
NEEDS_PARENT = "langgraph_absent"
"""In the metadata of a snapshot: parts of the state that are computed from its ancestors."""


class Retention(NamedTuple):
    """Keep the newest `keep_last`, what was created after `cutoff`, and what has certain labels."""

    keep_last: int
    cutoff: datetime | None
    keep_labels: Collection[str] = ()


class Choice:
    """Chooses what to drop of a history, from which it is given each snapshot, newest first.

    A snapshot that one that stays is computed from stays too.
    """

    def __init__(self, policy: Retention, head: SnapshotInfo | None) -> None:
        self._policy = policy
        self._head_id = None if head is None else head.id
        self._seen = 0
        self._needed: set[str | None] = set()
        self.follows_parents = False  # whether what stays depends on others
        if head is not None:
            self._follow(head)

    def drops(self, info: SnapshotInfo) -> bool:
        rank, self._seen = self._seen, self._seen + 1
        policy = self._policy
        is_old = policy.cutoff is None or info.created_at < policy.cutoff
        is_kept = info.id == self._head_id or info.id in self._needed
        self._needed.discard(info.id)
        is_kept = is_kept or not info.labels.keys().isdisjoint(policy.keep_labels)
        if is_old and rank >= policy.keep_last and not is_kept:
            return True
        self._follow(info)
        return False

    def _follow(self, info: SnapshotInfo) -> None:
        if info.metadata.get(NEEDS_PARENT):
            self.follows_parents = True
            self._needed.add(info.parent_id)


def check_retention(
    keep_last: object, older_than: object, keep_labels: Collection[str] = (), *, now_us: int
) -> Retention:
    """Return the policy of a prune, or raise InvalidInput; at least one limit must be given."""
    if keep_last is None and older_than is None:
        raise InvalidInput("prune needs keep_last or older_than, or both")
    count = limits.check_count("keep_last", keep_last)
    cutoff = None if older_than is None else cutoff_of("older_than", older_than, now_us)
    return Retention(count or 0, cutoff, keep_labels)


def cutoff_of(name: str, age: object, now_us: int) -> datetime:
    """Return the moment that is so long ago, or raise InvalidInput."""
    if not isinstance(age, timedelta) or age < timedelta(0):
        raise InvalidInput(f"{name} must be a timedelta, such as timedelta(days=30)")
    try:
        return times.from_us(now_us) - age
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)  # nothing is that old


def changed_at(info: SnapshotInfo) -> datetime:
    """Return when a snapshot was last written: `created_at` may be that of another store."""
    return max(info.created_at, info.updated_at)


@dataclass(frozen=True, slots=True)
class Rule:
    """What is deleted of the scopes of a kind, in sessions whose id begins with `prefix`.

    Without any limit it keeps everything: as an exception from a rule with a shorter prefix.

    Attributes:
        prefix: which sessions; "" for all.
        kind: which scopes; None for those of all kinds, except long-term memory (`items`).
        keep_last, older_than: delete snapshots as `Scope.prune` does.
        keep_labels: but no snapshot that has a label of one of these names, nor its session.
        delete_session_after: delete a session so long after its last change, unless a run in it
            has not completed, failed or been aborted.

    Example:
        Rule(prefix="demo/", keep_last=50, delete_session_after=timedelta(days=7))
    """

    prefix: str = ""
    kind: str | None = None
    keep_last: int | None = None
    older_than: timedelta | None = None
    keep_labels: tuple[str, ...] = ()
    delete_session_after: timedelta | None = None


_AGE = Record(schema.AGE, timedelta.total_seconds, lambda seconds: timedelta(seconds=seconds))
RULE = fields(
    Rule,
    prefix=Record(schema.PREFIX),
    kind=optional(Record(schema.KIND)),
    keep_last=optional(Record(schema.COUNT)),
    older_than=optional(_AGE),
    keep_labels=Record(schema.array(schema.TEXT), list, tuple),
    delete_session_after=optional(_AGE),
)
"""A rule as it is stored; its times are in seconds."""


def rule_json(rule: Rule) -> JSON:
    """Return a rule as it is stored, or raise InvalidInput."""
    try:
        found: JSON = RULE.to_json(rule)
    except TypeError as cause:
        raise InvalidInput("older_than and delete_session_after must be timedeltas") from cause
    schema.check(found, RULE.schema)
    return found


def read_rule(found: JSON) -> Rule:
    """Return a stored rule, or raise Corrupt."""
    try:
        schema.check(found, RULE.schema)
    except InvalidInput as cause:
        raise Corrupt("a retention rule is malformed: `limpet policy set` replaces it") from cause
    rule: Rule = RULE.of_json(found)
    return rule


def rule_for(rules: Sequence[Rule], scope: ScopeKey) -> Rule:
    """Return the rule of a scope: that with the longest prefix, then one that names its kind."""
    kinds = (scope.kind, None if scope.kind != ITEMS.kind else scope.kind)
    fitting = (
        each for each in rules if each.kind in kinds and scope.session_id.startswith(each.prefix)
    )
    return max(fitting, key=lambda each: (len(each.prefix), each.kind is not None), default=Rule())
