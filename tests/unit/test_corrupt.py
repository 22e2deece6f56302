"""A `Corrupt` says which scope and snapshot it is about, and what to do; on every engine."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

import limpet
from limpet import Corrupt, Scope, Store, opening
from limpet.model import ANY
from tests.servers.http import Http
from tests.servers.postgres import Postgres, Schemas
from tests.servers.service import Service

ADVICE = "run `limpet check`, and see docs/check.md#salvage"
STATE_OF_HEAD = "UPDATE tails SET checksum = 0 WHERE seq = (SELECT max(seq) FROM snapshots)"
ROW_OF_HEAD = "UPDATE snapshots SET checksum = 0 WHERE id = 'last'"


class Place:
    """A store, and how to damage it: the state of the last snapshot, or what lists it."""

    def __init__(self, url: str, run: Callable[[str], object] | None = None) -> None:
        self.url = url
        self._run = run

    def damage(self, *, facts: bool = False) -> None:
        if self._run is not None:
            self._run(ROW_OF_HEAD if facts else STATE_OF_HEAD)
            return
        with closing(opening.open_files(self.url)) as bucket:
            (key,) = (each.key for each in bucket.list("", limit=99) if each.key.endswith("/head"))
            (found,) = bucket.get([key])
            assert found is not None
            at = 60 if facts else len(found.data) - 20
            spoiled = found.data[:at] + bytes([found.data[at] ^ 1]) + found.data[at + 1 :]
            bucket.put(key, spoiled, expect=ANY)


@pytest.fixture(params=["sqlite", "postgres", "folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "folder":
        return Place(f"file://{tmp_path}/folder")
    if request.param == "s3":
        service: Service = request.getfixturevalue("seaweedfs")
        return Place(service.store_url(tmp_path.name))
    if request.param == "sqlite":

        def run(statement: str) -> None:
            with closing(sqlite3.connect(tmp_path / "agents.db", isolation_level=None)) as db:
                db.execute(statement)

        return Place(f"sqlite:///{tmp_path}/agents.db", run)
    schemas: Schemas = request.getfixturevalue("schemas")
    server: Postgres = request.getfixturevalue("postgres")

    def run_there(statement: str) -> None:
        with server.connect() as db:
            db.execute(f"SET search_path = {schemas.name()}")
            db.execute(statement)

    return Place(schemas.url(), run_there)


def state_of(id: str) -> dict[str, Any]:
    """Nothing in common with the others, so that each is stored whole."""
    return {"id": id, "text": Random(id).randbytes(300).hex(), "list": []}


def fill(store: Store) -> None:
    for id in ("first", "last"):
        store.scope("chat").save(state_of(id), id=id)


def attempts(chat: Scope) -> Iterator[Callable[[], object]]:
    """Yield all that needs the state of the head, `last`."""
    yield chat.load
    yield lambda: chat.load("last")
    yield lambda: list(chat.load_many(["last"]))
    yield lambda: chat.diff("last", "last")
    yield lambda: chat.update("last", lambda found: found.with_(status="x"))
    yield lambda: chat.fork("last")
    yield lambda: chat.fork("last", patch={"a": 1})
    yield lambda: chat.fork("last", to="another")
    yield lambda: chat.restore("last")
    yield lambda: chat.append("list", [1])
    yield lambda: chat.redact("/text")


def check(raised: Corrupt, id: str | None) -> None:
    assert (raised.scope, raised.id) == (limpet.ScopeKey("chat"), id)
    assert ADVICE in str(raised)
    assert "session=`chat` scope=`main`" in str(raised)


def test_whoever_needs_a_damaged_state_learns_where_it_is(place: Place) -> None:
    with limpet.open(place.url) as store:
        fill(store)
    place.damage()
    with limpet.open(place.url) as store:
        for attempt in attempts(store.scope("chat")):
            with pytest.raises(Corrupt) as raised:
                attempt()
            check(raised.value, "last")

        async def load() -> None:
            await store.aio.scope("chat").load()

        with pytest.raises(Corrupt) as raised:
            asyncio.run(load())
        check(raised.value, "last")


def test_damaged_facts_are_those_of_the_id_that_is_asked_for(place: Place) -> None:
    """Without one the scope is known, and which snapshot is its head cannot be read."""
    with limpet.open(place.url) as store:
        fill(store)
    place.damage(facts=True)
    with limpet.open(place.url) as store:
        chat = store.scope("chat")
        without_id: list[Callable[[], object]] = [
            chat.load,
            chat.info,
            lambda: chat.save({}),
            lambda: chat.append("a", []),
        ]
        for attempt in without_id:
            with pytest.raises(Corrupt) as raised:
                attempt()
            check(raised.value, None)
        for attempt in (lambda: chat.load("last"), lambda: chat.info("last")):
            with pytest.raises(Corrupt) as raised:
                attempt()
            check(raised.value, "last")


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_the_same_is_said_over_http(place: Place, http: Http) -> None:
    with limpet.open(place.url) as store:
        fill(store)
    place.damage()
    with limpet.open(http.mount(place.url)) as store:
        for attempt in attempts(store.scope("chat")):
            with pytest.raises(Corrupt) as raised:
                attempt()
            check(raised.value, "last")
            assert str(raised.value).count("limpet check") == 1


def test_a_damaged_note_names_its_scope(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    with limpet.open(str(path)) as store:
        store.scope("chat").set_note("title", "Lisbon")
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("UPDATE notes SET value = x'31'")
        with pytest.raises(Corrupt) as raised:
            store.scope("chat").note("title")
        check(raised.value, None)


def test_a_store_that_cannot_be_opened_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    with limpet.open(str(path)) as store:
        fill(store)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(Corrupt) as raised:
        limpet.open(str(path))
    assert ADVICE in str(raised.value)


def test_after_damage_was_noticed_nothing_builds_on_it(place: Place) -> None:
    """Not even in the process that has the state in memory; a whole state can be saved."""
    with limpet.open(place.url) as store:
        chat = store.scope("chat")
        texts: list[limpet.JSON] = [Random(n).randbytes(5_000).hex() for n in range(3)]
        for text in texts:
            chat.append("list", [text])
        place.damage()
        with pytest.raises(Corrupt):
            chat.load()
        with pytest.raises(Corrupt):
            chat.append("list", ["next"])
        chat.save({"list": [*texts, "next"]})
    with limpet.open(place.url) as store:
        found = store.scope("chat").load()
        assert found is not None
        assert found.state == {"list": [*texts, "next"]}
