"""Real workflows: resumed by new objects, answered by a person, branched, and shown as a chat."""

from typing import Any, Never

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    Executor,
    Message,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)

import limpet
from limpet.compat.agent_framework import LimpetCheckpointStorage
from limpet.views.chat import Text, read_chat
from tests.present import present

NAME = "expenses"


class Count(Executor):
    """Adds up, and asks a person before it goes beyond ten."""

    def __init__(self) -> None:
        super().__init__(id="count")
        self.total = 0

    @handler
    async def add(self, number: int, ctx: WorkflowContext[int]) -> None:
        if self.total + number > 10:
            await ctx.request_info({"beyond": 10, "by": number}, bool)
        else:
            self.total += number
            await ctx.send_message(self.total)

    @response_handler
    async def decided(
        self, asked: dict[str, int], allowed: bool, ctx: WorkflowContext[int]
    ) -> None:
        self.total += asked["by"] if allowed else 0
        await ctx.send_message(self.total)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"total": self.total}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.total = state["total"]


class Tell(Executor):
    @handler
    async def tell(self, total: int, ctx: WorkflowContext[Never, int]) -> None:
        await ctx.yield_output(total)


def workflow(storage: LimpetCheckpointStorage) -> Workflow:
    count, tell = Count(), Tell("tell")
    build = WorkflowBuilder(start_executor=count, name=NAME, checkpoint_storage=storage)
    return build.add_edge(count, tell).build()


async def latest(storage: LimpetCheckpointStorage) -> Any:
    return await storage.get_latest(workflow_name=NAME)


async def resumed(storage: LimpetCheckpointStorage) -> Workflow:
    """Return a workflow as it was at the latest checkpoint."""
    found = await latest(storage)
    again = workflow(storage)
    await again.run(checkpoint_id=found.checkpoint_id)
    return again


async def test_a_workflow_goes_on_where_it_was(store: limpet.Store) -> None:
    storage = LimpetCheckpointStorage(store, "march")
    assert (await workflow(storage).run(4)).get_outputs() == [4]
    assert (await (await resumed(storage)).run(5)).get_outputs() == [9]
    ids = await storage.list_checkpoint_ids(workflow_name=NAME)
    lineage = [info.id for info in store.scope("march", NAME, "workflow").ancestors(ids[-1])]
    assert lineage[::-1] == ids


async def test_a_person_answers_in_another_process(store: limpet.Store) -> None:
    storage = LimpetCheckpointStorage(store, "march")
    asked = (await workflow(storage).run(12)).get_request_info_events()
    scope = store.scope("march", NAME, "workflow")
    assert [info.status for info in scope.history(limit=1)] == ["waiting"]

    waiting = await latest(storage)
    assert list(waiting.pending_request_info_events) == [asked[0].request_id]
    again = workflow(storage)
    answers = {asked[0].request_id: True}
    found = await again.run(checkpoint_id=waiting.checkpoint_id, responses=answers)
    assert found.get_outputs() == [12]
    assert [info.status for info in scope.history(limit=1)] == [""]

    # The same question, answered differently, in a conversation of its own.
    scope.fork(waiting.checkpoint_id, to="april")
    other = LimpetCheckpointStorage(store, "april")
    begin = await latest(other)
    found = await workflow(other).run(
        checkpoint_id=begin.checkpoint_id, responses=dict.fromkeys(answers, False)
    )
    assert found.get_outputs() == [0]
    assert (await latest(storage)).state["_executor_state"]["count"] == {"total": 12}
    assert (await latest(other)).state["_executor_state"]["count"] == {"total": 0}


async def test_an_earlier_checkpoint_begins_a_new_line(memory: limpet.Store) -> None:
    storage = LimpetCheckpointStorage(memory)
    adding = workflow(storage)
    await adding.run(4)
    first = await latest(storage)
    await adding.run(5)
    again = workflow(storage)
    await again.run(checkpoint_id=first.checkpoint_id)
    assert (await again.run(1)).get_outputs() == [5]
    assert (await latest(storage)).state["_executor_state"]["count"] == {"total": 5}
    leaves = list(memory.scope(NAME, NAME, "workflow").leaves())
    assert len(leaves) == 2


class Echo(BaseChatClient[Any]):
    """A model that repeats what it is told."""

    def _inner_get_response(self, *, messages: Any, **_: Any) -> Any:
        async def answer() -> ChatResponse:
            return ChatResponse(messages=[Message("assistant", [f"echo {messages[-1].text}"])])

        return answer()


async def test_the_session_of_an_agent_is_a_chat(memory: limpet.Store) -> None:
    storage = LimpetCheckpointStorage(memory, "chat-42")
    agent = Agent(client=Echo(), name="parrot")
    chat = WorkflowBuilder(start_executor=agent, name="talk", checkpoint_storage=storage).build()
    for said in ("hello", "goodbye"):
        await chat.run(Message("user", [said]))
    found = present(memory.scope("chat-42", "talk", "workflow").load())
    shown = present(read_chat(found.state))
    assert [(turn.role, turn.parts[0]) for turn in shown.turns] == [
        ("user", Text("hello")),
        ("assistant", Text("echo hello")),
        ("user", Text("goodbye")),
        ("assistant", Text("echo goodbye")),
    ]
