"""Promise 10 on every engine: damage stays where it is, says where that is, and others go on.

It may be of the facts of a snapshot, of its state, of a segment, of a note, or of the row or head
of the whole scope.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

import limpet
from limpet import Corrupt, Scope, ScopeKey, Store
from tests.servers.http import Http

ADVICE = "run `limpet check`, and see docs/check.md#salvage"
IDS = ["id-0", "id-1", "id-2", "id-3"]
HEAD, GOOD = IDS[-1], IDS[:-1]
LABELS = {"kind": "x"}
TABLES = ("scopes", "snapshots", "tails", "segments", "labels", "notes")
PK = "(SELECT pk FROM scopes WHERE session_id = 'chat')"
SEQ = f"(SELECT seq FROM snapshots WHERE id = '{HEAD}' AND scope_pk = {PK})"


def flipped(column: str) -> str:
    """Return an expression for a value of bytes of which the middle one has become another."""
    start = f"substr({column}, 1, length({column}) / 2)"
    rest = f"substr({column}, length({column}) / 2 + 2)"
    middle = f"substr({column}, length({column}) / 2 + 1, 1)"
    return f"CAST({start} || CASE {middle} WHEN x'31' THEN x'32' ELSE x'31' END || {rest} AS BLOB)"


BAD_TEXT = "CAST(x'ff80' AS TEXT)"
ON_SQLITE = {
    "facts": [
        f"metadata = {flipped('metadata')}",
        f"labels = {flipped('labels')}",
        f"status = {BAD_TEXT}",
        "status = 'good' || char(0)",
        f"nonce = {BAD_TEXT}",
        f"parent_id = {BAD_TEXT}",
        "forked_from = x'ff'",
        f"created_at = {2**63 - 1}",
        "size = -1",
    ],
    "state": [f"body = {flipped('body')}", "encoding = 1 - encoding", "encoding = 77", "base = 1"],
    "scope": ["head = -1", "head = head - 1"],
    "segment": [f"body = {flipped('body')}"],
    "note": ["value = x'37'", "value = x''"],
}
ON_SQL = {
    "facts": ["checksum = checksum + 1"],
    "state": [
        "checksum = checksum + 1",
        "(encoding, body, checksum) = (SELECT encoding, body, checksum FROM tails AS o"
        " WHERE o.seq < tails.seq ORDER BY o.seq DESC LIMIT 1)",
    ],
    "scope": [
        "head = 999999",
        f"head = (SELECT max(seq) FROM snapshots WHERE scope_pk <> {PK})",
    ],
    "segment": ["checksum = checksum + 1"],
    "note": ["checksum = checksum + 1", "updated_at = updated_at + 1"],
}
ROWS = {
    "facts": f"UPDATE snapshots SET {{}} WHERE seq = {SEQ}",
    "state": f"UPDATE tails SET {{}} WHERE seq = {SEQ}",
    "scope": f"UPDATE scopes SET {{}} WHERE pk = {PK}",
    "segment": f"UPDATE segments SET {{}} WHERE scope_pk = {PK}",
    "note": f"UPDATE notes SET {{}} WHERE scope_pk = {PK} AND name = 'a'",
}


class Place:
    """A store of two sessions, and ways to damage `chat`. It must not show in `other`."""

    def __init__(self, url: str, run: Callable[[str], list[Any]] | None = None) -> None:
        self.url = url
        self._run = run
        with limpet.open(self.url) as store:
            for name in ("chat", "other"):
                scope = store.scope(name)
                for id in IDS:
                    scope.save(state_of(id), id=id, labels=LABELS, metadata={"m": 1}, status="good")
                    scope.set_note("on it", id, on=id)
                for note in "ab":
                    scope.set_note(note, f"the note {note}")

    def ways(self, kind: str) -> list[Callable[[], object]]:
        """Return the ways to damage something of `chat`; of a snapshot, of the head."""
        if self._run is None:
            return [partial(self._flip, kind)]
        changes = ON_SQL[kind] + (ON_SQLITE[kind] if self.url.startswith("sqlite") else [])
        statements = [ROWS[kind].format(change) for change in changes]
        if kind == "state":
            statements.append(f"DELETE FROM tails WHERE seq = {SEQ}")
        return [partial(self.run, each) for each in statements]

    def run(self, statement: str) -> list[Any]:
        assert self._run is not None
        return self._run(statement)

    def _flip(self, kind: str) -> None:
        path = next(self._root.rglob("chat/**/head"))
        data = path.read_bytes()
        text = {"scope": '"', "state": f'"{HEAD}","text"', "note": "the note a"}[kind]
        at = data.index(text.encode()) + (30 if kind == "state" else 0)
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])

    @property
    def _root(self) -> Path:
        return Path(self.url.removeprefix("file://"))

    def dump(self) -> list[Any]:
        """Return every row of every table, or every file."""
        if self._run is None:
            return [(path, path.read_bytes()) for path in self._root.rglob("*") if path.is_file()]
        return [sorted(map(repr, self._run(f"SELECT * FROM {table}"))) for table in TABLES]


@pytest.fixture(params=["sqlite", "postgres", "folder"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Place]:
    """Each call makes a new one."""
    numbers = iter(range(99))

    def make() -> Place:
        path = tmp_path / f"{next(numbers)}"
        if request.param == "folder":
            return Place(f"file://{path}")
        if request.param == "sqlite":
            return Place(f"sqlite:///{path}.db", partial(run_sqlite, path.with_suffix(".db")))
        schemas, server = (request.getfixturevalue(each) for each in ("schemas", "postgres"))

        def run(statement: str) -> list[Any]:
            with server.connect() as db:
                db.execute(f"SET search_path = {schemas.name(path.name)}")
                done = db.execute(statement)
                return list(done.fetchall()) if done.description else []

        return Place(schemas.url(path.name), run)

    return make


def run_sqlite(path: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.text_factory = bytes
        return db.execute(statement).fetchall()


def state_of(id: str) -> dict[str, Any]:
    """Nothing in common with the others, so that each is stored whole."""
    return {"id": id, "text": Random(id).randbytes(300).hex(), "list": []}


def needs_facts(chat: Scope) -> list[Callable[[], object]]:
    """Return what needs to know which snapshot is the head: the scope is known, and no id."""
    return [chat.load, chat.info, lambda: chat.save({}), lambda: chat.append("list", [1])]


def needs_scope(chat: Scope) -> Iterator[Callable[[], object]]:
    yield from (lambda: chat.load(HEAD), lambda: chat.delete(expect="0.0.x"))
    for options in ({"keep": False}, {"head": False}, {"expect": None}, {"id": HEAD}):
        yield partial(chat.save, {"new": 1}, **options)
    yield partial(chat.save, {"new": 1}, id=HEAD, overwrite=True)


def needs_state(chat: Scope) -> Iterator[Callable[[], object]]:
    """Yield what needs the state of the head."""
    yield chat.load
    yield lambda: chat.load(HEAD)
    yield lambda: list(chat.load_many(IDS))
    yield lambda: chat.diff(HEAD, HEAD)
    yield lambda: chat.update(HEAD, lambda found: found.with_(status="x"))
    yield lambda: chat.fork(HEAD)
    yield lambda: chat.fork(HEAD, patch={"a": 1})
    yield lambda: chat.fork(HEAD, to="another")
    yield lambda: chat.restore(HEAD)
    yield lambda: chat.append("list", [1])
    yield lambda: chat.redact("/text")
    yield partial(asyncio.run, load_async(chat))


async def load_async(chat: Scope) -> None:
    await Store(chat.driver).aio.scope(*chat.key).load()


def check_refused(attempts: Iterable[Callable[[], object]], *ids: str | None) -> None:
    """See that each is refused, and that it is said where the damage is, and what to do."""
    for attempt in attempts:
        with pytest.raises(Corrupt) as raised:
            attempt()
        assert raised.value.scope == ScopeKey("chat")
        assert raised.value.id in (ids or (None,))
        assert str(raised.value).count("limpet check") == 1
        assert ADVICE in str(raised.value)
        assert "session=`chat` scope=`main`" in str(raised.value)


def everything(store: Store, session: str) -> list[Any]:
    """Return all that can be listed of a session, and the states that can be loaded."""
    scope = store.scope(session)
    states: list[Any] = []
    for id in IDS:
        with suppress(Corrupt):
            states.append(scope.load(id))
    return [list(scope.history()), list(scope.ids()), states, *scope.notes(), *scope.notes(on=IDS)]


def each_way(place: Callable[[], Place], kind: str) -> Iterator[tuple[Place, Callable[[], object]]]:
    """Yield a place for each way to damage it."""
    there, way = place(), 0
    assert there.ways(kind)
    while way < len(there.ways(kind)):
        yield there, there.ways(kind)[way]
        there, way = place(), way + 1


# On files the facts of the newest snapshots are in the head, as what is known of the scope is.
KINDS = [("folder", "state"), ("folder", "scope")]
KINDS += product(("sqlite", "postgres"), ("facts", "state", "scope"))


@pytest.mark.parametrize(("place", "kind"), KINDS, indirect=["place"])
def test_others_go_on(place: Callable[[], Place], kind: str) -> None:
    for there, damage in each_way(place, kind):
        check_life(there, kind, damage)


def check_life(there: Place, kind: str, damage: Callable[[], object]) -> None:
    with limpet.open(there.url) as store:
        before, other = everything(store, "chat"), everything(store, "other")
    damage()
    damaged = there.dump()
    with limpet.open(there.url) as store:
        chat = store.scope("chat")
        if kind == "state":  # its facts are whole, and no list reads states
            check_refused(needs_state(chat), HEAD)
            assert list(chat.history()) == before[0]
        else:
            check_refused(needs_facts(chat))
            check_refused(needs_scope(chat), None, HEAD)
        if kind == "facts":
            check_refused([lambda: chat.load(HEAD), lambda: chat.info(HEAD)], HEAD)
            for which in ({}, {"labels": LABELS}, {"status": "good"}):
                assert list(chat.history(**which)) == before[0][1:]
        if kind != "scope":
            assert [found.id for found in chat.load_many(GOOD)] == GOOD
            assert [info.key.session_id for info in store.scopes()] == ["chat", "other"]
            assert list(store.sessions()) == ["chat", "other"]
            found = store.find(GOOD[0], prefix="chat")
            assert found is not None
        else:
            check_refused([lambda: list(chat.history()), lambda: list(chat.ids())])
            listed = ["chat"] * there.url.startswith("file") + ["other"]
            assert list(store.sessions()) == listed
            assert [info.key.session_id for info in store.scopes()] == listed
        assert there.dump() == damaged
        assert everything(store, "other") == other

        if kind == "scope":
            chat.delete()
            assert chat.save({"new": 1}, expect=None).parent_id is None
        else:
            assert chat.delete_snapshot(HEAD) == 1
            head = chat.load()
            assert head is not None
            assert head.state == state_of(GOOD[-1])
            assert [info.id for info in chat.history()] == GOOD[::-1]
            assert list(chat.notes(on=HEAD)) == []
            assert chat.save({"new": 1}, id=HEAD).parent_id == GOOD[-1]
        assert everything(store, "other") == other
        assert [each for each in store.check() if each.severity == "error"] == []


def rolled(scope: Scope, prefix: str) -> list[str]:
    """Save until the tail has moved into a segment; return the ids."""
    return [scope.save(state_of(f"{prefix}{n}"), id=f"{prefix}{n}").id for n in range(70)]


def test_saves_go_past_a_damaged_state(place: Callable[[], Place]) -> None:
    """Also when the tail is rolled over it; others can be deleted, and it can be replaced."""
    for there, damage in each_way(place, "state"):
        damage()
        with limpet.open(there.url) as store:
            later = rolled(store.scope("chat"), "new-")
        with limpet.open(there.url) as store:
            chat = store.scope("chat")
            check_refused([partial(chat.load, HEAD)], HEAD)
            check_states(chat, [*GOOD, *later])
            assert chat.delete_snapshot(GOOD[1]) == chat.delete_snapshot(later[5]) == 1
            check_refused([partial(chat.load, HEAD)], HEAD)
            check_states(chat, [GOOD[0], GOOD[2], *later[:5], *later[6:]])
            chat.save(state_of(HEAD), id=HEAD, overwrite=True)
            check_states(chat, [GOOD[0], GOOD[2], HEAD, *later[:5], *later[6:]])
            assert chat.prune(keep_last=1).count == 3 + 68
            check_states(chat, later[-1:])
            assert [each for each in store.check() if each.severity == "error"] == []


@pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)
def test_a_damaged_segment(place: Callable[[], Place]) -> None:
    """What is not in it goes on; what is can be replaced and deleted."""
    for there, damage in each_way(place, "segment"):
        with limpet.open(there.url) as store:
            chat = store.scope("chat")
            saved = rolled(chat, "old-")
            while not there.run(f"SELECT 1 FROM segments WHERE scope_pk = {PK}"):
                saved += rolled(chat, f"old-{len(saved)}-")  # the roll is in the background
            facts = list(chat.history())
        damage()
        with limpet.open(there.url) as store:
            later = rolled(store.scope("chat"), "new-")
        with limpet.open(there.url) as store:
            chat = store.scope("chat")
            for id in (IDS[0], HEAD):
                check_refused([partial(chat.load, id)], id)
            check_states(chat, later)
            assert list(chat.history())[len(later) :] == facts
            assert chat.delete_snapshot(IDS[0]) == chat.delete_snapshot(later[0]) == 1
            chat.save(state_of("again"), id=HEAD, overwrite=True)
            found = chat.load(HEAD)
            assert found is not None
            assert found.state == state_of("again")
            check_states(chat, later[1:])
            assert chat.prune(keep_last=1).count == len([*IDS, *saved, *later]) - 3
            check_states(chat, later[-1:])
            assert [each for each in store.check() if each.severity == "error"] == []


def check_states(chat: Scope, ids: list[str]) -> None:
    assert [found.state for found in chat.load_many(ids)] == [*map(state_of, ids)]


def test_a_damaged_note(place: Callable[[], Place]) -> None:
    """It is not listed and not overwritten, and can be deleted."""
    for there, damage in each_way(place, "note"):
        with limpet.open(there.url) as store:
            other = everything(store, "other")
        damage()
        damaged = there.dump()
        with limpet.open(there.url) as store:
            chat = store.scope("chat")
            check_refused(needs_note(chat))
            assert [note.name for note in chat.notes()] == ["b"]
            assert there.dump() == damaged
            check_states(chat, IDS)
            assert everything(store, "other") == other
            assert chat.delete_note("a") == 1
            assert chat.set_note("a", 5) is not None
            assert [note.name for note in chat.notes()] == ["a", "b"]
            assert list(store.check()) == []


def needs_note(chat: Scope) -> list[Callable[[], object]]:
    writes = [partial(chat.set_note, "a", value) for value in (5, lambda _: 5)]
    return [lambda: chat.note("a"), *writes]


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_the_same_is_said_over_http(place: Callable[[], Place], http: Http) -> None:
    there = place()
    there.ways("state")[0]()
    with limpet.open(http.mount(there.url)) as store:
        check_refused(needs_state(store.scope("chat")), HEAD)


def test_after_damage_was_noticed_nothing_builds_on_it(place: Callable[[], Place]) -> None:
    """Not even in the process that has the state in memory; a whole state can be saved."""
    there = place()
    with limpet.open(there.url) as store:
        chat = store.scope("chat")
        chat.save(state_of(HEAD), id=HEAD, overwrite=True)
        there.ways("state")[0]()
        check_refused([lambda: chat.load(HEAD)], HEAD)
        check_refused([lambda: chat.append("list", ["next"])], HEAD)
        chat.save({"list": ["next"]}, id="whole")
    with limpet.open(there.url) as store:
        found = store.scope("chat").load()
        assert found is not None
        assert found.state == {"list": ["next"]}


def test_a_store_that_cannot_be_opened_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    Place(f"sqlite:///{path}")
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(Corrupt) as raised:
        limpet.open(str(path))
    assert ADVICE in str(raised.value)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_snapshot_in_the_wrong_scope(place: Callable[[], Place]) -> None:
    """It belongs neither to that scope nor to its own."""
    there = place()
    with limpet.open(there.url) as store:
        store.scope("new").save({"a": 1}, id="a")
    to = "(SELECT pk FROM scopes WHERE session_id = 'new')"
    there.run(f"UPDATE snapshots SET scope_pk = {to} WHERE seq = {SEQ}")
    with limpet.open(there.url) as store:
        chat, new = store.scope("chat"), store.scope("new")
        assert list(new.ids()) == ["a", HEAD]
        assert [info.id for info in new.history()] == ["a"]
        assert chat.load(HEAD) is None
        check_refused([chat.load, lambda: chat.save({"new": 1})])
        with pytest.raises(Corrupt):
            new.load(HEAD)
        assert new.delete_snapshot(HEAD) == 1
        assert chat.delete() == len(GOOD)
        assert chat.save({"new": 1}).parent_id is None


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_the_body_of_a_head_is_verified_also_if_its_state_is_known(
    place: Callable[[], Place],
) -> None:
    """The process that saved it does not read what is below it; every other one does."""
    there = place()
    state = {"text": Random(1).randbytes(4_000).hex()}
    with limpet.open(there.url) as store, limpet.open(there.url) as other:
        chat = store.scope("chat")
        for number in range(3):
            chat.save({**state, "n": number}, id=f"n-{number}")
        flip = f"UPDATE tails SET body = {flipped('body')} WHERE seq = "
        there.run(flip + SEQ.replace(HEAD, "n-0"))
        head = chat.load()
        assert head is not None
        assert head.state == {**state, "n": 2}
        with pytest.raises(Corrupt):
            other.scope("chat").load()
        with pytest.raises(Corrupt):
            chat.load("n-2")
        there.run(flip + SEQ.replace(HEAD, "n-2"))
        with pytest.raises(Corrupt):
            chat.load()
