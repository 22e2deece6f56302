"""What repair makes of damage to PostgreSQL's tables: nothing less than there was before."""

from collections.abc import Iterator

import pytest

from holdfast.errors import Unavailable
from holdfast.model import ScopeKey
from holdfast.opening import open_backend, store_over
from holdfast.protocol import Backend, Query
from tests.servers.fixtures import postgres, postgres_url, schemas  # noqa: F401
from tests.servers.postgres import Connection, Postgres, Schemas
from tests.unit.test_postgres_check import CASES, damage, dump
from tests.unit.test_sqlite_check import DRAFTED, IDS, S, codes, fill, inspect, save


@pytest.fixture
def conn(postgres: Postgres, schemas: Schemas) -> Iterator[Connection]:  # noqa: F811
    """A connection that sees our tables, and for which foreign keys do not hold."""
    with postgres.connect() as conn:
        conn.execute(f"SET search_path = {schemas.name()}")
        conn.execute("SET session_replication_role = replica")
        yield conn


@pytest.fixture
def backend(postgres_url: str) -> Iterator[Backend]:  # noqa: F811
    backend = open_backend(postgres_url)
    fill(backend)
    yield backend
    backend.close()


def test_a_lost_head_is_the_draft_if_there_is_one(backend: Backend, conn: Connection) -> None:
    for name in ("head of nothing, with a draft", "head of nothing"):
        damage(conn, CASES[name])
    inspect(backend, repair=True)

    heads = [backend.read_info(scope, None) for scope in (DRAFTED, S)]
    assert [head and head.id for head in heads] == ["draft", "first"]


def test_a_lost_scope_is_found_again(backend: Backend, conn: Connection) -> None:
    """With all that belonged to it, under a name that says so."""
    before = backend.read_snapshots(S, IDS)
    notes = backend.list_notes(S, on=[None, *IDS], name=None, after="", limit=99)
    minted = save(backend, S, None)
    damage(conn, CASES["scope gone"])
    found = {each.code: each for each in inspect(backend, repair=True)}

    key = found["snapshots_without_scope"].scope
    assert key is not None
    assert key == found["notes_without_scope"].scope
    assert key.session_id == "lost+found"
    states = backend.read_snapshots(key, IDS)
    assert [body for _, body in states] == [body for _, body in before]
    assert [info.revision for info, _ in states] == [info.revision for info, _ in before]
    assert backend.list_notes(key, on=[None, *IDS], name=None, after="", limit=99) == notes
    head = backend.read_info(key, None)
    assert head is not None
    assert head.id == minted
    assert save(backend, key, None) > minted
    assert backend.delete_session("lost+found") == len(IDS) + 3
    assert backend.delete_session("s") == 0
    assert inspect(backend) == []


def test_a_lost_session_is_found_again(backend: Backend, conn: Connection) -> None:
    before = backend.read_snapshots(S, IDS)
    damage(conn, CASES["session gone"])
    (found,) = inspect(backend, repair=True)

    assert found.scope is not None
    assert found.scope.session_id.startswith("lost+found/")
    assert found.scope[1:] == S[1:]
    states = backend.read_snapshots(found.scope, IDS)
    assert [body for _, body in states] == [body for _, body in before]


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
