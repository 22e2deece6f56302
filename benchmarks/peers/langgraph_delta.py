"""LangGraph's savers beneath a graph whose messages are a DeltaChannel.

`put` alone has no deltas: the runtime leaves the channel out and saves what changed with
`put_writes`. So a real graph of one node runs, and the time inside the saver is what counts: three
`put` and the `put_writes` of a turn. What the graph itself does, and reads, is left out.
"""

import threading
import time
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer

from benchmarks.peers.harness import Job, Message, drive
from benchmarks.peers.langgraph_put import OnSaver, message_of


class State(TypedDict):
    """The state of the graph."""

    turn: int
    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer)]


class Clocked:
    """Adds up what is spent inside a saver, whichever thread calls it."""

    def __init__(self, saver: Any) -> None:
        self.cpu = self.wall = 0.0
        self.lock = threading.Lock()
        put, put_writes = saver.put, saver.put_writes

        # The runtime inspects the names of the parameters.
        def clocked_writes(config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
            self.clock(lambda: put_writes(config, writes, task_id, task_path))

        saver.put = lambda *arguments: self.clock(lambda: put(*arguments))
        saver.put_writes = clocked_writes

    def clock(self, call: Callable[[], Any]) -> Any:
        """Make a call, and add what it took."""
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            return call()
        finally:
            with self.lock:
                self.cpu += time.thread_time() - cpu
                self.wall += time.perf_counter() - wall


class Delta(OnSaver):
    """One run of the graph a turn."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.clocked = Clocked(self.saver)
        graph = StateGraph(State)
        graph.add_node("answer", lambda state: {"messages": [self.answer]})
        graph.add_edge(START, "answer")
        graph.add_edge("answer", END)
        self.graph: Any = graph.compile(checkpointer=self.saver)
        self.config: Any = {"configurable": {"thread_id": "1"}}
        self.count = 0
        self.answer: Any = None

    def prepare(self, turn: int, new: list[Message]) -> None:
        """Make the user's message and the one that the node will answer."""
        user, self.answer = (message_of(m, self.count + n) for n, m in enumerate(new))
        self.count += len(new)
        self.input = {"turn": turn, "messages": [user]}

    def save(self) -> None:
        """Run the graph; every write is on the disk before the next step."""
        self.graph.invoke(self.input, self.config, durability="sync")

    def timed(self, call: Any) -> tuple[float, float]:
        """Count what the saver took, or everything if it was not asked to save."""
        cpu, wall = self.clocked.cpu, self.clocked.wall
        everything = super().timed(call)
        inside = self.clocked.cpu - cpu, self.clocked.wall - wall
        return inside if inside[1] else everything

    def load(self) -> int:
        """Get the latest state."""
        return len(self.graph.get_state(self.config).values["messages"])


if __name__ == "__main__":
    drive(Delta)
