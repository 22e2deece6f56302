"""Agents of the package, on its stores and on ours: they cannot tell the difference."""

import asyncio
from typing import Any

import pytest
from genkit import GenkitError
from genkit.exp.agent import AgentChat, AgentError, AgentFinishReason, AgentInit

import limpet
from limpet.compat.genkit.python import LimpetGenkitStore
from tests.frameworks.genkit.agents import QUICK_S, Notes, ended, guide
from tests.frameworks.genkit.rows import ABORTED, COMPLETED, FAILED, PENDING, Watched, get, latest
from tests.present import present

HELLO: Any = {"message": {"role": "user", "content": [{"text": "hello"}]}}


async def messages_of(store: Watched, id: str | None) -> list[str]:
    assert id is not None
    found = await get(store, id)
    assert found.state is not None
    return [f"{each.role}: {each.text}" for each in found.state.messages or []]


async def test_a_session_is_continued_by_another_agent(any_sessions: Watched) -> None:
    await guide(any_sessions).chat(session_id="s").send("hello")
    answer = await guide(any_sessions).chat(session_id="s").send("again")
    assert answer.text == "3 messages"
    loaded = await guide(any_sessions).load_chat(session_id="s")
    assert [each.text for each in loaded.messages] == ["hello", "1 messages", "again", "3 messages"]


async def test_a_question_is_answered_by_another_agent(any_sessions: Watched) -> None:
    asked = await guide(any_sessions).chat(session_id="s").send("book Rome")
    assert asked.finish_reason == AgentFinishReason.INTERRUPTED
    found = await get(any_sessions, asked.snapshot_id or "")
    assert (found.status, found.finish_reason) == (COMPLETED, AgentFinishReason.INTERRUPTED)

    chat = await guide(any_sessions).load_chat(session_id="s")
    (request,) = chat.messages[-1].tool_requests
    assert request.tool_request is not None
    assert (request.metadata or {})["interrupt"] == {"question": "Rome?"}
    done = await chat.resume(restart=[asked.interrupts[0].restart(resumed_metadata={"ok": True})])
    assert done.text == "booked Rome"
    again = (
        await guide(any_sessions)
        .chat(snapshot_id=asked.snapshot_id)
        .resume(respond=[asked.interrupts[0].respond("no")])
    )
    assert again.text == "no"
    assert (await get(any_sessions, again.snapshot_id or "")).parent_id == asked.snapshot_id


async def test_custom_state_and_artifacts(any_sessions: Watched) -> None:
    chat = guide(any_sessions).chat(session_id="s")
    await chat.send("note tea")
    await chat.send("note milk")
    assert chat.state == Notes(notes=["tea", "milk"], last=None)
    later = guide(any_sessions).chat(session_id="s")
    answer = await later.send("note bread")
    found = await get(any_sessions, answer.snapshot_id or "")
    assert found.state is not None
    assert found.state.custom == {"notes": ["tea", "milk", "bread"], "last": None}
    assert [each.name for each in found.state.artifacts or []] == ["notes.md"]


async def test_branches(any_sessions: Watched) -> None:
    agent = guide(any_sessions)
    chat = agent.chat(session_id="s")
    first = await chat.send("hello")
    await chat.send("weather Rome")
    branch = await agent.chat(snapshot_id=first.snapshot_id).send("weather Bern")
    texts = [each.split()[-1] for each in await messages_of(any_sessions, branch.snapshot_id)]
    assert "Rome" not in texts
    assert "Bern" in texts
    assert await latest(any_sessions) == branch.snapshot_id
    with pytest.raises(GenkitError, match="does not belong to session"):
        await agent.run(HELLO, init=AgentInit(snapshot_id=first.snapshot_id, session_id="other"))


async def test_a_session_that_limpet_forked(sessions: LimpetGenkitStore) -> None:
    first = await guide(sessions).chat(session_id="s").send("hello")
    scope = sessions.scope("s")
    await scope.fork(first.snapshot_id or "", to=sessions.scope("fork").session_id)
    answer = await guide(sessions).chat(session_id="fork").send("again")
    assert answer.text == "3 messages"
    assert await latest(sessions, "fork") == answer.snapshot_id
    assert await latest(sessions) == first.snapshot_id


async def test_a_turn_that_fails(any_sessions: Watched) -> None:
    agent = guide(any_sessions)
    chat = agent.chat(session_id="s")
    good = await chat.send("hello")
    with pytest.raises(AgentError, match="internal error"):
        await chat.send("fail")
    assert chat.snapshot_id == good.snapshot_id
    failed = present(await agent.get_snapshot(session_id="s"))
    assert (failed.status, failed.parent_id) == (FAILED, good.snapshot_id)
    assert failed.error is not None
    with pytest.raises(AgentError, match="not resumable"):
        await agent.chat(snapshot_id=failed.snapshot_id).send("hello")
    assert (await agent.chat(session_id="s").send("again")).text == "3 messages"


async def test_a_detached_turn(any_sessions: Watched) -> None:
    done = asyncio.Event()
    chat = guide(any_sessions, done).chat(session_id="s")
    before = await chat.send("hello")
    task = await chat.detach("work hard")
    pending = await get(any_sessions, task.snapshot_id)
    assert (pending.status, pending.parent_id) == (PENDING, before.snapshot_id)
    assert pending.heartbeat_at
    done.set()
    ended = await task.wait(QUICK_S)
    assert (ended.status, ended.parent_id) == (COMPLETED, before.snapshot_id)
    assert (await messages_of(any_sessions, task.snapshot_id))[-1] == "model: hard work is done"
    assert (await chat.send("more")).text.endswith("messages")


async def test_a_detached_turn_is_aborted(any_sessions: Watched) -> None:
    agent = guide(any_sessions)
    chat: AgentChat[Any] = agent.chat(session_id="s")
    await chat.send("hello")
    task = await chat.detach("work hard")
    assert await task.abort() == PENDING
    assert (await task.wait(QUICK_S)).status == ABORTED
    assert await agent.abort(task.snapshot_id) == ABORTED
    await ended()
    assert (await get(any_sessions, task.snapshot_id)).status == ABORTED
    assert (await agent.chat(session_id="s").send("again")).text == "3 messages"


async def test_who_is_signed_in(memory: limpet.Store) -> None:
    agent = guide(LimpetGenkitStore(memory))

    async def turn(user: str) -> Any:
        done = await agent.run(
            HELLO, context={"auth": {"uid": user}}, init=AgentInit(session_id="s")
        )
        return done.response

    for user in ("alice", "bob", "alice"):
        assert (await turn(user)).finish_reason != AgentFinishReason.FAILED
    assert list(memory.sessions()) == ["alice/s", "bob/s"]
    assert len(list(memory.scope("alice/s").history())) == 2


async def test_a_store_that_refuses(memory: limpet.Store) -> None:
    """The agent reports an error of the store as the failure of a turn, with its status."""
    memory.scope("s").save({"not": "a conversation"}, id="a")
    with pytest.raises(AgentError, match="Genkit for Python") as caught:
        await guide(LimpetGenkitStore(memory)).chat(session_id="s").send("hello")
    assert caught.value.status == "FAILED_PRECONDITION"
