"""What people find who look at the tables themselves: comments on everything, readable views."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

import limpet
from limpet import Store
from tests.servers.postgres import Connection, Postgres, Schemas
from tests.unit.test_package_files import check_files_read

VIEWS = ("session_list", "scope_list", "snapshot_list", "note_list")
NUL = "a\0b\U0001f600"


@pytest.fixture
def conn(postgres: Postgres, schemas: Schemas) -> Iterator[Connection]:
    with postgres.connect() as conn:
        yield conn


@pytest.fixture
def store(postgres_url: str) -> Iterator[Store]:
    with limpet.open(postgres_url) as store:
        yield store


def rows(conn: Connection, query: str, **values: Any) -> list[tuple[Any, ...]]:
    return conn.execute(query, values).fetchall()


def test_everything_has_a_comment(conn: Connection, schemas: Schemas, store: Store) -> None:
    """The schema, each table and view, and each column of a table."""
    query = """
        SELECT c.relname, a.attname, c.relkind, d.description
          FROM pg_class AS c
          LEFT JOIN pg_attribute AS a
            ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND c.relkind = 'r'
          LEFT JOIN pg_description AS d
            ON d.objoid = c.oid AND d.classoid = 'pg_class'::regclass
           AND d.objsubid = coalesce(a.attnum, 0)
         WHERE c.relnamespace = %(schema)s::regnamespace AND c.relkind IN ('r', 'v')
         UNION ALL
        SELECT c.relname, NULL, c.relkind, obj_description(c.oid, 'pg_class')
          FROM pg_class AS c
         WHERE c.relnamespace = %(schema)s::regnamespace AND c.relkind = 'r'
    """
    found = rows(conn, query, schema=schemas.name())
    assert {name for name, _, kind, _ in found if kind == "v"} == set(VIEWS)
    assert len(found) > 50
    assert [(table, column) for table, column, _, comment in found if not comment] == []
    (about,) = rows(
        conn, "SELECT obj_description(%(s)s::regnamespace, 'pg_namespace')", s=schemas.name()
    )
    assert about[0]


def test_the_views_show_what_was_saved(conn: Connection, schemas: Schemas, store: Store) -> None:
    """Also what JSON of PostgreSQL's own kind would refuse: NUL, and what is beyond the BMP."""
    scope = store.scope("s")
    first = scope.save({"n": NUL}, labels={"k": "v"}, metadata={"m": NUL, "n": 1.0}, status="good")
    scope.save({}, id="draft", keep=False)
    scope.set_note("name", {"x": NUL}, on=first.id)
    scope.set_note("plain", [1])
    scope.set_note("zlong", ["x" * 600])
    fork = scope.fork(first.id, scope_id="fork")
    schema = schemas.name()

    found = rows(
        conn,
        "SELECT id, status, kept, is_head, labels::text, metadata::text, state_bytes,"
        " forked_from::text, created IS NOT NULL"
        f" FROM {schema}.snapshot_list ORDER BY seq",
    )
    facts = '{"m":"a\\u0000b\U0001f600","n":1.0}'
    origin = f'["s","main","agent","{first.id}"]'
    (copied,) = fork.ids()
    assert found == [
        (first.id, "good", True, False, '{"k":"v"}', facts, first.size, None, True),
        ("draft", "", False, True, "{}", "{}", 2, None, True),
        (copied, "good", True, True, '{"k":"v"}', facts, first.size, origin, True),
    ]
    assert rows(conn, f"SELECT on_id, name, value::text FROM {schema}.note_list ORDER BY name") == [
        (first.id, "name", '{"x":"a\\u0000b\U0001f600"}'),
        (None, "plain", "[1]"),
        (None, "zlong", None),
    ]
    assert rows(conn, f"SELECT session_id, scopes, snapshots FROM {schema}.session_list") == [
        ("s", 2, 3)
    ]
    heads = rows(conn, f"SELECT scope_id, head_id, head_kept FROM {schema}.scope_list ORDER BY 1")
    assert heads == [("fork", copied, True), ("main", "draft", False)]


def test_the_views_show_no_encrypted_values(
    conn: Connection, schemas: Schemas, store: Store
) -> None:
    store.scope("s").save({}, labels={"k": "v"})
    store.scope("s").set_note("n", 1)
    schema = schemas.name()
    conn.execute(f"UPDATE {schema}.snapshots SET labels = '\\x01ff', metadata = '\\x01ff'")
    conn.execute(f"UPDATE {schema}.notes SET value = '\\x01ff'")
    for view in VIEWS:
        assert rows(conn, f"SELECT * FROM {schema}.{view}")
    shown = f"SELECT labels::text, metadata::text FROM {schema}.snapshot_list"
    assert rows(conn, shown) == [(None, None)]
    assert rows(conn, f"SELECT value FROM {schema}.note_list") == [(None,)]


def test_no_file_of_the_package_is_read_after_the_import(postgres_url: str) -> None:
    check_files_read(postgres_url, "postgres.storage")


def test_the_longest_names(store: Store) -> None:
    """All that is indexed at its longest, of characters of four bytes that no index makes fewer."""
    chance = random.Random(1)

    def name(chars: int = 512) -> str:
        return "".join(chr(chance.randrange(0x20000, 0x2A6D0)) for _ in range(chars))

    session, parent, id, noted = (name() for _ in range(4))
    scope = store.scope(session, name(), "k" * 64)
    labels = {name(256): name(256) for _ in range(64)}
    scope.save(1, id=parent)
    scope.save(2, parent=None)
    scope.save(3, id=id, parent=parent, labels=labels, status=name(256))
    scope.set_note(noted, 1, on=id)
    scope.set_note(noted, 2)
    for pair in labels.items():
        (listed,) = store.history(labels=dict([pair]), prefix=session)
        assert (listed.id, listed.parent_id) == (id, parent)
    assert store.find(id, prefix=session) is not None
    assert list(store.sessions(prefix=session[:-1])) == [session]
    assert [note.value for note in (*scope.notes(), *scope.notes(on=id))] == [2, 1]
    fork = scope.fork(id, to=name()).load()
    assert fork is not None
    assert fork.labels == labels
    assert scope.delete_snapshot(id) == 1
    assert store.delete_session(session) == 2
