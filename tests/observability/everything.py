"""Every verb once, with a text in all that a caller can give: it must be reported nowhere."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from limpet import Conflict, InvalidInput, LimpetError, ScopeKey, Store
from limpet.protocol import Claim, NoteQuery, NoteWrite

CANARY = "canary-7f3a"


def use_everything(store: Any) -> None:
    """Call every verb of a store, of either API; some of them fail."""
    scope = store.scope(f"{CANARY} session", f"{CANARY} scope", "graph")
    first = scope.save(
        {"messages": [CANARY]},
        id=f"{CANARY}-1",
        labels={f"{CANARY}-label": CANARY},
        metadata={CANARY: CANARY},
        status=CANARY,
    )
    second = scope.append("messages", [CANARY])
    scope.save({CANARY: 1}, keep=False)
    failing: list[Callable[[], object]] = [
        lambda: scope.save({CANARY: 2}, expect=first.revision),
        lambda: scope.save({CANARY: 3}, id=first.id),
        lambda: scope.load(f"{CANARY}-none"),
        lambda: scope.append(f"{CANARY}", [1], expect=first.revision),
        lambda: scope.fork(f"{CANARY}-none"),
    ]
    for fail in failing:
        with suppress(LimpetError):
            fail()
    scope.update(second.id, lambda it: it.with_(status=CANARY))
    assert scope.load(second.id).state == {"messages": [CANARY] * 2}
    assert len(list(scope.load_many([first.id, second.id]))) == 2
    scope.info()
    list(scope.history(labels={f"{CANARY}-label": CANARY}))
    list(scope.ids())
    list(scope.ancestors(second.id))
    list(scope.leaves())
    scope.diff(first.id, second.id)
    scope.restore(first.id)
    scope.fork(first.id, to=f"{CANARY} fork")
    scope.set_note(CANARY, {CANARY: CANARY})
    scope.set_note(CANARY, CANARY, on=first.id)
    scope.note(CANARY)
    list(scope.notes())
    list(scope.noted_ids())
    scope.delete_note(CANARY)
    with scope.claim(owner=CANARY) as lease:
        lease.save({CANARY: 4})
        with suppress(Conflict), scope.claim(owner=f"{CANARY} other"):
            pass
    assert next(iter(scope.watch(timeout_s=100)))
    list(store.sessions(prefix=CANARY))
    list(store.scopes(prefix=CANARY))
    list(store.history(prefix=CANARY, limit=3))
    store.find(first.id)
    store.stats()
    store.stats(scope.session_id)
    list(store.check())
    list(store.repair())
    store.compact()
    scope.redact(lambda path, value: isinstance(value, str) and CANARY in value)
    scope.delete_snapshot(second.id)
    scope.prune(keep_last=1)
    scope.delete()
    store.delete_session(f"{CANARY} fork")


def use_the_rest(store: Store) -> None:
    """Call the operations that only integrations use."""
    backend = store.driver.opened.backend
    backend.list_newest(prefix=CANARY, after=None, limit=3)
    backend.find_refs(CANARY, limit=3)
    scope, stamp = ScopeKey(CANARY, CANARY), store.driver.tools.draw()
    claim = Claim(scope, CANARY, CANARY, 1_000_000, stamp)
    backend.claim(claim)
    backend.renew(claim)
    backend.read_lease(scope, now=stamp.now)
    backend.release(claim)
    with suppress(Conflict):
        backend.renew(claim)
    backend.write_notes([NoteWrite(scope, CANARY, None, b'"%s"' % CANARY.encode(), stamp)])
    backend.read_notes(scope, [CANARY])
    backend.find_notes(NoteQuery(CANARY, "agent"), limit=3)
    backend.list_damage(scope)
    backend.list_unlisted()
    with suppress(InvalidInput):  # it has no keys
        backend.rekey("", limit=3)
