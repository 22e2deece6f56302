"""The rows of scopes and sessions have checksums: no damaged column decides an answer."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import limpet
from limpet import Corrupt, Finding, ScopeKey, Store
from limpet.opening import draw
from limpet.portable import export_lines
from limpet.protocol import Backend, Claim
from tests.servers.postgres import Postgres, Schemas
from tests.unit.damaged import inspect

Execute = Callable[..., list[tuple[Any, ...]]]
S = ScopeKey("s")
HELD = ("key of a lease", "somebody")
NAMES = ("session_id", "scope_id", "kind")


class Rows(NamedTuple):
    """A store, and its tables behind its back."""

    url: str
    store: Store
    execute: Execute

    @property
    def backend(self) -> Backend:
        return self.store.driver.opened.backend

    def dump(self) -> list[Any]:
        tables = ("sessions", "scopes", "snapshots", "notes")
        return [self.execute(f"SELECT * FROM {table} ORDER BY 1, 2") for table in tables]


@pytest.fixture(params=["sqlite", "postgres"])
def rows(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rows]:
    """Two scopes in a session, one of them with a lease, and another session."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/store.db?synchronous=off"
        with limpet.open(url) as store, closing(connect(tmp_path / "store.db")) as conn:
            fill(store)
            yield Rows(url, store, lambda *given: conn.execute(*given).fetchall())
        return
    postgres: Postgres = request.getfixturevalue("postgres")
    schemas: Schemas = request.getfixturevalue("schemas")
    with limpet.open(schemas.url()) as store, postgres.connect() as pg:
        pg.execute(f"SET search_path = {schemas.name()}")
        pg.execute("SET session_replication_role = replica")  # foreign keys do not hold

        def execute(statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
            done = pg.execute(statement.replace("?", "%s"), values or None)
            return done.fetchall() if done.description else []

        fill(store)
        yield Rows(schemas.url(), store, execute)


def connect(path: Path) -> sqlite3.Connection:
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute("PRAGMA busy_timeout = 5000")
    return conn


def fill(store: Store) -> None:
    scope = store.scope("s")
    for number in range(3):
        scope.save({"n": number, "log": []}, id=f"id-{number}" if number else None)
    scope.set_note("a", 1)
    claim(store, "claim")
    scope.fork("id-2", scope_id="fork")
    store.scope("other").save({"n": 0}, id="only")


def claim(store: Store, verb: str, scope: ScopeKey = S) -> None:
    asked = Claim(scope, *HELD, ttl_us=60_000_000, stamp=draw())
    store.driver.run(lambda backend: getattr(backend, verb)(asked))


rarely_on_postgres = pytest.mark.parametrize(
    "rows", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)], indirect=True
)
only_sqlite = pytest.mark.parametrize("rows", ["sqlite"], indirect=True)


def sums(rows: Rows, table: str) -> list[Any]:
    return [each for (each,) in rows.execute(f"SELECT checksum FROM {table} ORDER BY pk")]


def refuses(ask: Callable[[], object]) -> None:
    with pytest.raises(Corrupt):
        ask()


def listed(verb: Callable[[], Any]) -> list[Any]:
    return list(verb())


def damaged(findings: list[Finding]) -> list[tuple[str, bool]]:
    return [(each.code, each.repaired) for each in findings]


def test_a_head_that_became_an_older_snapshot(rows: Rows) -> None:
    rows.store.scope("s").save({"n": 3})
    rows.execute(
        "UPDATE scopes SET head_seq = (SELECT seq FROM snapshots AS n WHERE n.id = 'id-1')"
        " WHERE fence IS NOT NULL"
    )
    before = rows.dump()
    with limpet.open(rows.url) as another:
        for store in (rows.store, another):  # also the one that changed it last
            scope = store.scope("s")
            for verb in (scope.history, scope.ids, scope.notes):
                refuses(partial(listed, verb))
            refuses(scope.load)
            refuses(scope.info)
            refuses(partial(scope.note, "a"))
            refuses(partial(scope.save, {"new": 1}))
            refuses(partial(scope.append, "log", [1]))
            refuses(partial(scope.set_note, "a", 2))
            refuses(partial(scope.fork, "id-2", scope_id="fork 2"))
            refuses(partial(claim, store, "renew"))
            assert [info.key.scope_id for info in store.scopes("s")] == ["fork"]
            assert store.find("only") is not None
    assert rows.dump() == before
    assert damaged(list(rows.store.check())) == [("scope_damaged", False)]


