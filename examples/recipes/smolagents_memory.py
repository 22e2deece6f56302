"""smolagents: the steps of an agent go to a store, and its memory comes back from there.

python smolagents_memory.py --crash      # books a flight, and is killed before the hotel
python smolagents_memory.py              # books only the hotel, and answers
"""

import sys
from signal import SIGKILL, raise_signal

import smolagents as sa

import limpet


class FakeModel(sa.Model):
    def generate(self, messages, **options):
        todo = [what for what in ("flight", "hotel") if f"{what} is" not in str(messages)]
        name, value = ("book", {"what": todo[0]}) if todo else ("final_answer", {"answer": "Done."})
        call = {"id": "1", "type": "function", "function": {"name": name, "arguments": value}}
        return sa.ChatMessage("assistant", tool_calls=[call])


def book(what: str) -> str:
    """Book something.

    Args:
        what: a flight or a hotel"""
    if what == "hotel" and "--crash" in sys.argv:
        raise_signal(SIGKILL)
    print("booking a", what)
    return f"the {what} is booked"


def step_from(saved, logger):
    """The way back from `step.dict()`; plans and the variables of a CodeAgent are not in it."""
    if "task" in saved:
        return sa.TaskStep(saved["task"])
    timing = sa.Timing(saved["timing"]["start_time"], saved["timing"]["end_time"])
    calls = [sa.memory.ToolCall(id=c["id"], **c["function"]) for c in saved["tool_calls"]] or None
    error = saved["error"] and sa.AgentError(saved["error"]["message"], logger)
    lost = dict.fromkeys(["model_output_message", "observations_images", "token_usage"])
    return sa.ActionStep(**{**saved, **lost, "timing": timing, "tool_calls": calls, "error": error})


def run(chat, task):
    """Give an agent the saved steps and a task. Save again after each of its steps."""
    agent = sa.ToolCallingAgent([sa.tool(book)], FakeModel(), verbosity_level=sa.LogLevel.OFF)
    saved = last.state["steps"] if (last := chat.load()) else []
    agent.memory.steps = [step_from(each, agent.logger) for each in saved]
    for step in agent.run(task, stream=True, reset=False):
        if isinstance(step, sa.ActionStep):
            chat.save({"steps": agent.memory.get_succinct_steps()})
    return step.output


with limpet.open() as store:  # $LIMPET_URL, or else limpet.db in this folder
    chat = store.scope("trip")
    print(run(chat, "Go on." if chat.load() else "Book a flight and a hotel."))
    print(run(chat.fork(list(chat.history())[-1]), "The hotel is paid."))  # after the flight
