"""Answers that are lost between the engine and an object store: exactly one snapshot, always.

For each verb the reply to its first request is lost, then that to its second, and so on until the
verb completes untouched; likewise requests that never arrive, and a line that stays dead from one
request on. What became of it is looked up past the proxy and compared with the memory engine.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from itertools import product
from typing import Any
from urllib.parse import urlencode

import pytest

import limpet
from limpet import Scope, Snapshot, Store, Unavailable
from limpet.opening import draw
from limpet.protocol import Claim
from tests.cases import for_each
from tests.crash.mortal import sealed, shown_id
from tests.effort import only_fast_tests
from tests.servers.proxy import Proxy
from tests.servers.service import Service

REQUESTS_MAX = 60
RETRY_S = {True: 0.15, False: 20.0}  # a dead line is given up soon, a single loss is made up for
LABELS = {"colour": "red"}
KINDS = ("reply", "request", "all replies", "all requests")


@pytest.fixture(scope="module")
def proxy(seaweedfs: Service) -> Iterator[Proxy]:
    with Proxy(seaweedfs.port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def stores(seaweedfs: Service, proxy: Proxy) -> Iterator[dict[bool | None, Store]]:
    """A store twice behind the proxy, and past it; they have written: the service is proved."""
    root, opened = f"s3://{seaweedfs.name}/{uuid.uuid4()}", dict[bool | None, Store]()
    with ExitStack() as stack:
        for dead in (True, False, None):
            options = dict(seaweedfs.options)
            if dead is not None:
                options |= {"endpoint_url": proxy.url, "retry_s": RETRY_S[dead]}
            opened[dead] = stack.enter_context(limpet.open(f"{root}?{urlencode(options)}"))
            opened[dead].scope("warm").save({})
        yield opened


def changed(before: Snapshot) -> Snapshot:
    return before.with_(state=sealed(before.state["text"] + "+"), status="changed")


def lease(verb: str) -> Callable[[Scope], object]:
    def call(scope: Scope) -> object:
        claim = Claim(scope.key, "mine", "me", 3_600_000_000, draw())
        return scope.driver.run(lambda backend: getattr(backend, verb)(claim))

    return call


VERBS: dict[str, Callable[[Scope], object]] = {
    "kept": lambda scope: scope.save(sealed("c"), labels=LABELS),
    "kept with an id": lambda scope: scope.save(sealed("c"), id="c", labels=LABELS),
    "draft": lambda scope: scope.save(sealed("c"), keep=False),
    "append": lambda scope: scope.append("items", [1]),
    "update below": lambda scope: scope.update("a", changed),
    "overwrite": lambda scope: scope.save(sealed("c"), id="b", overwrite=True),
    "delete": lambda scope: scope.delete_snapshot("b"),
    "note": lambda scope: scope.set_note("n", sealed("n")),
    "fork": lambda scope: scope.fork("a", scope_id=f"{scope.scope_id}-fork"),
    "claim": lease("claim"),
    "renew": lease("renew"),
    "release": lease("release"),
}
REPEATABLE = VERBS.keys() - {"kept", "draft", "append", "update below", "fork"}
FAST = {
    *((verb, "reply", False) for verb in ("kept", "append", "delete", "claim", "release")),
    *((verb, "request", True) for verb in ("kept", "update below", "renew")),
    ("kept", "all replies", True),
}


def prepare(scope: Scope, verb: str) -> Scope:
    if verb == "append":
        scope.append("items", [0])
    else:
        scope.save(sealed("a"), id="a", labels=LABELS)
        scope.save(sealed("b"), id="b")
    if verb in ("renew", "release"):
        VERBS["claim"](scope)
    return scope


def seen(scope: Scope) -> list[Any]:
    """Return what a scope and its fork show, after checking that they agree with themselves."""
    facts: list[Any] = []
    store = Store(scope.driver)
    for each in (scope, store.scope(scope.session_id, f"{scope.scope_id}-fork")):
        infos = list(each.history())
        kept = list(each.load_many(info.id for info in infos))
        assert [found.revision for found in kept] == [info.revision for info in infos]
        facts.append([facts_of(found) for found in (each.load(), *kept)])
    hold = scope.driver.run(lambda backend: backend.read_lease(scope.key, now=0))
    return [*facts, [note.value for note in scope.notes()], None if hold is None else hold.key]


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
    count = REQUESTS_MAX if kind.startswith("all") else 1
    (proxy.drop_replies if "repl" in kind else proxy.drop_requests)(count)


CASES = [
    each for each in product(VERBS, KINDS, (True, False)) if each in FAST or not only_fast_tests
]


@pytest.mark.timeout(900)
@for_each("verb, kind, continuing", CASES)
def test_a_loss_at_any_request_leaves_exactly_one(
    stores: dict[bool | None, Store], proxy: Proxy, verb: str, kind: str, continuing: bool
) -> None:
    """Promises 3 and 4: what is answered is so, and what is not is whole or absent."""
    before, after = expected(verb)
    store, direct = stores[kind.startswith("all")], stores[None]
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
        if verb in REPEATABLE:  # it ends as it should and changes nothing more
            VERBS[verb](scope)
            assert seen(scope) == after
        ids = [info.id for info in scope.history()]
        made = scope.save(sealed("z"))
        assert [info.id for info in scope.history()] == [made.id, *ids]
        if sent < at:
            break
    assert outcomes[-1] == "done"
    # One loss is made up for, unless it cannot be told what became of a write.
    assert kind.startswith("all") or set(outcomes) <= {"done", "doubt"}
