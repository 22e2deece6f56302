"""Every verb that writes, what it is done to, and what the memory engine makes of it."""

from collections.abc import Callable
from functools import cache
from typing import Any

import limpet
from limpet import Note, Scope, Snapshot, SnapshotInfo, Store
from limpet.protocol import Backend, Claim, Hold
from tests.crash.mortal import sealed, shown_id

LABELS = {"colour": "red", "size": "large"}


def changed(before: Snapshot) -> Snapshot:
    count = before.metadata.get("count", 0)
    assert isinstance(count, int)
    text = before.state["text"] + "+"
    return before.with_(state=sealed(text), metadata={"count": count + 1})


def expecting(scope: Scope) -> SnapshotInfo:
    head = scope.info()
    assert head is not None
    return scope.save(sealed("c"), expect=head.revision)


def fork(scope: Scope, **options: Any) -> Scope:
    return scope.fork("a", scope_id="fork", **options)


def other(scope: Scope) -> Scope:
    return Store(scope.driver).scope(scope.session_id, "other")


def backend_of(scope: Scope) -> Backend:
    return scope.driver.opened.backend


def lease(scope: Scope, key: str = "key") -> Claim:
    return Claim(scope.key, key, "ann", 60_000_000, scope.driver.tools.draw())


def claim(scope: Scope) -> Hold:
    return backend_of(scope).claim(lease(scope))


def renew(scope: Scope) -> Hold:
    return backend_of(scope).renew(lease(scope))


def release(scope: Scope) -> None:
    backend_of(scope).release(lease(scope))


VERBS: dict[str, Callable[[Scope], Any]] = {
    "kept": lambda scope: scope.save(sealed("c"), labels=LABELS),
    "kept with an id": lambda scope: scope.save(sealed("c"), id="c", labels=LABELS),
    "expect": expecting,
    "first": lambda scope: other(scope).save(sealed("c")),
    "first expecting none": lambda scope: other(scope).save(sealed("c"), expect=None),
    "draft": lambda scope: scope.save(sealed("c"), keep=False),
    "aside": lambda scope: scope.save(sealed("c"), id="c", head=False),
    "append": lambda scope: scope.append("items", [1]),
    "first append": lambda scope: other(scope).append("items", [1]),
    "update": lambda scope: scope.update("b", changed),
    "update below": lambda scope: scope.update("a", changed),
    "overwrite": lambda scope: scope.save(sealed("c"), id="b", overwrite=True),
    "fork": fork,
    "patched fork": lambda scope: fork(scope, patch={"more": 1}),
    "note": lambda scope: scope.set_note("n", 7),
    "counter": lambda scope: scope.set_note("n", lambda n: n + 1),
    "first note": lambda scope: other(scope).set_note("n", 0, expect=None),
    "delete_note": lambda scope: scope.delete_note("n"),
    "claim": claim,
    "first claim": lambda scope: claim(other(scope)),
    "claim in vain": claim,
    "renew": renew,
    "release": release,
    "delete_snapshot": lambda scope: scope.delete_snapshot("b"),
    "delete_snapshot below": lambda scope: scope.delete_snapshot("a"),
    "prune": lambda scope: scope.prune(keep_last=1),
    "delete": lambda scope: scope.delete(),
    "delete_session": lambda scope: Store(scope.driver).delete_session(scope.session_id),
}

# To ask again ends in the same and changes nothing more.
REPEATABLE = {
    "kept with an id",
    "aside",
    "overwrite",
    "note",
    "delete_note",
    "claim",
    "first claim",
    "claim in vain",
    "renew",
    "release",
    "delete_snapshot",
    "delete_snapshot below",
    "delete",
    "delete_session",
}


def prepare(scope: Scope, verb: str) -> Scope:
    scope.set_note("n", 0)
    if verb in ("renew", "release"):
        claim(scope)
    if verb == "claim in vain":
        backend_of(scope).claim(lease(scope, "another"))
    if verb == "append":
        return prepared_list(scope)
    scope.save(sealed("a"), id="a", labels=LABELS)
    scope.save(sealed("b"), id="b")
    return scope


def prepared_list(scope: Scope) -> Scope:
    scope.append("items", [0])
    return scope


def seen(scope: Scope) -> list[Any]:
    """Return what the scopes of a session show, after checking that they agree with themselves."""
    facts: list[Any] = []
    for name in (scope.scope_id, "fork", "other"):
        each = Store(scope.driver).scope(scope.session_id, name)
        head, infos = each.load(), list(each.history())
        kept = list(each.load_many(info.id for info in infos))
        assert [found.revision for found in kept] == [info.revision for info in infos]
        facts.append([facts_of(found) for found in (head, *kept)])
        facts.append([note.value for note in each.notes()])
        held = backend_of(scope).read_lease(each.key, now=0)
        facts.append(None if held is None else held[:2])
    return facts


def facts_of(found: Snapshot | None) -> list[Any] | None:
    if found is None:
        return None
    id, parent = shown_id(found.id), shown_id(found.parent_id)
    return [id, parent, found.state, found.labels, found.metadata, found.kept]


def answer_of(given: Any) -> Any:
    """Return what a verb answered, in a form that is the same for all engines."""
    if isinstance(given, SnapshotInfo):
        return [shown_id(given.id), shown_id(given.parent_id), given.metadata, given.kept]
    if isinstance(given, Note):
        return given.value
    if isinstance(given, Hold):
        return given[:2]
    return given.key[1:] if hasattr(given, "key") else given


@cache
def expected(verb: str) -> tuple[list[Any], Any, list[Any]]:
    """Return what the memory engine shows before a verb, answers, and shows after it."""
    with limpet.open("memory:") as oracle:
        scope = prepare(oracle.scope("s"), verb)
        before = seen(scope)
        return before, answer_of(VERBS[verb](scope)), seen(scope)