@rarely_on_postgres
def test_a_damaged_scope_or_session_can_be_deleted(rows: Rows) -> None:
    rows.execute("UPDATE scopes SET fence = 'another', next_seq = next_seq + 3")
    assert rows.store.scope("s", "fork").delete() == 1
    rows.execute("UPDATE sessions SET checksum = 7")
    assert rows.store.delete_session("s") == 3
    assert rows.store.delete_session("other") == 1
    assert list(rows.store.check()) == []
    assert rows.execute("SELECT 1 FROM sessions") == []


def test_every_verb_stores_checksums(rows: Rows) -> None:
    store, scope = rows.store, rows.store.scope("s")
    with limpet.open(rows.url) as another:
        for number in range(12):
            scope.append("log", [number])
            if number % 3 == 0:
                claim(store, "renew")
            if number % 4 == 0:
                scope.set_note("b", number)
            if number % 5 == 0:
                another.scope("s").fork("id-1", scope_id=f"fork of {number}")
        scope.save({"draft": 1}, keep=False)
        scope.save({"aside": 1}, head=False, id="aside")
        scope.save({"aside": 2}, id="aside", overwrite=True)
        scope.update("aside", lambda found: found.with_(status="x"))
        scope.delete_snapshot("aside")
        scope.prune(keep_last=4)
        scope.delete_note("b")
        store.scope("notes alone").set_note("a", 1)
        claim(store, "claim", ScopeKey("leased alone"))
        claim(another, "release")
        another.scope("s").fork(scope.save({"n": 0}).id, scope_id="last", patch={"n": 9})
        scope.save({"n": 1})
        assert list(another.check()) == []
    assert None not in sums(rows, "scopes") + sums(rows, "sessions")
    before = rows.dump()
    assert list(store.repair()) == []
    assert rows.dump() == before


# One bit.


def flipped(value: Any) -> Iterator[Any]:
    """Yield a value with each of its bits flipped; text as bytes."""
    if isinstance(value, int):
        for bit in range(64):
            unsigned = value % 2**64 ^ 1 << bit
            yield unsigned - 2**64 if unsigned >= 2**63 else unsigned
    else:
        for at, byte in enumerate(text := value.encode()):
            for bit in range(8):
                yield text[:at] + bytes([byte ^ 1 << bit]) + text[at + 1 :]


class Flip(NamedTuple):
    """One bit of the first row of a table; text is given as bytes."""

    table: str
    column: str
    value: Any
    before: Any

    def do(self, execute: Execute) -> None:
        new = "CAST(? AS TEXT)" if isinstance(self.value, bytes) else "?"
        execute(f"UPDATE {self.table} SET {self.column} = {new} WHERE pk = 1", (self.value,))

    def undo(self, execute: Execute) -> None:
        pk = self.value if self.column == "pk" else 1
        execute(f"UPDATE {self.table} SET {self.column} = ? WHERE pk = {pk}", (self.before,))

    @property
    def key(self) -> ScopeKey | None:
        """The name under which the scope is found now; None if that is no text."""
        if self.column not in NAMES:
            return S
        try:
            return S._replace(**{self.column: self.value.decode()})
        except UnicodeDecodeError:
            return None


COLUMNS = {
    "scopes": (
        *("head_seq", "tip_seq", "next_seq", "floor", "fence", "lease_owner", "lease_until"),
        *("kind", "scope_id", "checksum", "pk"),
    ),
    "sessions": ("session_id", "checksum", "pk"),
}


def flips(rows: Rows) -> Iterator[Flip]:
    for table, columns in COLUMNS.items():
        for column in columns:
            ((before,),) = rows.execute(f"SELECT {column} FROM {table} WHERE pk = 1")
            taken = {pk for (pk,) in rows.execute(f"SELECT pk FROM {table}")}
            for value in flipped(before):
                if column != "pk" or value not in taken:
                    yield Flip(table, column, value, before)


