"""What the store adds to the contracts of the SDK."""

import asyncio
import json
from typing import Any

import pytest
from claude_agent_sdk import fold_session_summary, list_sessions_from_store

import limpet
from limpet.compat.claude import LimpetClaudeStore
from tests.frameworks.claude.keys import SESSION, key, said, talk, uuid, uuids
from tests.present import present


async def test_an_entry_is_stored_once_whoever_appends_it(memory: limpet.Store) -> None:
    first, second = LimpetClaudeStore(memory), LimpetClaudeStore(memory)
    a, b, c = talk(3)
    mode: Any = {"type": "mode", "mode": "normal"}
    await first.append(key(), [a, mode, a])
    await second.append(key(), [a, b, mode])
    await first.append(key(), [b, c, a])
    await second.append(key(), [c])
    assert await first.load(key()) == [a, mode, b, mode, c]
    assert len(list(memory.scope(*first.scope(key()).key).history())) == 3


def test_only_a_store_is_a_store() -> None:
    with pytest.raises(limpet.InvalidInput, match="expected a store"):
        LimpetClaudeStore("sqlite:///x.db")  # type: ignore[arg-type]


async def test_names_do_not_collide(memory: limpet.Store) -> None:
    sessions = LimpetClaudeStore(memory)
    names = ["a", "a/b", "a%2Fb", "a%252Fb", "b", "a/", "/a", "..", "main", "-a", "ü 😀", "A"]
    subpaths = ["main", "main/main", "main~abcdefgh", "subagents/agent-1", "../main", "a%2Fb"]
    keys: list[Any] = [{"project_key": p, "session_id": s} for p in names for s in names]
    keys += [{"project_key": "a", "session_id": "b", "subpath": each} for each in subpaths]
    for number, each in enumerate(keys):
        await sessions.append(each, [said(number, "hello")])
    for number, each in enumerate(keys):
        assert await uuids(sessions, each) == [uuid(number)]
    for name in names:
        listed = await sessions.list_sessions(name)
        assert sorted(each["session_id"] for each in listed) == sorted(names)
    found = await sessions.list_subkeys({"project_key": "a", "session_id": "b"})
    assert sorted(found) == sorted(subpaths)
    assert await sessions.list_subkeys({"project_key": "a", "session_id": "a/b"}) == []


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"project_key": "p"},
        {"project_key": "", "session_id": "s"},
        {"project_key": "p", "session_id": None},
        {"project_key": "p", "session_id": "s", "subpath": ""},
        {"project_key": "p", "session_id": "s", "subpath": "\0"},
        {"project_key": "p", "session_id": "s" * 600},
    ],
)
async def test_a_key_that_names_nothing_is_refused(memory: limpet.Store, bad: Any) -> None:
    sessions = LimpetClaudeStore(memory)
    for refused in (sessions.append(bad, talk(1)), sessions.load(bad), sessions.delete(bad)):
        with pytest.raises(limpet.InvalidInput):
            await refused
    assert list(memory.sessions()) == []


async def test_what_another_deleted_can_be_appended_again(store: limpet.Store) -> None:
    ours, theirs = LimpetClaudeStore(store), LimpetClaudeStore(store)
    before, after = talk(2)
    await ours.append(key(), [before])
    await ours.append(key(subpath="subagents/agent-1"), [before])
    await theirs.delete(key())
    assert list(store.sessions()) == []
    await ours.append(key(), [before, after])
    assert await ours.load(key()) == [before, after]
    assert (
        await ours.list_subkeys({"project_key": key()["project_key"], "session_id": SESSION}) == []
    )
    (summary,) = await ours.list_session_summaries(key()["project_key"])
    assert summary["data"] == fold_session_summary(None, key(), [before, after])["data"]


async def append_all(sessions: LimpetClaudeStore, entries: list[Any]) -> None:
    for each in entries:
        await sessions.append(key(), [each, {"type": "mode"}])


