"""A LangGraph agent that asks before it books, is killed twice, and does nothing twice.

python examples/langgraph_approval.py                    a SQLite file in a temporary folder
python examples/langgraph_approval.py sqlite:///trip.db  a file of yours, or any other store

The process that asks is killed while it waits for the answer, the one that got the answer between
its two bookings. A third one does what is missing. Then it goes back to the question and gets
another answer. The model is a fake one: nothing here needs a network.
"""

import multiprocessing
import operator
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt

import limpet
from limpet.compat.langgraph import LimpetSaver

TRIP: Any = {"configurable": {"thread_id": "trip-to-lisbon"}}
LIMPET = Path(sys.executable).with_name("limpet")
WAIT_S_MAX = 60.0
SLOW: set[str] = set()  # what does not answer in this process


def say(line: str) -> None:
    print(f"{line}\n", end="", flush=True)  # in one go, as two bookings say things at a time


# The agent


class State(MessagesState):
    """The conversation, and what was really booked."""

    booked: Annotated[list[str], operator.add]


def model(messages: list[AnyMessage]) -> AIMessage:
    """Answer as a model would that knows two ways to Lisbon."""
    if isinstance(messages[-1], ToolMessage):
        return AIMessage("All booked. Have a good trip!")
    way = "train" if "train" in messages[-1].text else "flight"
    calls = [(way, {"to": "Lisbon", "day": "May 4"}), ("hotel", {"in": "Alfama", "nights": 2})]
    tools = [{"name": name, "args": args, "id": f"call-{name}"} for name, args in calls]
    return AIMessage(f"I would take a {way}, and a hotel in Alfama.", tool_calls=tools)


def plan(state: State) -> dict[str, Any]:
    say("  plan")
    return {"messages": [model(state["messages"])]}


def approve(state: State) -> Command[Literal["book", "plan"]]:
    """Wait for a person who says yes, or what should be different."""
    (*_, proposal) = state["messages"]
    assert isinstance(proposal, AIMessage)
    calls = proposal.tool_calls
    answer = interrupt({"may I book?": [each["name"] for each in calls]})
    if answer == "yes":
        return Command(goto=[Send("book", each) for each in calls])
    return Command(goto="plan", update={"messages": [*refused(calls), HumanMessage(answer)]})


def refused(calls: list[Any]) -> list[ToolMessage]:
    return [ToolMessage("not booked", tool_call_id=each["id"]) for each in calls]


def book(call: Any) -> dict[str, Any]:
    """Do what must not be done twice."""
    name = call["name"]
    if name in SLOW:
        say(f"  the {name} does not answer")
        time.sleep(WAIT_S_MAX)
    say(f"  book the {name}")
    return {"messages": [ToolMessage("booked", tool_call_id=call["id"])], "booked": [name]}


def report(state: State) -> dict[str, Any]:
    say("  report")
    return {"messages": [model(state["messages"])]}


def agent(store: limpet.Store) -> Any:
    """Return the graph over a store: `LimpetSaver` is all that LangGraph needs to know of it."""
    graph = StateGraph(State)
    nodes: list[Any] = [plan, approve, book, report]
    for node in nodes:
        graph.add_node(node.__name__, node)
    graph.add_edge(START, "plan")
    graph.add_edge("plan", "approve")
    graph.add_edge("book", "report")
    return graph.compile(checkpointer=LimpetSaver(store))


# The processes


def ask(url: str) -> None:
    """The process that asks, and is killed before it gets an answer."""
    with limpet.open(url) as store:
        agent(store).invoke({"messages": [HumanMessage("Two days in Lisbon?")]}, TRIP)
        time.sleep(WAIT_S_MAX)


def answer(url: str) -> None:
    """The process that gets the answer, and hangs in the middle of the bookings."""
    SLOW.add("hotel")
    with limpet.open(url) as store:
        trip = agent(store)
        for thread_id in LimpetSaver(store).threads():
            waiting = trip.get_state({"configurable": {"thread_id": thread_id}}).interrupts
            say(f"  {thread_id} waits for an answer: {waiting[0].value}")
        trip.invoke(Command(resume="yes"), TRIP)


def killed(work: Callable[[str], None], url: str, when: Callable[[], bool]) -> None:
    """Let a process work until something is in the store, and kill it."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=(url,))
    process.start()
    ends = time.monotonic() + WAIT_S_MAX
    while not when():
        assert process.is_alive()
        assert time.monotonic() < ends
        time.sleep(0.05)
    process.kill()  # with SIGKILL: it cannot clean up
    process.join()
    say(f"  the process is killed: {process.exitcode}")


def has_booked(saver: LimpetSaver, name: str) -> bool:
    """Return whether a booking is stored, although its step is not finished."""
    found = saver.get_tuple(TRIP)
    writes = found.pending_writes if found is not None else None
    return any(value == [name] for _, _, value in writes or [])


def main(url: str) -> None:
    with limpet.open(url) as store:
        trip, saver = agent(store), LimpetSaver(store)
        saver.delete_thread("trip-to-lisbon")

        say("A process plans a trip, and asks")
        killed(ask, url, lambda: bool(trip.get_state(TRIP).interrupts))

        say("\nAnother process finds the question, and is told yes")
        killed(answer, url, lambda: has_booked(saver, "flight"))

        say("\nThis process does what is missing")
        state = trip.invoke(None, TRIP)
        say(f"  booked: {' and '.join(state['booked'])}")

        say("\nBack in time, to the question")
        history = list(trip.get_state_history(TRIP))
        for each in reversed(history):
            count = len(each.values.get("messages", []))
            say(f"  step {each.metadata['step']:2}  {count} messages  next: {', '.join(each.next)}")
        (asked,) = (each for each in history if each.next == ("approve",))

        say("\nA fork of it, with another answer")
        trip.invoke(None, asked.config)  # asks again
        trip.invoke(Command(resume="I would rather take a train."), TRIP)
        say(f"  {trip.get_state(TRIP).interrupts[0].value}")
        state = trip.invoke(Command(resume="yes"), TRIP)
        say(f"  booked: {' and '.join(state['booked'])}")

        say("\nThe same store on the command line")
        for arguments in (["log", "trip-to-lisbon", "--graph", "-m"], ["show", "trip-to-lisbon"]):
            say(f"\n$ limpet {' '.join(arguments)} --url {url}")
            subprocess.run([LIMPET, *arguments, "--url", url], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:] or [f"sqlite:///{tempfile.mkdtemp(prefix='limpet-')}/trip.db"])
