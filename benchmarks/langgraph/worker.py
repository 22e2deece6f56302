"""A process that runs the graph over one saver.

`talk SAVER ADDRESS FILE` runs the next turn of a conversation for each line on stdin, and prints
what it took. `walk SAVER ADDRESS` reads the whole history, and `load SAVER ADDRESS` the latest
state. Each answer is one line of JSON. A saver may have a variant: `delta`, `encrypted` or `async`.
"""

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer

import limpet
from limpet.compat.langgraph import LimpetSaver

ALONE = "alone"
THREAD: Any = {"configurable": {"thread_id": "1"}}
STATUS = Path("/proc/self/status")


class DeltaState(TypedDict):
    """The state of a graph that does without whole lists of messages in its checkpoints."""

    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer)]


class LastInMemory(BaseCheckpointSaver[int]):
    """Keeps the last checkpoint as an object, and nothing else: what LangGraph takes by itself."""

    last: CheckpointTuple | None = None

    def get_tuple(self, config: Any) -> CheckpointTuple | None:
        """Return it."""
        return self.last

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        """Keep it."""
        named = {**config["configurable"], "checkpoint_id": checkpoint["id"]}
        self.last = CheckpointTuple({"configurable": named}, checkpoint, metadata, config, [])
        return self.last.config

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        """Forget them."""


class Aes:
    """The cipher of the encrypted variants: AES-GCM."""

    def __init__(self) -> None:
        self._aes = AESGCM(b"0123456789abcdef" * 2)

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        """Return a nonce and the ciphertext."""
        nonce = os.urandom(12)
        return "aes-gcm", nonce + self._aes.encrypt(nonce, plaintext, None)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        """Return the plaintext."""
        return self._aes.decrypt(ciphertext[:12], ciphertext[12:], None)


@contextmanager
def opened(name: str, variant: str, place: str) -> Iterator[Any]:
    """Open a saver as its documentation does."""
    serde = EncryptedSerializer(Aes()) if variant == "encrypted" else None
    if name == "limpet":
        with limpet.open(place) as store:
            yield LimpetSaver(store, serde=serde)
    elif name == "postgres":
        with PostgresSaver.from_conn_string(place) as postgres:
            postgres.setup()
            yield postgres
    elif name == ALONE:
        yield LastInMemory()
    elif variant == "async":
        manager = AsyncSqliteSaver.from_conn_string(place)
        with asyncio.Runner() as runner:
            yield runner.run(manager.__aenter__())
            runner.run(manager.__aexit__(None, None, None))
    else:
        with SqliteSaver.from_conn_string(place) as sqlite:
            if serde is not None:
                sqlite.serde = serde
            yield sqlite


class Talk:
    """A graph of one node, which answers what comes next in a conversation."""

    def __init__(self, saver: Any, variant: str) -> None:
        self._answer = ""
        graph: Any = StateGraph(DeltaState if variant == "delta" else MessagesState)
        graph.add_node("answer", lambda _: {"messages": [AIMessage(self._answer)]})
        graph.add_edge(START, "answer")
        self.graph = graph.compile(checkpointer=saver)
        self._loop = asyncio.new_event_loop() if variant == "async" else None
        if isinstance(saver, AsyncSqliteSaver):
            self._loop = saver.loop

    def turn(self, user: str, assistant: str) -> None:
        """Run one turn, with LangGraph's default durability."""
        self._answer = assistant
        said = {"messages": [HumanMessage(user)]}
        if self._loop is None:
            self.graph.invoke(said, THREAD)
        else:
            self._loop.run_until_complete(self.graph.ainvoke(said, THREAD))


def talk(graph: Talk, file: str) -> Iterator[dict[str, float]]:
    """Run one turn for each line on stdin."""
    turns = json.loads(Path(file).read_text(encoding="utf-8"))
    for (user, assistant), _ in zip(turns, sys.stdin, strict=False):
        wall, cpu = time.perf_counter(), time.process_time()
        graph.turn(user["content"], assistant["content"])
        yield {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def walk(graph: Talk) -> Iterator[dict[str, float]]:
    """Go through all checkpoints, the newest first, and keep none of them."""
    before, cpu, start = peak_mb(), time.process_time(), time.perf_counter()
    first, count, messages = 0.0, 0, 0
    for state in graph.graph.get_state_history(THREAD):
        first = first or time.perf_counter() - start
        count += 1
        messages += len(state.values.get("messages", ()))
    wall = time.perf_counter() - start
    yield {
        "first": first,
        "wall": wall,
        "cpu": time.process_time() - cpu,
        "count": count,
        "messages": messages,
        "before_mb": before,
        "peak_mb": peak_mb(),
    }


def load(graph: Talk) -> Iterator[dict[str, float]]:
    """Read the latest state, as when a thread is continued; then the first of `list`."""
    start = time.perf_counter()
    count = len(graph.graph.get_state(THREAD).values["messages"])
    wall = time.perf_counter() - start
    start = time.perf_counter()
    next(iter(graph.graph.checkpointer.list(THREAD)))
    yield {"wall": wall, "messages": count, "listed": time.perf_counter() - start}


def peak_mb() -> float:
    """Return the most memory that this process held at once.

    On Linux `getrusage` returns the value of the process that started this one, if it was more.
    """
    if STATUS.exists():
        (line,) = (each for each in STATUS.read_text().splitlines() if each.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def main(verb: str, saver: str, place: str, *arguments: str) -> None:
    """Do what is asked."""
    verbs: dict[str, Callable[..., Iterator[dict[str, float]]]]
    verbs = {"talk": talk, "walk": walk, "load": load}
    name, _, variant = saver.partition("-")
    with opened(name, variant, place) as opened_saver:
        graph = Talk(opened_saver, variant)
        for answer in verbs[verb](graph, *arguments):
            sys.stdout.write(f"{json.dumps(answer)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
