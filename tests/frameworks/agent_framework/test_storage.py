"""The interface of `CheckpointStorage`, on every engine and on the framework's own storages."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from agent_framework import (
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
)

import limpet
from limpet.compat.agent_framework import LimpetCheckpointStorage
from tests.effort import slowly
from tests.frameworks.kit import ENGINES, FAST, Places
from tests.present import present

ODD_NAMES = ("alice/support", "..", "%2F", "a%2Fb", "a/b", "main", "é\U0001f41a", "a b")


@dataclass
class Order:
    """A class of an application. It counts how often one is read."""

    number: int
    read = 0

    def __setstate__(self, state: dict[str, Any]) -> None:
        Order.read += 1
        self.__dict__.update(state)


THEIRS = ("InMemory", "File")
ALLOWED = [f"{Order.__module__}:Order"]


@pytest.fixture(params=slowly([*ENGINES, *THEIRS], but={*FAST, *THEIRS}))
def storage(request: pytest.FixtureRequest, places: Places, tmp_path: Path) -> Iterator[Any]:
    if request.param == THEIRS[0]:
        yield InMemoryCheckpointStorage()
    elif request.param == THEIRS[1]:
        yield FileCheckpointStorage(tmp_path / "files", allowed_checkpoint_types=ALLOWED)
    else:
        with limpet.open(places.url(request.param)) as store:
            yield LimpetCheckpointStorage(store, allowed_checkpoint_types=ALLOWED)


def checkpoint(id: str, name: str = "support", **more: Any) -> WorkflowCheckpoint:
    return WorkflowCheckpoint(name, "hash", checkpoint_id=id, **more)


async def ids(storage: Any, name: str = "support") -> list[str]:
    return list(await storage.list_checkpoint_ids(workflow_name=name))


async def latest(storage: Any, name: str = "support") -> str | None:
    found = await storage.get_latest(workflow_name=name)
    return None if found is None else found.checkpoint_id


async def test_a_checkpoint_is_loaded_as_it_was(storage: Any) -> None:
    saved = checkpoint(
        "a",
        previous_checkpoint_id="before",
        state={"list": [1, "é\0", None, 2**70], "order": Order(7), "when": datetime.now(UTC)},
        messages={"writer": [(1, 2), {3}]},
        metadata={"by": {"whom": b"\xff"}},
        iteration_count=3,
    )
    assert await storage.save(saved) == "a"
    loaded = await storage.load("a")
    assert loaded == saved
    assert [loaded] == await storage.list_checkpoints(workflow_name="support")
    assert loaded == await storage.get_latest(workflow_name="support")


async def test_what_is_missing(storage: Any) -> None:
    assert await latest(storage) is None
    assert await ids(storage) == await storage.list_checkpoints(workflow_name="support") == []
    assert await storage.delete("a") is False
    with pytest.raises(WorkflowCheckpointException):
        await storage.load("a")


async def test_workflows_have_checkpoints_of_their_own(storage: Any) -> None:
    for number, name in enumerate(ODD_NAMES):
        await storage.save(checkpoint(f"{number}", name, state={"name": name}))
    for number, name in enumerate(ODD_NAMES):
        assert await ids(storage, name) == [f"{number}"]
        assert await latest(storage, name) == f"{number}"
        assert (await storage.load(f"{number}")).state == {"name": name}
    assert await storage.delete("4") is True
    assert await ids(storage, "a/b") == []
    assert await ids(storage, "a%2Fb") == ["3"]


async def test_a_checkpoint_is_deleted_once(storage: Any) -> None:
    for id in "abc":
        await storage.save(checkpoint(id))
    assert await storage.delete("c") is True
    assert await storage.delete("c") is False
    assert await storage.delete("a") is True
    assert await ids(storage) == ["b"]
    assert await latest(storage) == "b"


async def test_the_same_id_again_replaces_it(storage: Any) -> None:
    await storage.save(checkpoint("a", state={"n": 1}))
    await storage.save(checkpoint("a", state={"n": 2}))
    assert (await storage.load("a")).state == {"n": 2}
    assert await ids(storage) == ["a"]


async def test_a_class_that_is_not_allowed_is_not_made(store: limpet.Store) -> None:
    """The framework's own file storage refuses it at the same moment, from version 1.19 on."""
    careful = LimpetCheckpointStorage(store)
    with pytest.raises(WorkflowCheckpointException):
        await careful.save(checkpoint("a", state={"order": Order(7)}))
    with pytest.raises(WorkflowCheckpointException):
        await careful.save(checkpoint("b", state={"no pickle": lambda: None}))
    assert await ids(careful) == []

    free = LimpetCheckpointStorage(store, allowed_checkpoint_types=ALLOWED)
    await free.save(checkpoint("a", state={"order": Order(7)}))
    await careful.save(checkpoint("b"))
    with pytest.raises(WorkflowCheckpointException):
        await careful.load("a")
    found = await careful.list_checkpoints(workflow_name="support")
    assert [each.checkpoint_id for each in found] == ["b"]


