"""LlamaIndex: the context of a workflow is saved at each event, and a killed workflow goes on.

python llama_index_workflow.py --crash      # asks, and is killed while it publishes
python llama_index_workflow.py              # publishes, without asking again
"""

import asyncio
import sys
from signal import SIGKILL, raise_signal

from workflows import Context, Workflow, step
from workflows.events import HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent

import limpet


class Report(Workflow):
    @step
    async def write(self, context: Context, event: StartEvent) -> InputRequiredEvent:
        await context.store.set("text", "Limpets hold on to rocks.")
        return InputRequiredEvent(question="May I publish it?")

    @step
    async def publish(self, context: Context, event: HumanResponseEvent) -> StopEvent:
        await asyncio.sleep(0.2)  # an upload
        if "--crash" in sys.argv:
            raise_signal(SIGKILL)
        done = "published" if event.answer == "yes" else "dropped"
        return StopEvent(result=f"{done}: {await context.store.get('text')}")


async def run(scope, answer):
    """Go on from the last saved context, or begin."""
    workflow, last = Report(), await scope.load()
    resumed = last is not None and last.state["is_running"]
    context = Context.from_dict(workflow, last.state) if resumed else Context(workflow)
    handler = workflow.run(ctx=context)
    if resumed and not any(s["queue"] or s["in_progress"] for s in last.state["workers"].values()):
        context.send_event(HumanResponseEvent(answer=answer))  # it was waiting for a person
    async for event in handler.stream_events(expose_internal=True):
        await scope.save(context.to_dict(), status=type(event).__name__)
        if isinstance(event, InputRequiredEvent):
            print(event.question, answer)
            context.send_event(HumanResponseEvent(answer=answer))
    return await handler


async def main():
    async with limpet.open_async() as store:  # $LIMPET_URL, or else limpet.db in this folder
        report = store.scope("report")
        print(await run(report, "yes"))
        asked = await anext(report.history(status="InputRequiredEvent"))
        print(await run(await report.fork(asked), "no"))  # the other answer, on a branch


asyncio.run(main())
