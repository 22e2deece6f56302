"""A writer that was the last to change a scope saves in one statement: only if it still is.

`scopes.version` says so. Whatever another one does to a scope in between must change it.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import limpet
from limpet import Store
from tests.concurrency.test_postgres_locks import near, text
from tests.servers.postgres import Connection, Schemas

Verb = Callable[[Store], Any]

BETWEEN: dict[str, Verb] = {
    "save": lambda store: store.scope("s", "a").save(near(1, 50), id="other"),
    "save whole": lambda store: store.scope("s", "a").save(text(9), id="other"),
    "save aside": lambda store: store.scope("s", "a").save(near(1, 50), id="other", head=False),
    "save the next id": lambda store: store.scope("s", "a").save(near(1, 50), id="next"),
    "draft": lambda store: store.scope("s", "a").save(near(1, 50), id="other", keep=False),
    "append": lambda store: store.scope("s", "a").append("items", [5]).parent_id,
    "overwrite the head": lambda store: store.scope("s", "a").save(
        near(1, 60), id="3", overwrite=True
    ),
    "overwrite a base": lambda store: store.scope("s", "a").save(
        near(1, 60), id="1", overwrite=True
    ),
    "only facts": lambda store: store.scope("s", "a").save(
        near(1, 3), id="3", overwrite=True, status="x"
    ),
    "update": lambda store: store.scope("s", "a").update(
        "3", lambda before: before.with_(state=near(1, 70))
    ),
    "delete the head": lambda store: store.scope("s", "a").delete_snapshot("3"),
    "delete a base": lambda store: store.scope("s", "a").delete_snapshot("2"),
    "delete nothing": lambda store: store.scope("s", "a").delete_snapshot("none"),
    "prune": lambda store: store.scope("s", "a").prune(keep_last=2),
    "delete the scope": lambda store: store.scope("s", "a").delete(),
    "delete the session": lambda store: store.delete_session("s"),
    "and make it again": lambda store: (
        store.delete_session("s"), store.scope("s", "a").save(text(9), id="other")
    ),
    "note": lambda store: store.scope("s", "a").set_note("x", 1),
    "fork": lambda store: store.scope("s", "a").fork("3", scope_id="fork"),
    "fork and go on": lambda store: [
        store.scope("s", "a").fork("2", scope_id="fork").save(near(1, each)) for each in range(1)
    ],
    "delete the origin": lambda store: store.scope("s", "origin").delete_snapshot("0"),
    "delete below": lambda store: store.scope("s", "origin").delete(),
    "change the origin": lambda store: store.scope("s", "origin").save(
        text(8), id="0", overwrite=True
    ),
    "delete in a fork": lambda store: store.scope("s", "b").delete(),
    "compact": lambda store: store.compact(),
    "repair": lambda store: list(store.repair()),
}  # fmt: skip

NEXT: dict[str, Verb] = {
    "save": lambda store: store.scope("s", "a").save(near(1, 99), id="next"),
    "append": lambda store: store.scope("s", "a").append("items", [7, 8]),
    "draft": lambda store: store.scope("s", "a").save(near(1, 99), id="next", keep=False),
    "aside": lambda store: store.scope("s", "a").save(near(1, 99), id="next", head=False),
    "overwrite": lambda store: store.scope("s", "a").save(near(1, 99), id="next", overwrite=True),
    "overwrite a base": lambda store: store.scope("s", "a").save(
        near(1, 99), id="1", overwrite=True
    ),
}
# Each verb is followed by a save, one that may overwrite, and by one of these.
OTHERS = ("append", "draft", "aside", "overwrite a base")


def begin(store: Store) -> None:
    """A family of three, with `a` in the middle, written by one; with drafts among its states."""
    origin = store.scope("s", "origin")
    for number in range(2):
        origin.save({**near(1, number), "items": [0]}, id=str(number))
    scope = origin.fork("0", scope_id="a")
    for number in range(4):
        scope.save({**near(1, number), "items": [1]}, id=f"draft-{number}", keep=False)
        scope.save({**near(1, number), "items": [1]}, id=str(number), labels={"n": str(number)})
    scope.fork("2", scope_id="b")


def facts(store: Store) -> Any:
    """Return all that can be seen, but for what is made by chance."""

    def named(id: str | None) -> str | None:
        return "minted" if id is not None and id[14:15] == "7" else id

    seen = []
    for info in store.scopes("s"):
        scope = store.scope(*info.key)
        head = scope.load()
        rows = [
            (named(each.id), named(each.parent_id), each.status, dict(each.labels))
            for each in scope.history()
        ]
        states = [found.state for found in scope.load_many(each.id for each in scope.history())]
        leaves = [named(each.id) for each in scope.leaves()]
        shown = None if head is None else (named(head.id), head.kept, head.state)
        seen.append((info.key, shown, rows, states, leaves))
    return seen


@pytest.fixture
def stores(postgres_url: str) -> Iterator[tuple[Store, Store]]:
    with limpet.open(postgres_url) as one, limpet.open(postgres_url) as two:
        yield one, two


def rows(conn: Connection, schema: str) -> dict[int, tuple[int, Any]]:
    """Return the version of each scope and all else that its row says."""
    query = f"SELECT pk, version, (to_jsonb(s) - 'version')::text FROM {schema}.scopes AS s"
    return {pk: (version, rest) for pk, version, rest in conn.execute(query).fetchall()}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if at % 3 == 0 else pytest.mark.slow)
        for at, name in enumerate(BETWEEN)
    ],
)
def test_another_write_in_between(
    conn: Connection, schemas: Schemas, stores: tuple[Store, Store], name: str
) -> None:
    """Whatever the other one did, the next save of the first does what it does in memory."""
    one, two = stores
    with limpet.open("memory:") as oracle:
        for at in ("save", "overwrite", OTHERS[len(name) % len(OTHERS)]):
            for store in (one, oracle):
                store.delete_session("s")
                begin(store)
            before = rows(conn, schemas.name())
            for store in (two, oracle):
                BETWEEN[name](store)
            after = rows(conn, schemas.name())
            for pk in before.keys() & after.keys():
                same = before[pk][1] == after[pk][1]
                assert same or before[pk][0] != after[pk][0], "changed without a version"
            for store in (one, oracle):
                answer(NEXT[at], store)
            assert facts(one) == facts(oracle), at
        assert [found for found in one.check() if found.severity != "info"] == []


def answer(verb: Verb, store: Store) -> str:
    try:
        verb(store)
    except limpet.LimpetError as error:
        return type(error).__name__
    return "done"


def test_the_trail_has_the_last_sixteen(
    conn: Connection, schemas: Schemas, postgres_url: str
) -> None:
    with limpet.open(postgres_url) as store:
        saved = [store.scope("s").save({"n": number}) for number in range(40)]
        ((found,),) = conn.execute(f"SELECT trail FROM {schemas.name()}.scopes").fetchall()
        assert found.hex() == "".join(each.revision.split(".")[2] for each in saved[:-17:-1])