def answer(ask: Callable[[], Any]) -> str:
    try:
        return "right" if ask() else "absent"
    except Corrupt:
        return "corrupt"


@only_sqlite
@pytest.mark.parametrize("stride", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_every_bit_of_a_row(rows: Rows, stride: int) -> None:
    """What is asked by name is refused, or, by a name that no row has, not found."""
    backend = rows.backend
    every = list(flips(rows))
    assert len(every) > 1_000
    for flip in every[::stride]:
        flip.do(rows.execute)
        if (flip.table, flip.column) == ("sessions", "checksum"):
            assert backend.list_sessions(prefix="", after="", limit=9) == ["other"]
        else:
            is_moved = flip.column in NAMES or (flip.table, flip.column) == ("sessions", "pk")
            expected = "absent" if is_moved else "corrupt"
            assert answer(lambda: backend.read_info(S, None)) == expected, flip
            found = flip.key
            if found is not None and found != S:
                assert answer(partial(backend.read_info, found, None)) == "corrupt", flip
                assert answer(partial(backend.read_notes, found, ["a"])) == "corrupt", flip
            listed = backend.list_scopes(session_id=None, kind=None, prefix="", after=None, limit=9)
            assert not {info.key for info in listed} & {S, found}, flip
        flip.undo(rows.execute)
    assert answer(lambda: backend.read_info(S, None)) == "right"


@only_sqlite
@pytest.mark.parametrize("stride", [67, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.timeout(600)
def test_repair_undoes_one_bit(rows: Rows, stride: int) -> None:
    """Whatever the bit belongs to but the key: the row is again what it was."""
    before = rows.dump()
    chosen = [flip for flip in flips(rows) if flip.column != "pk"][::stride]
    assert chosen
    for flip in chosen:
        flip.do(rows.execute)
        found = [each for each in inspect(rows.backend) if each.code != "name_wrong"]
        assert f"{flip.table[:-1]}_damaged" in {each.code for each in found}, flip
        repaired = inspect(rows.backend, repair=True)
        assert all(each.repaired for each in repaired if each.code != "name_wrong"), flip
        assert rows.dump() == before, flip
        assert inspect(rows.backend) == []


# More than a bit.

OTHERS = {
    "head_seq": "head_seq - 1000", "tip_seq": "tip_seq - 1000", "next_seq": "next_seq + 1000",
    "floor": "'0198b0a4-1111-7111-8111-111111111111'", "fence": "'x'", "lease_owner": "'x'",
    "lease_until": "lease_until + 999999", "checksum": "checksum / 3", "scope_id": "'renamed'",
    "kind": "'renamed'", "family": "77777",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("rows", ["postgres"], indirect=True)
def test_every_column_of_a_scope(rows: Rows) -> None:
    key = S._replace(scope_id="fork")
    head, body = rows.backend.read_snapshots(key, [None])[0]
    for column, value in OTHERS.items():
        rows.execute(
            "UPDATE scopes SET fence = 'k', lease_owner = 'o', lease_until = 9, checksum = NULL"
            " WHERE scope_id = 'fork'"
        )
        assert list(rows.store.repair()) == []
        rows.execute(f"UPDATE scopes SET {column} = {value} WHERE scope_id = 'fork'")
        found = key._replace(**{column: "renamed"}) if column in NAMES else key
        for id in (None, head.id):
            assert answer(partial(rows.backend.read_snapshots, found, [id])) == "corrupt", column
            assert answer(partial(rows.backend.read_info, found, id)) == "corrupt", column
        listed = [info.key for info in rows.store.scopes()]
        assert listed == [ScopeKey("other"), S]
        assert [info.scope for info in rows.store.history()] == [ScopeKey("other"), S, S, S]
        codes = {each.code for each in rows.store.check()}
        assert codes >= {"scope_damaged"}
        (finding,) = list(rows.store.repair())
        assert (finding.code, finding.repaired) == ("scope_damaged", True)
        assert list(rows.store.check()) == []
        assert rows.backend.read_snapshots(found, [None]) == [(replace(head, scope=found), body)]
        if column in NAMES:
            before = getattr(key, column)
            rows.execute(f"UPDATE scopes SET {column} = ? WHERE {column} = 'renamed'", (before,))


@rarely_on_postgres
def test_repair_says_what_it_believes(rows: Rows) -> None:
    """The newest kept snapshot is the head, also if the head was another one; the lease ends."""
    scope = rows.store.scope("s")
    rows.execute("UPDATE scopes SET head_seq = 5, lease_owner = 'x' WHERE fence IS NOT NULL")
    (finding,) = [each for each in rows.store.repair() if each.code == "scope_damaged"]
    assert finding.repaired
    assert finding.scope == S
    assert "believes that the newest kept snapshot is the head, because" in finding.message
    head = scope.load()
    assert head is not None
    assert head.state == {"n": 2, "log": []}
    assert rows.backend.read_lease(S, now=0) is None
    assert scope.save({"n": 3}).parent_id == head.id
    assert list(rows.store.check()) == []

    scope.save({"draft": 1}, id="draft", keep=False)
    rows.execute("UPDATE scopes SET floor = 'x', head_seq = tip_seq WHERE scope_id = 'main'")
    said = [each.message for each in rows.store.repair() if each.code == "scope_damaged"]
    assert "believes that the draft is the head, because" in said[0]
    assert "believes that the newest kept snapshot is the head, because" in said[1]
    info = scope.info()
    assert info is not None
    assert info.id == "draft"


@rarely_on_postgres
def test_what_is_skipped_is_reported_by_an_export(rows: Rows) -> None:
    rows.execute("UPDATE scopes SET next_seq = next_seq + 5 WHERE scope_id = 'fork'")
    rows.execute("UPDATE sessions SET checksum = 5 WHERE session_id = 'other'")
    with pytest.raises(Corrupt):
        list(export_lines(rows.store))
    skipped: list[Finding] = []
    list(export_lines(rows.store, skipped=skipped.append))
    found = [(each.code, each.scope) for each in skipped]
    assert sorted(found, key=str) == [
        ("scope_damaged", ScopeKey("other")),
        ("scope_damaged", S._replace(scope_id="fork")),
    ]


# A store from before.


def test_a_store_of_version_2(rows: Rows) -> None:
    """It opens, works, and gets its checksums with the next writes and by repair."""
    rows.store.close()
    for table in ("scopes", "sessions"):
        rows.execute(f"ALTER TABLE {table} DROP COLUMN checksum")
    rows.execute("DELETE FROM schema_migrations WHERE version > 2")
    if rows.url.startswith("sqlite"):
        rows.execute("PRAGMA user_version = 2")
    with limpet.open(rows.url) as store:
        assert set(sums(rows, "scopes") + sums(rows, "sessions")) == {None}
        assert list(store.check()) == []
        head = store.scope("s").load()
        assert head is not None
        assert head.state == {"n": 2, "log": []}
        assert list(store.sessions()) == ["other", "s"]
        store.scope("s").append("log", [1])
        assert [each is None for each in sums(rows, "scopes")] == [False, True, True]
        store.scope("other").save({"n": 1})
        claim(store, "claim", S._replace(scope_id="fork"))
        assert None not in sums(rows, "scopes")
        assert list(store.repair()) == []
        assert None not in sums(rows, "sessions")
        before = rows.dump()
        assert list(store.repair()) == []
        assert rows.dump() == before
        rows.execute("UPDATE scopes SET head_seq = tip_seq - 1")
        refuses(store.scope("other").load)


@pytest.mark.parametrize("rows", ["postgres"], indirect=True)
def test_views_show_no_encrypted_values(rows: Rows) -> None:
    views = ("session_list", "scope_list", "snapshot_list", "note_list")
    for view in views:
        assert rows.execute(f"SELECT * FROM {view}")
    rows.execute("UPDATE snapshots SET labels = '\\x01ff', metadata = '\\x01ff'")
    rows.execute("UPDATE notes SET value = '\\x01ff'")
    for view in views:
        assert rows.execute(f"SELECT * FROM {view}")
    assert set(rows.execute("SELECT labels::text, metadata::text FROM snapshot_list")) == {
        (None, None)
    }
    assert rows.execute("SELECT value FROM note_list") == [(None,)]
