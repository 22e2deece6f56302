"""A latest that is damaged: the newest good snapshot stands in for it, and everybody is told."""

import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

import limpet
from limpet import Corrupt, Unavailable
from limpet.compat.strands import FileStorage, SessionError, Snapshot, StoreStorage
from limpet.compat.strands.manager import SessionManager
from limpet.compat.strands.store import AnyLocation, BaseStorage
from tests.compat.strands.kit import close
from tests.compat.strands_manager.hands import (
    AGENT,
    PLACE,
    SESSION,
    Plain,
    latest_of,
    turn_of,
)
from tests.present import present

SNAPSHOTS = f"{SESSION}/scopes/agent/{AGENT}/snapshots"
LATEST = f"{SNAPSHOTS}/snapshot_latest.json"


class Place(NamedTuple):
    """A storage, and how a snapshot in it is damaged (None: the latest)."""

    storage: BaseStorage
    harm: Callable[[str | None], None]


def key_of(id: str | None) -> str:
    return LATEST if id is None else f"{SNAPSHOTS}/immutable_history/snapshot_{id}.json"


def in_folder(folder: Path) -> Place:
    def harm(id: str | None) -> None:
        (folder / key_of(id)).write_bytes(b"{")

    return Place(FileStorage(folder), harm)


def in_tables(folder: Path, facts: bool) -> Place:
    path = folder / "store.db"
    change = "snapshots SET status = 'other'" if facts else "tails SET body = x'2a'"

    def harm(id: str | None) -> None:
        which = "NOT kept" if id is None else f"id = '{id}'"
        query = f"UPDATE {change} WHERE seq = (SELECT seq FROM snapshots WHERE {which})"
        with closing(sqlite3.connect(path)) as conn:
            assert conn.execute(query).rowcount == 1
            conn.commit()

    return Place(StoreStorage(limpet.open(f"sqlite:///{path}", synchronous="off")), harm)


@pytest.fixture(params=["directory", "sqlite", "sqlite facts"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Where the damage is: other engines notice it as well, which the conformance suite shows."""
    engine, _, facts = request.param.partition(" ")
    place = in_folder(tmp_path) if engine == "directory" else in_tables(tmp_path, bool(facts))
    yield place
    close(place.storage)


def text(letter: str) -> str:
    """Return a text that has nothing in common with others, so that each state stands alone."""
    return letter + secrets.token_hex(200)


async def fill(storage: BaseStorage) -> tuple[list[str], list[str]]:
    """Save three states to history and a fourth as the latest; return the ids and the messages."""
    manager, agent, ids = SessionManager(storage, SESSION), Plain(), []
    texts = [text(letter) for letter in "abcd"]
    for each in texts[:3]:
        agent.messages = [each]
        ids.append(await manager.save(agent))
    agent.messages = [texts[3]]
    await manager.save_latest(agent)
    return ids, texts


async def test_a_damaged_latest_falls_back_to_history(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    storage, told = place.storage, list[Exception]()
    ids, texts = await fill(storage)
    place.harm(None)
    place.harm(ids[2])
    agent, manager = Plain(), SessionManager(storage, SESSION, on_error=told.append)
    async with manager.invocation(agent) as turn:
        answer = agent.hear("on")

    assert (answer, agent.messages) == (2, [texts[1], "on"])
    assert turn.restored is not None
    assert (turn.restored.fallen_back, turn.restored.snapshot_id) == (True, ids[1])
    assert isinstance(turn.restored.cause, SessionError)
    assert isinstance(turn.restored.cause.__cause__, Corrupt)
    assert told[0] is turn.restored.cause
    assert "the latest is damaged: restored from history" in caplog.text
    assert (turn.saved, turn.error) == (True, None)
    assert (await latest_of(storage)).data == {"messages": [texts[1], "on"]}

    again = SessionManager(storage, SESSION)
    assert [id for id in await again.list_snapshot_ids(agent) if id != ids[2]] == ids[:2]
    restored = present(await again.restore(Plain()))
    assert not restored.fallen_back


async def test_without_a_good_snapshot_nothing_is_overwritten(place: Place) -> None:
    storage = place.storage
    manager, agent = SessionManager(storage, SESSION), Plain()
    agent.hear(text("a"))
    await manager.save_latest(agent)
    place.harm(None)

    manager, agent = SessionManager(storage, SESSION), Plain()
    for _ in range(2):
        with pytest.raises(SessionError) as raised:
            await turn_of(manager, agent, "b")
        assert isinstance(raised.value.__cause__, Corrupt)
    with pytest.raises(SessionError, match="not overwritten"):
        await manager.save(agent)
    assert agent.messages == []

    await manager.delete_session()  # the way out
    assert await manager.save(agent)


async def test_a_damaged_snapshot_that_is_asked_for_by_its_id_is_an_error(place: Place) -> None:
    storage = place.storage
    ids, texts = await fill(storage)
    place.harm(ids[1])
    manager, agent = SessionManager(storage, SESSION), Plain()
    with pytest.raises(SessionError) as raised:
        await manager.restore(agent, ids[1])
    assert isinstance(raised.value.__cause__, Corrupt)
    assert agent.messages == []
    assert (await turn_of(manager, agent)).saved  # the latest is as good as before
    assert agent.messages == texts[3:]


# Folders


GARBAGE = [b"", b"{", b"42", b"null", b"[]", b'"text"', b"{}", b'{"scope": "agent"}', b"\xff"]
WRONG_KIND = b'{"scope": "multiAgent", "schemaVersion": "1.0", "createdAt": "", "data": {}}'
NO_STATE = b'{"scope": "agent", "schemaVersion": "1.0", "createdAt": "", "data": 42}'


async def test_whatever_is_no_state_is_damage(tmp_path: Path) -> None:
    async with FileStorage(tmp_path) as storage:
        ids, texts = await fill(storage)
        for garbage in [*GARBAGE, WRONG_KIND, NO_STATE]:
            (tmp_path / LATEST).write_bytes(garbage)
            restored = present(await SessionManager(storage, SESSION).restore(agent := Plain()))
            assert (restored.snapshot_id, agent.messages) == (ids[2], texts[2:3]), garbage


async def test_history_is_walked_from_the_newest(tmp_path: Path) -> None:
    """Ids that carry no time come last, whatever their names are."""
    async with FileStorage(tmp_path) as storage:
        manager, agent = SessionManager(storage, SESSION), Plain()
        ids = [await manager.save(agent) for _ in range(4)]
        named = await latest_of(storage)
        for id in ("zz", "00"):
            await storage.save_snapshot(PLACE, id, False, named)
        (tmp_path / LATEST).write_bytes(b"{")
        for id in [*reversed(ids), "zz", "00"]:
            restored = present(await SessionManager(storage, SESSION).restore(Plain()))
            assert restored.snapshot_id == id
            (tmp_path / key_of(id)).write_bytes(b"{")


async def test_history_that_is_away_is_not_taken_for_damaged(tmp_path: Path) -> None:
    class Away(FileStorage):
        async def load_snapshot(
            self, location: AnyLocation, snapshot_id: str | None = None
        ) -> Snapshot | None:
            if snapshot_id == ids[2]:
                raise SessionError("the storage is away") from Unavailable("no answer")
            return await super().load_snapshot(location, snapshot_id)

    async with Away(tmp_path) as storage:
        ids, _ = await fill(storage)
        (tmp_path / LATEST).write_bytes(b"{")
        with pytest.raises(SessionError, match="away"):
            await SessionManager(storage, SESSION).restore(agent := Plain())
    assert agent.messages == []