async def test_writers_lose_and_double_nothing(url: str) -> None:
    entries = [said(f"{n}", f"{n}", customTitle=f"title {n}", cwd=f"/{n}") for n in range(12)]
    with limpet.open(url) as here, limpet.open(url) as there:
        writers = [LimpetClaudeStore(here), LimpetClaudeStore(there), LimpetClaudeStore(there)]
        # Each entry is sent twice, by different writers and in different orders.
        parts = [entries[:8], entries[4:], [*entries[8:], *entries[:4]]]
        await asyncio.gather(*map(append_all, writers, parts))
        loaded = await writers[0].load(key()) or []
        assert sorted(e["uuid"] for e in loaded if "uuid" in e) == sorted(
            uuid(n) for n in range(12)
        )
        assert sum(each["type"] == "mode" for each in loaded) == 24
        for writer in writers:
            (summary,) = await writer.list_session_summaries(key()["project_key"])
            assert summary["data"] == fold_session_summary(None, key(), loaded)["data"]


async def test_summaries_have_the_time_of_their_sessions(store: limpet.Store) -> None:
    sessions = LimpetClaudeStore(store)
    for name in ("one", "two"):
        await sessions.append(key(name), talk(2))
        await sessions.append(key(name, subpath="subagents/agent-1"), talk(4))
    project_key = key()["project_key"]
    listed = {e["session_id"]: e["mtime"] for e in await sessions.list_sessions(project_key)}
    found = {e["session_id"]: e for e in await sessions.list_session_summaries(project_key)}
    assert listed == {name: each["mtime"] for name, each in found.items()}
    head = present(await sessions.scope(key("one")).info())
    assert listed["one"] == int(head.updated_at.timestamp() * 1000)
    assert found["two"]["data"] == fold_session_summary(None, key("two"), talk(2))["data"]


async def test_appends_of_others_have_no_summary(memory: limpet.Store) -> None:
    sessions = LimpetClaudeStore(memory)
    await sessions.append(key(), talk(1))
    memory.scope(*sessions.scope(key()).key).append("entries", [said("x", "y", customTitle="new")])
    await sessions.append(key(), talk(2))
    assert await sessions.list_session_summaries(key()["project_key"]) == []
    (found,) = await list_sessions_from_store(sessions)  # the SDK reads the transcript instead
    assert (found.session_id, found.custom_title) == (SESSION, "new")


async def test_half_a_character_comes_back_as_it_was(store: limpet.Store) -> None:
    sessions = LimpetClaudeStore(store)
    entries = [
        said(0, "cut \ud83d", customTitle="\ude00 cut"),
        said(1, "whole 😀", 0, tokens=2**70),
        said(2, {"\udc00": [1.0, None, "\0"]}, 1),  # type: ignore[arg-type]
    ]
    await sessions.append(key(), entries)
    await sessions.append(key(), entries)
    await sessions.append(key(subpath="subagents/agent-1"), entries)
    assert await sessions.load(key()) == entries
    assert await LimpetClaudeStore(store).load(key(subpath="subagents/agent-1")) == entries
    (summary,) = await sessions.list_session_summaries(key()["project_key"])
    assert summary["data"]["custom_title"] == "\ufffd cut"


async def test_what_is_nested_deep_comes_back_as_it_was(memory: limpet.Store) -> None:
    """One such entry must not keep the others of its batch from being stored."""
    sessions = LimpetClaudeStore(memory)
    deep = json.loads("[" * 300 + "]" * 300)
    entries = [said(0, "a"), said(1, "b", 0, result=deep), said(2, "c", 1)]
    await sessions.append(key(), entries)
    await sessions.append(key(), entries)
    assert await sessions.load(key()) == entries


async def test_what_cannot_be_stored_is_refused(memory: limpet.Store) -> None:
    sessions = LimpetClaudeStore(memory)
    for bad in (float("nan"), {1, 2}):
        with pytest.raises(limpet.InvalidInput):
            await sessions.append(key(), [*talk(1), said(1, bad)])  # type: ignore[arg-type]
    assert await sessions.load(key()) is None
