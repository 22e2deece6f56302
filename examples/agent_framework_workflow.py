"""A workflow of Microsoft Agent Framework that is killed in the middle of a turn, and branches.

python examples/agent_framework_workflow.py                      a SQLite file in this folder
python examples/agent_framework_workflow.py sqlite:///trip.db    your file, or any other store

Run it twice. The first run is killed after a question was heard and before it is answered. The
second run finds the checkpoint, answers the question, and goes back to ask another one. The model
is a fake: no network is needed.
"""

import asyncio
import os
import signal
import sys
from typing import Never

from agent_framework import Executor, Workflow, WorkflowBuilder, WorkflowContext, handler

import limpet
from limpet.compat.agent_framework import LimpetCheckpointStorage

TRIP, FORK, WORKFLOW = "plan-for-lisbon", "plan-without-a-plane", "planner"
KILLED_AT: set[str] = set()  # the questions that this process does not survive
ANSWERS = {
    "Two days in Lisbon?": "Stay in Alfama, and take tram 28.",
    "How do I get there?": "Fly to Lisbon, then take the metro.",
    "And without a plane?": "Take the night train from Madrid.",
}


# The workflow: two steps, with a checkpoint after each


class Hear(Executor):
    @handler
    async def hear(self, question: str, ctx: WorkflowContext[str]) -> None:
        said = ctx.get_state("messages") or []
        ctx.set_state("messages", [*said, {"role": "user", "content": question}])
        await ctx.send_message(question)


class Answer(Executor):
    @handler
    async def answer(self, question: str, ctx: WorkflowContext[Never, str]) -> None:
        if question in KILLED_AT:
            print("  the process is killed before it has the answer", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        answer = ANSWERS[question]
        said = ctx.get_state("messages") or []
        ctx.set_state("messages", [*said, {"role": "assistant", "content": answer}])
        await ctx.yield_output(answer)


def planner(storage: LimpetCheckpointStorage) -> Workflow:
    hear, answer = Hear("hear"), Answer("answer")
    build = WorkflowBuilder(start_executor=hear, name=WORKFLOW, checkpoint_storage=storage)
    return build.add_edge(hear, answer).build()


async def ask(workflow: Workflow, question: str) -> None:
    print(f"  user: {question}", flush=True)
    for answer in (await workflow.run(question)).get_outputs():
        print(f"  assistant: {answer}", flush=True)


# The two runs


async def begin(storage: LimpetCheckpointStorage) -> None:
    print("A new trip", flush=True)
    workflow = planner(storage)
    await ask(workflow, "Two days in Lisbon?")
    KILLED_AT.add("How do I get there?")
    await ask(workflow, "How do I get there?")


async def go_on(store: limpet.AsyncStore, storage: LimpetCheckpointStorage, latest: str) -> None:
    ids = await storage.list_checkpoint_ids(workflow_name=WORKFLOW)
    print(f"Found {len(ids)} checkpoints; the last question has no answer yet")
    result = await planner(storage).run(checkpoint_id=latest)
    print(f"  assistant: {result.get_outputs()[-1]}")

    print("Back to the first answer, and on from there in another conversation")
    checkpoints = await storage.list_checkpoints(workflow_name=WORKFLOW)
    answered = next(each for each in checkpoints if len(each.state.get("messages", [])) == 2)
    scope = store.scope(TRIP, WORKFLOW, "workflow")
    await scope.fork(answered.checkpoint_id, to=FORK)
    branch = LimpetCheckpointStorage(store, FORK)
    workflow = planner(branch)
    start = await branch.get_latest(workflow_name=WORKFLOW)
    assert start is not None
    await workflow.run(checkpoint_id=start.checkpoint_id)
    await ask(workflow, "And without a plane?")

    for session_id in (TRIP, FORK):
        found = await LimpetCheckpointStorage(store, session_id).get_latest(workflow_name=WORKFLOW)
        assert found is not None
        print(f"{session_id} has {len(found.state['messages'])} messages")


async def main(url: str) -> None:
    async with limpet.open_async(url) as store:
        storage = LimpetCheckpointStorage(store, TRIP)
        latest = await storage.get_latest(workflow_name=WORKFLOW)
        if latest is None:
            await begin(storage)
        elif latest.state["messages"][-1]["role"] == "user":
            await go_on(store, storage, latest.checkpoint_id)
        else:
            print(f"The trip is planned. To see it: limpet show {TRIP} --url {url}")
            print(f"Delete it to begin again: limpet rm {TRIP} {FORK} --url {url}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:] or ["sqlite:///agent_framework_workflow.db"]))
