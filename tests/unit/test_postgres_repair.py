"""What repair makes of damage to PostgreSQL's tables: nothing less than there was before."""

import pytest

from limpet.errors import Unavailable
from limpet.model import ScopeKey
from limpet.opening import store_over
from limpet.protocol import Backend, Query
from tests.servers.postgres import Connection
from tests.unit import test_postgres_check
from tests.unit.damaged import Harm, Repairs, S, codes, inspect, save
from tests.unit.test_postgres_check import CASES, damage, dump

backend = test_postgres_check.backend
conn = test_postgres_check.conn


@pytest.fixture
def harm(conn: Connection) -> Harm:
    return lambda name: damage(conn, CASES[name])


class TestRepair(Repairs):
    """What repair does, on either engine."""


@pytest.mark.parametrize("name", ["scope gone", "session gone"])
def test_what_is_found_again_never_takes_a_name_that_is_taken(
    backend: Backend, conn: Connection, name: str
) -> None:
    query = "SELECT session_pk, pk FROM scopes ORDER BY pk LIMIT 1"
    ((session_pk, pk),) = conn.execute(query).fetchall()
    save(backend, ScopeKey("lost+found", f"scope-{pk}"), "theirs")
    save(backend, ScopeKey(f"lost+found/session-{session_pk}"), "theirs")
    damage(conn, CASES[name])
    before = dump(conn)

    assert not any(each.repaired for each in inspect(backend, repair=True))
    assert dump(conn) == before


def test_a_floor_is_the_greatest_id_that_can_have_been_minted(
    backend: Backend, conn: Connection
) -> None:
    """Not one that a caller gave, from which no greater one may be left."""
    minted = [save(backend, S, None) for _ in range(3)]
    save(backend, S, "ffffffff-ffff-7fff-bfff-ffffffffffff")
    damage(conn, CASES["floor"])
    inspect(backend, repair=True)

    query = "SELECT floor FROM scopes ORDER BY pk LIMIT 1"
    assert conn.execute(query).fetchall() == [(max(minted),)]
    assert save(backend, S, None) > max(minted)


def test_labels_are_found_again(backend: Backend, conn: Connection) -> None:
    before = conn.execute("SELECT * FROM labels ORDER BY seq").fetchall()
    conn.execute("DELETE FROM labels")
    assert all(each.repaired for each in inspect(backend, repair=True))
    assert conn.execute("SELECT * FROM labels ORDER BY seq").fetchall() == before


def test_what_was_repaired_is_saved_to_by_one_who_knew_it_before(
    backend: Backend, conn: Connection
) -> None:
    """The writer was the last one before the damage; what it remembers counts no more."""
    first = save(backend, S, None)
    damage(conn, CASES["head of nothing"])
    inspect(backend, repair=True)
    second = save(backend, S, None)

    assert [info.id for info in backend.list_snapshots(Query(S), limit=2)] == [second, first]
    assert inspect(backend) == []


def test_nothing_is_walked_beside_a_missing_table(backend: Backend, conn: Connection) -> None:
    """And who asks for something is told, by a name that says what to do."""
    damage(conn, CASES["head of nothing"])
    damage(conn, CASES["table missing"])
    assert set(codes(inspect(backend, repair=True))) == {"table_missing", "index_missing"}
    with pytest.raises(Unavailable, match="missing or not up to date"):
        backend.list_notes(S, on=[None], name=None, after="", limit=1)


def test_a_lost_scope_is_of_the_family_again(backend: Backend, conn: Connection) -> None:
    """Its states and those of its forks still build on each other: who removes locks them all."""
    store = store_over(backend)
    origin = store.scope("f", "origin")
    base = {"text": "lorem ipsum " * 500}
    for number in range(5):
        origin.save({**base, "n": number}, id=str(number))
    fork = origin.fork("3", scope_id="fork")
    fork.save({**base, "n": 33}, id="33")
    conn.execute("DELETE FROM scopes WHERE scope_id = 'origin'")
    inspect(backend, repair=True)

    query = "SELECT family FROM scopes WHERE scope_id = 'fork' OR scope_id LIKE 'scope-%'"
    families = conn.execute(query).fetchall()
    assert len(families) == 2
    assert len(set(families)) == 1
    assert families[0] != (None,)
    assert backend.delete_session("lost+found") == 5
    assert [found.state["n"] for found in fork.load_many(list(fork.ids()))] == [3, 33]
    assert inspect(backend) == []
