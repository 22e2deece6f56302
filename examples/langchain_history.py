"""A LangChain chain with history that is killed in the middle of a turn, and branches.

python examples/langchain_history.py                      a SQLite file in this folder
python examples/langchain_history.py sqlite:///trip.db    your file, or any other store

Run it twice. The first run is killed while the model answers the second question. The second run
finds the first turn, asks again, and goes back to ask another question. The model is a fake: no
network is needed.
"""

import os
import signal
import sys
import warnings
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory

import limpet
from limpet.compat.langchain import LimpetChatMessageHistory

TRIP, FORK = "chain-for-lisbon", "chain-without-a-plane"
KILLED_AT: set[str] = set()  # the questions that this process does not survive
ANSWERS = {
    "Two days in Lisbon?": "Stay in Alfama, and take tram 28.",
    "How do I get there?": "Fly to Lisbon, then take the metro.",
    "And without a plane?": "Take the night train from Madrid.",
}

warnings.filterwarnings("ignore", message=".*RunnableWithMessageHistory is deprecated")


def model(messages: list[BaseMessage]) -> AIMessage:
    question = str(messages[-1].content)
    if question in KILLED_AT:
        print("  the process is killed before it has the answer", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return AIMessage(ANSWERS[question])


def ask(chain: Any, session_id: str, question: str) -> None:
    print(f"  user: {question}", flush=True)
    answer = chain.invoke(question, {"configurable": {"session_id": session_id}})
    print(f"  assistant: {answer.content}", flush=True)


def main(url: str) -> None:
    with limpet.open(url) as store:
        chain = RunnableWithMessageHistory(
            RunnableLambda(model), lambda session_id: LimpetChatMessageHistory(session_id, store)
        )
        found = len(LimpetChatMessageHistory(TRIP, store).messages)
        if found == 0:
            print("A new trip", flush=True)
            ask(chain, TRIP, "Two days in Lisbon?")
            KILLED_AT.add("How do I get there?")
            ask(chain, TRIP, "How do I get there?")
        elif found == 2:
            print(f"Found {found} messages; the last question has no answer yet")
            ask(chain, TRIP, "How do I get there?")

            print("Back to the first answer, and on from there in another conversation")
            trip = store.scope(TRIP, kind="conversation")
            *_, first_turn = trip.history()
            trip.fork(first_turn, to=FORK)
            ask(chain, FORK, "And without a plane?")
        else:
            print(f"The trip is planned. To see it: limpet show {TRIP} --url {url}")
            print(f"Delete it to begin again: limpet rm {TRIP} {FORK} --url {url}")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["sqlite:///langchain_history.db"])
