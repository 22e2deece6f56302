"""A log over a scope: what is appended, what is not appended twice, and several writers at once."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import AlreadyExists, Corrupt
from limpet.compat.logs import FRAMEWORKS, Log
from limpet.compat.wire import ABSENT
from tests.present import present


def log_of(store: limpet.Store, mark: str = "openai", **options: Any) -> Log:
    return Log(store.aio.scope("chat", kind="conversation"), "items", mark, **options)


def item(id: str | None, text: str = "") -> dict[str, Any]:
    return {"text": text} if id is None else {"id": id, "text": text}


def id_of(item: Any) -> str | None:
    found = item.get("id")
    return found if isinstance(found, str) else None


async def test_what_is_appended_is_read_and_is_a_snapshot(store: limpet.Store) -> None:
    log = log_of(store)
    assert await log.read() is None
    assert await log.append([]) is None
    await log.append([1, 2])
    await log.append([3])
    assert await log.read() == [1, 2, 3]
    sizes = [
        len(each.state["items"])
        async for each in log.scope.load_many([info async for info in log.scope.history()])
    ]
    assert sizes == [3, 2]


async def test_a_known_id_is_not_appended_again(store: limpet.Store) -> None:
    log, other = log_of(store, id_of=id_of), log_of(store, id_of=id_of)
    await log.append([item("a"), item(None), item("a", "again")])
    await log.append([item("a"), item("b"), item(None)])
    await other.append([item("b"), item("c")])
    assert await log.append([item("c"), item("a")]) is None
    await log.append([item("d")])
    found = await log.read() or []
    assert [id_of(each) for each in found] == ["a", None, "b", None, "c", "d"]
    await other.scope.delete()
    await log.append([item("a")])
    assert await log.read() == [item("a")]


async def test_metadata_follows_the_head(store: limpet.Store) -> None:
    def describe(head: Any, new: list[Any]) -> int:
        return len(new) + (0 if head is None else int(head.metadata["openai"]))

    log, other = log_of(store), log_of(store)
    await log.append([1, 2], describe=describe)
    await other.append([3], describe=describe)
    last = present(await log.append([4, 5], describe=describe))
    assert last.metadata == {"openai": 5}


async def test_concurrent_appends_and_pops_lose_nothing(store: limpet.Store) -> None:
    async def write(name: str) -> None:
        log = log_of(store, id_of=id_of)
        for n in range(10):
            await log.append([item(f"{name}{n}")])

    await asyncio.gather(*(write(name) for name in "abc"))
    log = log_of(store)
    popped = await asyncio.gather(*(log_of(store).pop() for _ in range(5)))
    left = await log.read() or []
    ids = [id_of(each) for each in [*left, *popped]]
    assert len(ids) == 30
    assert {*ids} == {f"{name}{n}" for name in "abc" for n in range(10)}


async def test_an_empty_log_has_nothing_to_pop(store: limpet.Store) -> None:
    log = log_of(store)
    assert await log.pop() is ABSENT
    await log.append([None])
    assert await log.pop() is None
    assert await log.pop() is ABSENT
    assert await log.read() == []


async def test_what_another_program_saved_is_refused(store: limpet.Store) -> None:
    log = log_of(store)
    for state in (["no", "log"], {"items": "none"}, {}):
        await log.scope.save(state)
        for call in (log.read(), log.pop(), log.append([1]), log.replace([1])):
            with pytest.raises(Corrupt, match="no conversation of the OpenAI Agents SDK"):
                await call
    await log.scope.save({"items": [1]})  # by hand, and in the right form
    await log.append([2])
    assert await log.read() == [1, 2]


async def test_what_another_framework_saved_is_refused_in_the_same_commit(
    store: limpet.Store,
) -> None:
    ours, theirs = log_of(store), log_of(store, "pydantic_ai")
    await ours.append([1])
    for call in (theirs.read(), theirs.pop(), theirs.append([1]), theirs.replace([1])):
        with pytest.raises(AlreadyExists, match=r"of the OpenAI Agents SDK, not of Pydantic AI"):
            await call
    # A log that knows its head does not read it again: the commit compares it.
    await ours.scope.delete()
    await theirs.append([2])
    with pytest.raises(AlreadyExists, match="of Pydantic AI, not of the OpenAI Agents SDK"):
        await ours.append([3])
    assert await theirs.read() == [2]


def test_javascript_knows_the_same_frameworks() -> None:
    root = Path(__file__).resolve().parents[2]
    text = (root / "clients" / "js" / "src" / "logs.js").read_text("utf-8")
    assert dict(re.findall(r'^  (\w+): "(.+)",$', text, re.MULTILINE)) == FRAMEWORKS
