"""What the rules of a store delete, compared with a plain model; and what nothing deletes."""

import asyncio
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import product
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import limpet
from limpet import Corrupt, InvalidInput, Scope, ScopeKey, Store, Unsupported, portable
from limpet.protocol import OWN_SESSION, SessionAge
from limpet.retention import AsyncPolicy, Deleted, Policy, Rule, Swept
from tests.cases import for_each
from tests.retention.conftest import Time
from tests.servers.http import Http

HOUR = timedelta(hours=1)
LONG = timedelta(days=999)
SESSIONS = ("a", "a/1", "a/2", "b")
KINDS = ("agent", "run", "items")


@dataclass
class Line:
    """A scope of the model: its snapshots by id, with time, labels and status; newest last."""

    kept: dict[str, tuple[datetime, str, str]] = field(default_factory=dict)
    draft: tuple[datetime, str, str] | None = None
    notes: list[datetime] = field(default_factory=list)

    @property
    def all(self) -> list[tuple[datetime, str, str]]:
        return [*self.kept.values(), *([self.draft] if self.draft else [])]


Model = dict[ScopeKey, Line]


def fill(store: Store, time: Time, chance: random.Random) -> Model:
    """Save this and that, some of it in a short time, some of it long after."""
    model: Model = {}
    for _ in range(60):
        if chance.random() < 0.3:
            time.now += chance.randrange(1, 20) * HOUR
        key = ScopeKey(chance.choice(SESSIONS), chance.choice(("main", "x")), chance.choice(KINDS))
        scope, line = store.scope(*key), model.setdefault(key, Line())
        if chance.random() < 0.2:
            note = scope.set_note(chance.choice("nm"), 1, on=chance.choice([None, "id"]))
            assert note is not None
            line.notes.append(note.updated_at)
            continue
        status = chance.choice(("completed", "failed", "running", "queued"))
        label = chance.choice(("pin", "run", "run"))
        keep = chance.random() < 0.9
        info = scope.save(chance.random(), status=status, labels={label: "x"}, keep=keep)
        line.draft = None
        if keep:
            line.kept[info.id] = (info.created_at, label, status)
        else:
            line.draft = (info.created_at, label, status)
    return model


def some_rules(chance: random.Random) -> list[Rule]:
    def maybe(value: Any) -> Any:
        return value if chance.random() < 0.5 else None

    return [
        Rule(
            prefix=prefix,
            kind=kind,
            keep_last=maybe(chance.randrange(4)),
            older_than=maybe(chance.randrange(60) * HOUR),
            keep_labels=("pin",) if chance.random() < 0.5 else (),
            delete_session_after=maybe(chance.randrange(60) * HOUR),
        )
        for prefix, kind in product(("", "a/", "a/1"), (None, *KINDS))
        if chance.random() < 0.4
    ]


def rule_of(rules: list[Rule], key: ScopeKey) -> Rule:
    best = Rule()
    for rule in rules:
        if not key.session_id.startswith(rule.prefix) or rule.kind not in (None, key.kind):
            continue
        if rule.kind is None and key.kind == "items":
            continue
        if (len(rule.prefix), rule.kind is not None) >= (len(best.prefix), best.kind is not None):
            best = rule
    return best


def left(model: Model, rules: list[Rule], now: datetime) -> dict[ScopeKey, set[str]]:
    """Return the kept ids of each scope that there is when the rules were applied."""
    found: dict[ScopeKey, set[str]] = {}
    for session_id in SESSIONS:
        lines = {key: line for key, line in model.items() if key.session_id == session_id}
        if not lines or all(is_over(line, key, rules, lines, now) for key, line in lines.items()):
            continue
        for key, line in lines.items():
            rule, found[key] = rule_of(rules, key), set(line.kept)
            if rule.keep_last is None and rule.older_than is None:
                continue
            newest_first = list(reversed(line.kept))
            for rank, id in enumerate(newest_first):
                created, label, _ = line.kept[id]
                is_head = rank == 0 and line.draft is None
                is_old = rule.older_than is None or now - created > rule.older_than
                if rank >= (rule.keep_last or 0) and is_old and not is_head:
                    found[key] -= set() if label in rule.keep_labels else {id}
    return found


