"""The functions of the SDK that work on a session store."""

import json
from pathlib import Path
from typing import Any

import claude_agent_sdk as sdk
import pytest

import limpet
from limpet.compat.claude import LimpetClaudeStore
from tests.frameworks.claude.keys import SESSION, key, said, talk, uuid
from tests.present import present


class NoTranscripts(LimpetClaudeStore):
    """A store in which no transcript can be read."""

    async def load(self, key: Any) -> Any:
        raise AssertionError(f"a transcript is read: {key}")


def texts(messages: list[sdk.SessionMessage]) -> list[str]:
    return [each.message["content"] for each in messages]


async def test_listing_reads_no_transcript(memory: limpet.Store) -> None:
    sessions = NoTranscripts(memory)
    await sessions.append(key(), talk(2))
    await sessions.append(key(uuid("other")), [said(0, "something else", isSidechain=True)])
    await sessions.append(key(subpath="subagents/agent-7"), talk(2))
    (found,) = await sdk.list_sessions_from_store(sessions)
    assert (found.session_id, found.summary) == (SESSION, "text 0")
    assert await sdk.list_subagents_from_store(sessions, SESSION) == ["7"]


async def test_messages_titles_and_tags(store: limpet.Store) -> None:
    sessions = LimpetClaudeStore(store)
    await sessions.append(key(), talk(3))
    await sessions.append(key(subpath="subagents/agent-7"), talk(2))
    await sdk.rename_session_via_store(sessions, SESSION, "A title")
    await sdk.tag_session_via_store(sessions, SESSION, "a tag")
    assert texts(await sdk.get_session_messages_from_store(sessions, SESSION)) == [
        "text 0",
        "text 1",
        "text 2",
    ]
    inner = await sdk.get_subagent_messages_from_store(sessions, SESSION, "7")
    assert texts(inner) == ["text 0", "text 1"]
    info = await sdk.get_session_info_from_store(sessions, SESSION)
    (listed,) = await sdk.list_sessions_from_store(sessions)
    for each in (info, listed):
        assert each is not None
        assert (each.custom_title, each.tag, each.first_prompt) == ("A title", "a tag", "text 0")
    await sdk.delete_session_via_store(sessions, SESSION)
    assert await sdk.list_sessions_from_store(sessions) == []
    assert list(store.sessions()) == []


async def test_a_fork_knows_its_origin(store: limpet.Store) -> None:
    sessions = LimpetClaudeStore(store)
    for each in talk(9):
        await sessions.append(key(), [each])
    origin = sessions.scope(key())
    moments = [each.id async for each in origin.history()][::-1]
    for at in (0, 5, 8):
        result = await sdk.fork_session_via_store(sessions, SESSION, up_to_message_id=uuid(at))
        messages = await sdk.get_session_messages_from_store(sessions, result.session_id)
        assert texts(messages) == [f"text {n}" for n in range(at + 1)]
        head = present(await sessions.scope(key(result.session_id)).info())
        assert head.forked_from == limpet.SnapshotRef(origin.key, moments[at])
    forks = [each.summary for each in await sdk.list_sessions_from_store(sessions)]
    assert sorted(forks) == ["text 0", *["text 0 (fork)"] * 3]
    assert len(await sessions.load(key()) or []) == 9


async def test_a_fork_of_what_is_gone_has_no_origin(memory: limpet.Store) -> None:
    sessions = LimpetClaudeStore(memory)
    for origin in ({"sessionId": SESSION, "messageUuid": uuid(0)}, {"sessionId": None}, "x"):
        name = uuid(str(origin))
        await sessions.append(key(name), [said(1, "hello", forkedFrom=origin)])
        await sessions.append(key(name), [said(2, "more", forkedFrom=origin)])
        assert len(await sessions.load(key(name)) or []) == 2


async def test_local_sessions_can_be_imported(
    memory: limpet.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    folder = tmp_path / "projects" / key()["project_key"]
    (folder / SESSION / "subagents").mkdir(parents=True)
    lines = [json.dumps(each) + "\n" for each in talk(3)]
    (folder / f"{SESSION}.jsonl").write_text("".join(lines))
    (folder / SESSION / "subagents" / "agent-7.jsonl").write_text(lines[0])
    sessions = LimpetClaudeStore(memory)
    for _ in range(2):  # the second time nothing is new
        await sdk.import_session_to_store(SESSION, sessions)
        assert await sessions.load(key()) == talk(3)
        assert await sessions.load(key(subpath="subagents/agent-7")) == talk(1)
    assert len(list(memory.scope(*sessions.scope(key()).key).history())) == 1
