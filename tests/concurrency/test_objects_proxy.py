"""Answers that are lost between the engine and an object store: exactly one snapshot, always.

For each verb the reply to its first request is lost, then that to its second, and so on until the
verb completes untouched; likewise requests that never arrive, and a line that stays dead from one
request on. What became of it is looked up past the proxy and compared with the memory engine.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

import limpet
from limpet import Conflict, Scope, ScopeKey, Snapshot, Store, Unavailable
from limpet.engine import Engine
from limpet.opening import draw
from limpet.protocol import Claim, Commit
from tests.buckets.opened import engine_on
from tests.cases import for_each
from tests.crash.mortal_objects import sealed, shown_id
from tests.servers.proxy import Proxy
from tests.servers.service import Service

REQUESTS_MAX = 60
RETRY_S = {True: 0.15, False: 20.0}  # a dead line is given up soon, a single loss is made up for
LABELS = {"colour": "red"}


@pytest.fixture(scope="module")
def proxy(seaweedfs: Service) -> Iterator[Proxy]:
    with Proxy(seaweedfs.port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def root(seaweedfs: Service) -> str:
    return f"s3://{seaweedfs.name}/{uuid.uuid4()}"


@pytest.fixture(scope="module")
def stores(seaweedfs: Service, proxy: Proxy, root: str) -> Iterator[dict[bool, Store]]:
    """Stores behind the proxy that have written before: the service is proved."""
    opened = {}
    with ExitStack() as stack:
        for dead, retry_s in RETRY_S.items():
            options = {**seaweedfs.options, "endpoint_url": proxy.url, "retry_s": retry_s}
            store = limpet.open(f"{root}?{urlencode(options)}")
            opened[dead] = stack.enter_context(store)
            store.scope("warm").save({})
        yield opened


@pytest.fixture(scope="module")
def direct(seaweedfs: Service, root: str) -> Iterator[Store]:
    """The same store, past the proxy."""
    with limpet.open(f"{root}?{urlencode(seaweedfs.options)}") as store:
        store.scope("warm").save({})
        yield store


def changed(before: Snapshot) -> Snapshot:
    return before.with_(state=sealed(before.state["text"] + "+"), status="changed")


def fork(scope: Scope) -> None:
    scope.fork("a", scope_id=f"{scope.scope_id}-fork")


VERBS: dict[str, Callable[[Scope], object]] = {
    "kept": lambda scope: scope.save(sealed("c"), labels=LABELS),
    "kept with an id": lambda scope: scope.save(sealed("c"), id="c", labels=LABELS),
    "draft": lambda scope: scope.save(sealed("c"), keep=False),
    "aside": lambda scope: scope.save(sealed("c"), id="c", head=False),
    "append": lambda scope: scope.append("items", [1]),
    "update": lambda scope: scope.update("b", changed),
    "update below": lambda scope: scope.update("a", changed),
    "overwrite": lambda scope: scope.save(sealed("c"), id="b", overwrite=True),
    "delete": lambda scope: scope.delete_snapshot("b"),
    "delete below": lambda scope: scope.delete_snapshot("a"),
    "note": lambda scope: scope.set_note("n", sealed("n")),
    "fork": fork,
}
REPEATABLE = VERBS.keys() - {"kept", "draft", "append", "update", "update below", "fork"}


def prepare(scope: Scope, verb: str) -> Scope:
    if verb == "append":
        scope.append("items", [0])
    else:
        scope.save(sealed("a"), id="a", labels=LABELS)
        scope.save(sealed("b"), id="b")
    return scope


def seen(scope: Scope) -> list[Any]:
    """Return what a scope and its fork show, after checking that they agree with themselves."""
    facts: list[Any] = []
    for each in (
        scope,
        Store(scope.driver).scope(scope.session_id, f"{scope.scope_id}-fork"),
    ):
        head, infos = each.load(), list(each.history())
        kept = list(each.load_many(info.id for info in infos))
        assert [found.revision for found in kept] == [info.revision for info in infos]
        facts.append([facts_of(found) for found in (head, *kept)])
    return [*facts, [note.value for note in scope.notes()]]


def facts_of(found: Snapshot | None) -> list[Any] | None:
    if found is None:
        return None
    id, parent = shown_id(found.id), shown_id(found.parent_id)
    return [id, parent, found.state, found.status, found.labels, found.kept]


@cache
def expected(verb: str) -> tuple[list[Any], list[Any]]:
    """Return what the memory engine shows before and after a verb."""
    with limpet.open("memory:") as oracle:
        scope = prepare(oracle.scope("s"), verb)
        before = seen(scope)
        VERBS[verb](scope)
        return before, seen(scope)


def lose(proxy: Proxy, kind: str, at: int) -> None:
    """Let something be lost at the n-th request from now on."""
    proxy.forget()
    if at > 1:
        proxy.delay(0, at - 1)
    if kind == "reply":
        proxy.drop_replies()
    elif kind == "request":
        proxy.drop_requests()
    elif kind == "all replies":
        proxy.drop_replies(REQUESTS_MAX)
    else:
        proxy.drop_requests(REQUESTS_MAX)


FAST = {
    *((verb, "reply", False) for verb in ("kept", "append", "update", "delete", "note")),
    *((verb, "request", True) for verb in ("kept", "append", "update", "note")),
    *((verb, "all replies", True) for verb in ("kept", "update")),
}
CASES = [
    pytest.param(
        verb,
        kind,
        continuing,
        id=f"{verb}-{kind}{'' if continuing else ' of another writer'}",
        marks=[] if (verb, kind, continuing) in FAST else pytest.mark.slow,
    )
    for verb in VERBS
    for kind in ("reply", "request", "all replies", "all requests")
    for continuing in (True, False)
]


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "kind", "continuing"), CASES)
def test_a_loss_at_any_request_leaves_exactly_one(
    stores: dict[bool, Store],
    direct: Store,
    proxy: Proxy,
    verb: str,
    kind: str,
    continuing: bool,
) -> None:
    """Promises 3 and 4: what is answered is so, and what is not is whole or absent."""
    before, after = expected(verb)
    store = stores[kind.startswith("all")]
    outcomes = list[str]()
    for at in range(1, REQUESTS_MAX):
        key = ("s", f"{uuid.uuid4()}", "agent")
        # Who wrote the scope last continues its own line; another reads first.
        prepare((store if continuing else direct).scope(*key), verb)
        lose(proxy, kind, at)
        scope = store.scope(*key)
        try:
            VERBS[verb](scope)
            outcomes.append("done")
        except Unavailable as error:
            outcomes.append("nothing" if error.outcome_known else "doubt")
        sent = len(proxy.requests())
        proxy.forget()
        allowed = {"done": [after], "nothing": [before], "doubt": [before, after]}
        found = seen(direct.scope(*key))
        assert found in allowed[outcomes[-1]], f"request {at}: {outcomes[-1]}, {found}"
        go_on(scope, verb, after)
        if sent < at:
            break
    assert outcomes[-1] == "done"
    # One loss is made up for, unless it cannot be told what became of a write.
    assert kind not in ("reply", "request") or set(outcomes) <= {"done", "doubt"}


def go_on(scope: Scope, verb: str, after: list[Any]) -> None:
    """See that what can be repeated ends as it should and changes nothing more."""
    if verb in REPEATABLE:
        VERBS[verb](scope)
        assert seen(scope) == after
    before = [info.id for info in scope.history()]
    made = scope.save(sealed("z"))
    assert [info.id for info in scope.history()] == [made.id, *before]


# Leases


class Site(NamedTuple):
    """A scope of the engine behind the proxy, and the same past it."""

    behind: Engine
    past: Engine
    scope: ScopeKey

    def claim(self, key: str = "mine") -> Claim:
        return Claim(self.scope, key, "me", 3_600_000_000, draw())

    def key(self) -> str | None:
        hold = self.past.read_lease(self.scope, now=0)
        return None if hold is None else hold.key

    def can_save(self, key: str) -> bool:
        commit = Commit(self.scope, b"{}", "", b"{}", b"{}", draw(), keep=False, fence=key)
        try:
            self.past.commit(commit)
        except Conflict:
            return False
        return True


LEASE_VERBS: dict[str, Callable[[Site], object]] = {
    "claim": lambda site: site.behind.claim(site.claim()),
    "renew": lambda site: site.behind.renew(site.claim()),
    "release": lambda site: site.behind.release(site.claim()),
}


LEASE_CASES = [
    pytest.param(
        verb,
        kind,
        saved,
        id=f"{verb}-{kind}-{'saved' if saved else 'nothing saved'}",
        marks=[] if kind == "reply" or (verb == "claim" and saved) else pytest.mark.slow,
    )
    for verb in LEASE_VERBS
    for kind in ("reply", "request", "all replies")
    for saved in (False, True)
]


@for_each("verb, kind, saved", LEASE_CASES)
def test_a_lease_survives_a_loss_at_any_request(
    seaweedfs: Service, proxy: Proxy, verb: str, kind: str, saved: bool
) -> None:
    """Whatever is lost: who is told that it holds the lease does, and asking again settles it."""
    prefix, retry_s = f"leases-{uuid.uuid4()}", RETRY_S[kind.startswith("all")]
    bucket = seaweedfs.open(prefix)
    lossy = seaweedfs.open(prefix, endpoint_url=proxy.url, retry_s=retry_s)
    behind, past = engine_on(lossy), engine_on(bucket)
    behind.commit(Commit(ScopeKey("warm"), b"{}", "", b"{}", b"{}", draw()))
    for at in range(1, REQUESTS_MAX):
        site = Site(behind, past, ScopeKey("s", f"{at}"))
        if saved:
            past.commit(Commit(site.scope, b"{}", "", b"{}", b"{}", draw(), id="x"))
        if verb != "claim":
            past.claim(site.claim())
        lose(proxy, kind, at)
        done = True
        try:
            LEASE_VERBS[verb](site)
        except Unavailable:
            done = False
        sent = len(proxy.requests())
        proxy.forget()
        ends = None if verb == "release" else "mine"
        assert not done or site.key() == ends
        shown = past.read_info(site.scope, None)
        assert (None if shown is None else shown.id) == ("x" if saved else None)
        LEASE_VERBS[verb](site)
        assert site.key() == ends
        assert site.can_save("mine") == (verb != "release")
        assert past.claim(site.claim("other")).key == ("other" if verb == "release" else "mine")
        if sent < at:
            break
    assert done
    lossy.close()
    bucket.close()