def is_over(line: Line, key: ScopeKey, rules: list[Rule], lines: Model, now: datetime) -> bool:
    rule = rule_of(rules, key)
    ages = [rule_of(rules, each).delete_session_after for each in lines]
    pinned = {name for each in lines for name in rule_of(rules, each).keep_labels}
    if rule.delete_session_after is None or any(age is None for age in ages):
        return False
    status = (line.draft or line.all[-1])[2] if line.all else None
    if key.kind == "run" and status not in ("completed", "failed"):
        return False
    if any(label in pinned for _, label, _ in line.all):
        return False
    last = max([*line.notes, *(created for created, _, _ in line.all)])
    return now - last > max(age for age in ages if age is not None)


def shown(store: Store) -> dict[ScopeKey, set[str]]:
    return {each.key: set(store.scope(*each.key).ids()) for each in store.scopes()}


def run_async(store: Store, **options: Any) -> Swept:
    return asyncio.run(AsyncPolicy(store.aio).apply(**options))


def in_parts(store: Store, **options: Any) -> Swept:
    """Apply the rules to one session in each call."""
    totals, after = [0] * 5, None
    while True:
        *counts, after = Policy(store).apply(limit=1, after=after, **options)
        assert counts[0] <= 1
        totals = [sum(pair) for pair in zip(totals, counts, strict=True)]
        if after is None:
            return Swept._make([*totals, None])


def test_it_deletes_what_a_plain_model_deletes(url: str) -> None:
    """Also in the async API, and little by little; and a dry run says it beforehand."""
    seeds = range(12) if url == "memory:" else range(3)
    deleted = 0
    for seed in seeds:
        chance = random.Random(seed)
        with limpet.open(url) as store:
            for session_id in [*store.sessions(), OWN_SESSION]:
                store.delete_session(session_id)
            time = Time(store)
            model, rules = fill(store, time, chance), some_rules(chance)
            policy = Policy(store)
            for rule in rules:
                policy.set(rule)
            assert sorted(policy.rules(), key=str) == sorted(rules, key=str)
            expected, before = left(model, rules, time.now), shown(store)
            notes = {key: {note.name for note in store.scope(*key).notes()} for key in expected}
            reports: list[list[Deleted]] = [[], []]
            plan = policy.apply(dry_run=True, report=reports[0].append)
            assert shown(store) == before, seed
            apply = (policy.apply, partial(in_parts, store), partial(run_async, store))[seed % 3]
            assert apply(report=reports[1].append) == plan, seed
            assert reports[0] == reports[1]
            assert shown(store) == expected, seed
            for key, names in notes.items():
                assert {note.name for note in store.scope(*key).notes()} == names
            assert [each.severity for each in store.check() if each.severity == "error"] == []
            gone = [each for each in before if each not in expected]
            assert plan.sessions == len({each.session_id for each in gone}), seed
            drafts = sum(model[key].draft is not None for key in gone)
            kept = sum(len(ids) for ids in before.values()) - sum(map(len, expected.values()))
            assert plan.snapshots == kept + drafts, seed
            deleted += plan.snapshots
            assert policy.apply() == Swept(0, 0, 0, 0, 0)
    assert deleted


CHANGES: dict[str, Callable[[Scope], object]] = {
    "a save": lambda scope: scope.save({"new": 1}),
    "a draft": lambda scope: scope.save({"new": 1}, keep=False),
    "one that is only kept": lambda scope: scope.save({"new": 1}, head=False),
    "an update": lambda scope: scope.update("s", lambda each: each.with_(status="new")),
    "a note": lambda scope: scope.set_note("title", "new"),
    "a note again": lambda scope: scope.set_note("old", "new"),
    "a note on a snapshot": lambda scope: scope.set_note("review", "new", on="s"),
    "a deleted note": lambda scope: scope.delete_note("old"),
    "a lease": lambda scope: scope.claim(owner="me").__enter__(),
}


