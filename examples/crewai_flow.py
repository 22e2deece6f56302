"""A CrewAI flow that is killed in the middle of a turn, finishes it, and branches.

python examples/crewai_flow.py                      a SQLite file in this folder
python examples/crewai_flow.py sqlite:///trip.db    your file, or any other store

Run it twice. The first run is killed after it has saved a question and before it has the answer.
The second run finds the question, answers it, and goes back to try something else. The model is a
fake: no network is needed.
"""

import os
import signal
import sys

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true"}

from crewai.flow.flow import Flow, listen, start
from crewai.flow.persistence import persist
from pydantic import BaseModel

import limpet
from limpet.compat.crewai import LimpetFlowPersistence

TRIP = "weekend-in-lisbon"
KILLED_AT: set[str] = set()  # the questions that this process does not survive
ANSWERS = {
    "Two days in Lisbon?": "Stay in Alfama, and take tram 28.",
    "How do I get there?": "Fly to Lisbon, then take the metro.",
    "And without a plane?": "Take the night train from Madrid.",
}


# The agent


class Trip(BaseModel):
    """The state of the flow."""

    id: str = ""
    question: str = ""
    messages: list[dict[str, str]] = []


def model(question: str) -> str:
    if question in KILLED_AT:
        print("  the process is killed before it has the answer", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return ANSWERS[question]


class Planner(Flow[Trip]):
    """Each method is a step, and its state is saved when it is completed."""

    @start()
    def hear(self) -> None:
        if self.state.question:  # none: only the last one is to be answered
            self.state.messages.append({"role": "user", "content": self.state.question})
            self.state.question = ""

    @listen(hear)
    def answer(self) -> None:
        said = model(self.state.messages[-1]["content"])
        self.state.messages.append({"role": "assistant", "content": said})


def ask(planner: type[Flow[Trip]], id: str, question: str = "") -> None:
    """Have one turn: restore the flow with this id, and run it."""
    flow = planner(suppress_flow_events=True)
    flow.kickoff(inputs={"id": id, "question": question})
    for message in flow.state.messages[-2:]:
        print(f"  {message['role']}: {message['content']}", flush=True)


# The two runs


def begin(planner: type[Flow[Trip]]) -> None:
    print("A new trip", flush=True)
    ask(planner, TRIP, "Two days in Lisbon?")
    KILLED_AT.add("How do I get there?")
    ask(planner, TRIP, "How do I get there?")


def go_on(planner: type[Flow[Trip]], store: limpet.Store, url: str) -> None:
    steps = list(store.scope(TRIP, kind="flow").history())[::-1]
    print(f"Found {len(steps)} saved steps:", ", ".join(each.labels["method"] for each in steps))

    print("The last question has no answer yet")
    ask(planner, TRIP)

    print("Back to the first answer, and on from there in another direction")
    fork = LimpetFlowPersistence(store).fork(TRIP, steps[1])
    ask(planner, fork, "And without a plane?")

    for name, id in (("the trip", TRIP), ("the fork", fork)):
        found = store.scope(id, kind="flow").load()
        assert found is not None
        count = len(found.state["messages"])
        print(f"Now {name} has {count} messages: limpet show --url {url} {id}")


def main(url: str) -> None:
    with limpet.open(url) as store:
        persistence = LimpetFlowPersistence(store)
        planner = persist(persistence)(Planner)
        state = persistence.load_state(TRIP)
        if state is None:
            begin(planner)
        elif state["messages"][-1]["role"] == "user":
            go_on(planner, store, url)
        else:
            print(f"The trip is planned. Delete it to begin again: limpet rm {TRIP} --url {url}")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["sqlite:///crewai_flow.db"])