async def test_numbers_that_are_not_json_and_deep_states(memory: limpet.Store) -> None:
    storage = LimpetCheckpointStorage(memory)
    deep: Any = "bottom"
    for _ in range(220):
        deep = [deep]
    await storage.save(
        checkpoint("a", state={"ratio": float("inf"), "half": "\ud800", "deep": deep})
    )
    assert (await storage.load("a")).state == {
        "ratio": float("inf"),
        "half": "\ud800",
        "deep": deep,
    }


async def test_lists_and_the_latest_do_not_decode_the_others(store: limpet.Store) -> None:
    """The file storage decodes every file for each of these (PR #7621)."""
    storage = LimpetCheckpointStorage(store.aio, allowed_checkpoint_types=ALLOWED)
    for number in range(5):
        await storage.save(checkpoint(f"{number}", state={"order": Order(number)}))
    Order.read = 0
    assert len(await ids(storage)) == 5
    assert Order.read == 0
    assert await latest(storage) == "4"
    assert Order.read == 1


async def test_the_latest_is_the_last_saved_whatever_the_clocks_say(store: limpet.Store) -> None:
    storage = LimpetCheckpointStorage(store)
    for id, year in (("b", 2030), ("a", 2020), ("c", 2025)):
        await storage.save(checkpoint(id, timestamp=f"{year}-01-01T00:00:00+00:00"))
    assert await latest(storage) == "c"
    assert await ids(storage) == ["b", "a", "c"]


async def test_conversations_of_one_workflow_are_separate(store: limpet.Store) -> None:
    chats = [LimpetCheckpointStorage(store, f"alice/chat-{n}") for n in (4, 42)]
    for chat, id in zip(chats, "ab", strict=True):
        await chat.save(checkpoint(id))
        await chat.save(checkpoint(f"{id}2", "other"))
    one, other = chats
    assert (await latest(one), await latest(other)) == ("a", "b")
    with pytest.raises(WorkflowCheckpointException):
        await one.load("b")
    assert await one.delete("b") is False
    everyone = LimpetCheckpointStorage(store)
    assert await ids(everyone) == []
    with pytest.raises(WorkflowCheckpointException):
        await everyone.load("a")
    assert (await one.load("a2")).workflow_name == "other"
    assert store.delete_session("alice/chat-4") == 2
    assert await latest(other) == "b"


async def test_ids_are_found_behind_copies_of_other_programs(memory: limpet.Store) -> None:
    storage = LimpetCheckpointStorage(memory)
    await storage.save(checkpoint("a", state={"n": 1}))
    memory.scope("copy", "support", "workflow").save({"not": "ours"}, id="a")
    memory.scope("copy").save({"not": "ours"}, id="a")
    assert (await storage.load("a")).state == {"n": 1}
    bad: list[Any] = ["", "\0", "x" * 600, None]
    for id in bad:
        assert await storage.delete(id) is False
    memory.scope("support", "support", "workflow").save({"other": "data"}, id="b")
    for each in ("a", "b"):
        assert await storage.delete(each) is True


async def test_a_fork_into_another_conversation(store: limpet.Store) -> None:
    chat = LimpetCheckpointStorage(store, "chat-42")
    for previous, id in ((None, "a"), ("a", "b"), ("b", "c")):
        await chat.save(checkpoint(id, previous_checkpoint_id=previous, state={"at": id}))
    scope = store.scope("chat-42", "support", "workflow")
    assert [each.id for each in scope.ancestors("c")] == ["c", "b", "a"]
    scope.fork("b", to="chat-43")
    fork = LimpetCheckpointStorage(store, "chat-43")
    found = present(await fork.get_latest(workflow_name="support"))
    assert found.state == {"at": "b"}
    assert (await fork.load(found.checkpoint_id)) == found
    await fork.save(checkpoint("d", previous_checkpoint_id=found.checkpoint_id))
    assert (await latest(chat), await latest(fork)) == ("c", "d")


def test_what_is_not_accepted(memory: limpet.Store) -> None:
    no_store: Any = "sqlite:///x.db"
    with pytest.raises(limpet.InvalidInput):
        LimpetCheckpointStorage(no_store)
    with pytest.raises(limpet.InvalidInput):
        LimpetCheckpointStorage(memory, "")


async def test_no_checkpoint_of_many_writers_is_lost(url: str) -> None:
    with limpet.open(url) as one, limpet.open(url) as other:

        async def save(number: int) -> None:
            storage = LimpetCheckpointStorage((one, other)[number % 2])
            for n in range(10):
                await storage.save(checkpoint(f"{number}-{n}"))

        await asyncio.gather(*(save(number) for number in range(6)))
        found = await ids(LimpetCheckpointStorage(one))
    mine_in_order = sorted(found, key=lambda each: each[0])
    assert mine_in_order == [f"{number}-{n}" for number in range(6) for n in range(10)]