def test_a_session_that_changes_meanwhile_stays(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever changes between the look at a session and its deletion, it is left as it is."""
    policy = Policy(store)
    policy.set(Rule(delete_session_after=timedelta(0)))
    for name in CHANGES:
        store.scope(name).save({}, id="s")
        store.scope(name).set_note("old", 1)
    store.scope("unchanged").save({})
    backend = store.driver.opened.backend
    delete: Callable[..., int] = backend.delete_scope

    def interfering(scope: ScopeKey, **options: Any) -> int:
        if scope.session_id in CHANGES:
            CHANGES[scope.session_id](store.scope(*scope))
        return delete(scope, **options)

    with monkeypatch.context() as patch:
        patch.setattr(backend, "delete_scope", interfering)
        swept = policy.apply()
    assert swept == Swept(1, 1, 2, 0, len(CHANGES))
    assert {*store.sessions()} == {*CHANGES}
    for name in CHANGES:
        assert "s" in set(store.scope(name).ids())
    policy.set(Rule(delete_session_after=LONG))
    assert policy.apply() == Swept(0, 0, 0, 0, 0)


def test_what_went_before_a_conflict_is_counted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for scope_id in ("a", "b"):
        for n in range(3):
            store.scope("s", scope_id).save({"n": n})
    policy, found = Policy(store), list[Deleted]()
    policy.set(Rule(keep_last=1))
    backend = store.driver.opened.backend
    delete: Callable[..., limpet.Pruned] = backend.delete_snapshots

    def conflicting(scope: ScopeKey, *given: Any, **options: Any) -> limpet.Pruned:
        if scope.scope_id == "b":
            raise limpet.Conflict("another one was faster")
        return delete(scope, *given, **options)

    monkeypatch.setattr(backend, "delete_snapshots", conflicting)
    assert policy.apply(report=found.append)[:2] == (0, 2)
    assert [each.scope and each.scope.scope_id for each in found] == ["a"]


def test_one_that_is_held_or_pinned_stays(store: Store, time: Time) -> None:
    policy = Policy(store)
    policy.set(Rule(keep_labels=("pin",), delete_session_after=HOUR))
    for name in ("held", "noted", "old", "pinned"):
        store.scope(name).save(
            {}, id="s", labels={name: ""} | ({"pin": ""} if name == "pinned" else {})
        )
        store.scope(name).save({})
    store.scope("forgotten", "only-a-note").set_note("title", 1)
    time.now += 2 * HOUR
    store.scope("noted").set_note("title", 1, on="s")
    with store.scope("held", "another").claim(owner="me"):
        assert policy.apply(dry_run=True) == policy.apply()
        assert list(store.sessions()) == ["held", "noted", "pinned"]


def test_the_rules_are_hidden_and_go_along(store: Store, url: str) -> None:
    """No listing shows where they are, at any page size; copies and exports have them."""
    for name in ("a", "limpet", "limpet:storf", "z"):
        store.scope(name).save({})
    stats, policy = store.stats(), Policy(store)
    for rule in (Rule(keep_last=3), Rule("a/", "run", older_than=HOUR, keep_labels=("x", "y"))):
        policy.set(Rule(rule.prefix, rule.kind, keep_last=9))
        policy.set(rule)
    rules, backend = policy.rules(), store.driver.opened.backend
    assert len(rules) == 2
    assert sorted(store.sessions()) == ["a", "limpet", "limpet:storf", "z"]
    assert [each.key.session_id for each in store.scopes()] == list(store.sessions())
    assert [*store.scopes(prefix=OWN_SESSION), *store.sessions(prefix=OWN_SESSION)] == []
    assert store.stats().sessions == stats.sessions
    assert store.stats().scopes == stats.scopes
    for limit in (1, 2, 3):
        seen: list[str] = []
        while page := backend.list_sessions(prefix="", after=seen[-1] if seen else "", limit=limit):
            seen += page
        assert seen == list(store.sessions())
        ages: list[SessionAge] = []
        while more := backend.list_newest(prefix="", after=ages[-1] if ages else None, limit=limit):
            ages += more
        assert {each.session_id for each in ages} == set(seen)
    assert [each.key.session_id for each in store.scopes(OWN_SESSION)] == [OWN_SESSION]
    with limpet.open("memory:") as copied, limpet.open("memory:") as imported:
        portable.copy(store, copied)
        portable.import_lines(imported, portable.export_lines(store))
        assert Policy(copied).rules() == Policy(imported).rules() == rules
        portable.copy(store, imported, prefix="a")
        assert {*imported.sessions()} == {*store.sessions()}
    assert policy.remove(prefix="a/") == 0
    assert policy.remove(prefix="a/", kind="run") == 1
    assert policy.rules() == [Rule(keep_last=3)]


def test_one_that_is_bound_to_a_prefix_sees_no_rules(http: Http, tmp_path: Path) -> None:
    """But it can copy, export and back up what it sees."""
    token, url = "token-of-alice-0123456789", f"sqlite:///{tmp_path}/a.db"
    mounted = http.mount(url, tokens=f"{token} write alice/")
    with limpet.open(url) as whole:
        Policy(whole).set(Rule(keep_last=3))
        for name in ("alice/1", "bob"):
            whole.scope(name).save({})
    with limpet.open(mounted, token=token) as store, limpet.open("memory:") as copied:
        policy = Policy(store)
        for verb in (policy.rules, policy.apply, partial(policy.set, Rule()), policy.remove):
            with pytest.raises(Unsupported):
                verb()
        portable.copy(store, copied)
        assert [*copied.sessions()] == ["alice/1"]
        assert [*portable.export_lines(store)] == [*portable.export_lines(copied)]
        portable.backup(store, str(tmp_path / "b"))
    http.unmount(mounted)


@for_each(
    "rule",
    [
        {"keep_last": -1},
        {"keep_last": 1.5},
        {"older_than": 30},
        {"older_than": timedelta(-1)},
        {"delete_session_after": "7d"},
        {"keep_labels": ("a", 1)},
        {"kind": "NO"},
        {"prefix": "x" * 600},
    ],
)
def test_a_rule_is_checked(rule: dict[str, Any]) -> None:
    with limpet.open("memory:") as store:
        with pytest.raises(InvalidInput):
            Policy(store).set(Rule(**rule))
        assert Policy(store).rules() == []


def test_malformed_rules_delete_nothing() -> None:
    with limpet.open("memory:") as store:
        policy = Policy(store)
        policy.set(Rule(delete_session_after=timedelta(0)))
        store.scope("a").save({})
        (place,) = store.scopes(OWN_SESSION)
        store.scope(*place.key).set_note("* b", {"prefix": "b"})
        with pytest.raises(Corrupt, match="limpet policy set"):
            policy.apply()
        assert list(store.sessions()) == ["a"]


def test_no_change_is_lost_while_it_deletes(store: Store, time: Time) -> None:
    """Others write to old sessions while they are deleted: what was acknowledged is there."""
    policy, names = Policy(store), [f"{n:02}" for n in range(30)]
    policy.set(Rule(delete_session_after=HOUR))
    for name in names:
        store.scope(name).save({})
    time.now += 2 * HOUR
    begun = threading.Barrier(3)

    def work(some: list[str]) -> None:
        begun.wait()
        for name in some:
            store.scope(name).set_note("seen", name)

    # From the end, so that they meet the one that deletes in the middle.
    workers = [Thread(target=work, args=(names[at::-2],)) for at in (28, 29)]
    for each in workers:
        each.start()
    begun.wait()
    policy.apply()
    for each in workers:
        each.join()
    assert all(store.scope(name).note("seen") for name in names)
    policy.apply()
    assert list(store.sessions()) == names
