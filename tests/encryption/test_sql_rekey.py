"""`rekey`: everything is encrypted with the current key, while others write, whoever is killed."""

import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import InvalidInput, Store, Unavailable
from limpet.testing.kit import dump as records
from tests.encryption.keys import ONE, THREE, TWO, postgres_values, sqlite_values
from tests.encryption.rollbacks import Trace, untrue
from tests.encryption.test_sql_canary import CANARY, answers, fill
from tests.servers.postgres import Postgres, Schemas

ENGINES = ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)]


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        schemas: Schemas = request.getfixturevalue("schemas")
        return schemas.url()
    return f"sqlite:///{tmp_path / 'limpet.db'}?synchronous=off"


@pytest.fixture
def values(url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    def read() -> Iterator[bytes]:
        if url.startswith("sqlite"):
            yield from sqlite_values(tmp_path / "limpet.db")
        else:
            postgres: Postgres = request.getfixturevalue("postgres")
            with postgres.connect() as conn:
                yield from postgres_values(conn, request.getfixturevalue("schemas").name())

    return read


def test_a_plain_store_becomes_an_encrypted_one(url: str, values: Any, tmp_path: Path) -> None:
    with limpet.open(url) as store:
        fill(store)
        before, shown = records(store), answers(store)
        with pytest.raises(InvalidInput, match="without keys"):
            store.rekey()
    with limpet.open(url, keys=ONE, allow_plaintext=True) as store:
        assert answers(store) == shown
        assert store.rekey() > 100
        assert store.rekey() == 0
    if url.startswith("sqlite"):
        # What was plain may still be in free pages: docs/guides/encryption.md.
        with closing(sqlite3.connect(tmp_path / "limpet.db")) as conn:
            conn.execute("VACUUM")
    assert not [each for each in values() if CANARY.encode() in each]
    with limpet.open(url, keys=ONE) as store:
        assert records(store) == before
        assert answers(store) == shown


@pytest.mark.parametrize("seed", [1, 7])
def test_a_plain_store_may_be_written_to_before_it_is_encrypted(url: str, seed: int) -> None:
    with limpet.open(url) as store:
        trace = Trace(store, random.Random(seed))
        for _ in range(12):
            trace.step()
    with limpet.open(url, keys=ONE, allow_plaintext=True) as store:
        trace.store = store
        for _ in range(12):
            trace.step()
        before = records(store)
        store.rekey()
        assert records(store) == before
    with limpet.open(url, keys=ONE) as store:
        trace.store = store
        assert records(store) == before
        for _ in range(6):
            trace.step()
        assert not list(untrue(store, trace, set()))
        assert not list(store.check())


def test_an_old_key_is_not_needed_any_more(url: str) -> None:
    with limpet.open(url, keys=ONE) as store:
        fill(store)
        before, shown = records(store), answers(store)
    with limpet.open(url, keys=f"{TWO}\n{ONE}\n{THREE} user/2") as store:
        found = list(store.check())  # those of user/2, of which the key is another one
        assert {(each.code, each.scope and each.scope[0]) for each in found} == {
            ("keys_wrong", "user/2")
        }
        assert store.rekey() > 100
    with limpet.open(url, keys=f"{TWO}\n{ONE}\n{THREE} user/2\n{ONE} user/2") as store:
        assert store.rekey() > 1
        assert store.rekey() == 0
    with limpet.open(url, keys=f"{TWO}\n{THREE} user/2") as store:
        assert records(store) == before
        assert answers(store) == shown
        assert not list(store.check())


def test_others_write_meanwhile(url: str) -> None:
    """One process has the old key first, and reads its keys again when it meets the new one."""
    written: list[str] = []
    keys = [ONE]
    is_over = threading.Event()
    with limpet.open(url, keys=ONE) as store:
        fill(store)

    def write(store: Store, name: str) -> None:
        number = 0
        while not is_over.is_set() or number < 20:
            number += 1
            scope = store.scope("user/1", name if number % 2 else "chat")
            scope.append("messages", [f"{name} {number}"])
            scope.set_note(name, number)
            written.append(f"{name} {number}")

    with (
        limpet.open(url, keys=lambda: "\n".join(keys)) as late,
        limpet.open(url, keys=f"{TWO}\n{ONE}") as early,
    ):
        late.scope("user/1", "chat").load()
        keys.insert(0, TWO)
        threads = [
            threading.Thread(target=write, args=(late, "late")),
            threading.Thread(target=write, args=(early, "early")),
        ]
        for thread in threads:
            thread.start()
        counts = [early.rekey() for _ in range(3)]
        is_over.set()
        for thread in threads:
            thread.join()
        assert counts[0] > 100
        early.rekey()
    with limpet.open(url, keys=TWO) as store:
        assert not list(store.check())
        said: list[str] = []
        for name in ("chat", "late", "early"):
            found = store.scope("user/1", name).load()
            assert found
            said += found.state["messages"]
        assert set(written) <= set(said)


_REKEY = """
import sys, limpet
from limpet.backends.sql import rekeying

again, count = rekeying.encrypt_again, int(sys.argv[3])

def counted(*args, **named):
    global count
    done = again(*args, **named)
    count -= 1
    if not count:
        print("here", flush=True)
        sys.stdin.read()  # until it is killed, inside a transaction
    return done

rekeying.encrypt_again = counted
with limpet.open(sys.argv[1], keys=sys.argv[2]) as store:
    store.rekey()
print("done", flush=True)
"""


@pytest.mark.slow
def test_it_is_killed_and_repeated(url: str) -> None:
    with limpet.open(url, keys=ONE) as store:
        fill(store)
        before = records(store)
    both, killed = f"{TWO}\n{ONE}", 0
    for part in range(1, 9, 2):
        given = [sys.executable, "-c", _REKEY, url, both, str(part)]
        with subprocess.Popen(
            given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout
            killed += child.stdout.readline() == "here\n"
            child.kill()
        with limpet.open(url, keys=both) as store:
            assert records(store) == before
            assert not list(store.check())
    assert killed
    with limpet.open(url, keys=both) as store:
        store.rekey()
    with limpet.open(url, keys=TWO) as store:
        assert records(store) == before
        assert not list(store.check())


def test_labels_are_found_by_a_program_that_has_not_met_the_new_key(url: str) -> None:
    given = [ONE]
    labels = {"task": "tax"}
    with (
        limpet.open(url, keys=lambda: "\n".join(given)) as old,
        limpet.open(url, keys=f"{TWO}\n{ONE}") as new,
    ):
        for at in range(3):
            old.scope(f"s-{at}").save(at, labels=labels)
        given.insert(0, TWO)
        new.rekey()
        assert len(list(old.scope("s-0").history(labels=labels))) == 1
        assert len(list(old.history(labels=labels))) == 3


def test_a_writer_that_goes_on_with_an_older_key_is_reported(url: str) -> None:
    done = threading.Event()
    with (
        limpet.open(url, keys=f"{ONE}\n{TWO}") as old,
        limpet.open(url, keys=f"{TWO}\n{ONE}") as new,
    ):

        def write() -> None:
            for at in count():
                if done.is_set():
                    return
                # Not kept: else each pass has more to read than the one before.
                old.scope(f"s-{at % 40}").save(at, keep=False)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            # Now and then it may find nothing that the writer has just written.
            with pytest.raises(Unavailable, match="keep encrypting with an older key"):
                max(new.rekey() for _ in count())
        finally:
            done.set()
            writer.join()
            old.close()  # it may be about to roll what it wrote
        new.rekey()
        assert new.rekey() == 0


@pytest.mark.parametrize("before", [ONE, None])
def test_labels_get_the_new_key_with_a_snapshot_that_is_updated(
    url: str, before: str | None
) -> None:
    labels = {"task": "tax"}
    options: dict[str, Any] = {} if before is None else {"keys": before}
    with limpet.open(url, **options) as store:
        store.scope("s").save(1, id="a", labels=labels)
    with limpet.open(url, keys=f"{TWO}\n{ONE}", allow_plaintext=True) as store:
        store.scope("s").update("a", lambda found: found.with_(state=2))
        store.rekey()
    with limpet.open(url, keys=TWO) as store:
        assert [info.id for info in store.history(labels=labels)] == ["a"]
        assert not list(store.check())
