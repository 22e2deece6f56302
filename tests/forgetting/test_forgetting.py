"""After `redact` and deletes nothing stored has the text, nor has any file its bytes."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

import limpet
from limpet import JSON, Store
from limpet.storage import SHARED, WHOLE, ZSTD
from tests.forgetting.canary import (
    OTHER,
    REPLACEMENT,
    SESSION,
    everything,
    fill,
    fill_for_a_while,
    held,
    new_canary,
    replaced,
    traces,
)
from tests.forgetting.engines import Engine, Folder, InMemory, OnPostgres, OnS3, Sqlite
from tests.servers.postgres import Postgres
from tests.servers.service import Service

T = TypeVar("T")
CANARY = new_canary(1)


def has_canary(path: str, value: JSON) -> bool:
    return isinstance(value, str) and CANARY in value


def opened(engine: Engine) -> Store:
    store = limpet.open(engine.url)
    backend: Any = store.driver.opened.backend
    backend._roller = None  # tails are rolled at once
    return store


@contextmanager
def forgotten(
    engine: Engine, write: Callable[[Store, str], T], *, also: tuple[str, ...] = ()
) -> Iterator[tuple[Store, T]]:
    """Fill a store; after the block, look for the canary, and other texts, everywhere."""
    with opened(engine) as store:
        store.scope(OTHER).save({"kept": "as it is"}, labels={"l": "1"})
        written = write(store, CANARY)
        untouched = everything(store, OTHER)
        backend = store.driver.opened.backend
        found = {*traces(CANARY, engine.stored(store)), *traces(CANARY, held(backend))}
        assert found, "there is nothing to forget"
        if isinstance(engine, OnPostgres):
            engine.analyze()

        yield store, written

        assert list(traces(CANARY, held(backend))) == []
        for text in (CANARY, *also):
            assert list(traces(text, engine.stored(store))) == []
        store.compact()
        for text in (CANARY, *also):
            assert list(traces(text, engine.raw(store))) == []
        assert [each for each in store.check() if each.severity != "info"] == []
        assert everything(store, OTHER) == untouched


def see_redacted(engine: Engine) -> None:
    with forgotten(engine, fill) as (store, scopes):
        expected = replaced(everything(store, SESSION), CANARY)
        for scope in scopes:
            scope.redact(has_canary, replacement=REPLACEMENT)
            assert scope.redact(has_canary, replacement=REPLACEMENT) == limpet.Redacted(0, 0)
        assert everything(store, SESSION) == expected
    if not isinstance(engine, InMemory):
        with limpet.open(engine.url) as store:
            assert everything(store, SESSION) == expected


def see_deleted(engine: Engine) -> None:
    """The name of the session is gone too: from each table, index and pointer."""
    with forgotten(engine, fill, also=(SESSION,)) as (store, _):
        store.delete_session(SESSION)
        assert list(store.sessions()) == [OTHER]


def see_pruned(engine: Engine) -> None:
    with forgotten(engine, fill_for_a_while) as (_, chat):
        chat.save({"all": CANARY}, id="late")
        fork = chat.fork("late", scope_id="fork")
        chat.save({"all": ""})
        chat.delete_snapshot("late")
        fork.delete()
        chat.prune(keep_last=5)
        assert len(list(chat.history())) == 5


Case = Callable[[Engine], None]
CASES = pytest.mark.parametrize("see", [see_redacted, see_deleted, see_pruned])


@CASES
def test_memory(see: Case) -> None:
    see(InMemory())


@CASES
def test_sqlite(see: Case, tmp_path: Path) -> None:
    see(Sqlite(tmp_path))


@CASES
def test_folder(see: Case, tmp_path: Path) -> None:
    see(Folder(tmp_path, "?sync=false"))


@pytest.mark.slow
@CASES
def test_compressed_folder(see: Case, tmp_path: Path) -> None:
    see(Folder(tmp_path, "?compress=zstd"))


@pytest.mark.slow
@CASES
def test_postgres(see: Case, postgres: Postgres, postgres_url: str) -> None:
    see(OnPostgres(postgres, postgres_url))


@pytest.mark.slow
@CASES
def test_s3(see: Case, seaweedfs: Service, tmp_path: Path) -> None:
    see(OnS3(seaweedfs, tmp_path.name))


def test_what_is_looked_through_has_all_forms(tmp_path: Path) -> None:
    """Otherwise the tests above would prove less than they say."""
    sqlite, folder = Sqlite(tmp_path), Folder(tmp_path, "?sync=false")
    for engine in (sqlite, folder):
        with opened(engine) as store:
            fill(store, CANARY)
    with closing(sqlite3.connect(sqlite.path)) as db:
        forms = set(db.execute("SELECT encoding, base IS NULL FROM tails"))
        ((rolled, shared),) = db.execute(
            "SELECT (SELECT count(*) FROM segments), (SELECT count(*) FROM shared)"
        ).fetchall()
    assert forms >= {(WHOLE, 1), (WHOLE, 0), (ZSTD, 1), (SHARED, 1)}
    assert rolled
    assert shared
    assert list(folder.root.rglob("segments/*"))
