"""The sessions of the demo that are written with the plain API, and its supervised runs."""

from contextlib import suppress
from itertools import cycle, islice
from typing import Any

from limpet import runs
from limpet.api.scope import Scope
from limpet.api.store import Store
from limpet.errors import InvalidInput
from limpet.inspector.demo import stories
from limpet.inspector.demo.clock import StoryClock
from limpet.inspector.demo.shapes import Message, anthropic, messages_of, openai
from limpet.model import SnapshotInfo

BUG, PORT, STORY, IDEAS = "fix-flaky-checkout", "port-the-parser", "lighthouse-story", "ideas"
RUNS = ("import-customers", "sync-inventory", "crawl-museums", "transcode-lectures")
PORT_STEPS = 300
_PORT_FILES = ("tokens", "lexer", "names", "types", "parser", "scopes", "errors", "printer")
_PORT_DONE = ("Wrote", "Corrected", "Shortened", "Typed", "Tested")


def write_bug(store: Store, clock: StoryClock) -> None:
    """A coding agent in the format of Anthropic, that goes back once and takes another way."""
    scope = store.scope(BUG, "coder")
    clock.go_back(minutes=44)
    messages = messages_of(stories.BUG, anthropic)
    labels = {"repo": "shop", "branch": "fix/checkout-total"}
    at = stories.BUG_BRANCH_AT
    _tell(scope, clock, messages[:at], labels=labels, last="running")
    read = scope.info()
    dead_end = [*messages[:at], *messages_of(stories.BUG_DEAD_END, anthropic)]
    _tell(scope, clock, dead_end, begin=at, labels=labels, last="aborted")
    for end in range(at + 1, len(messages) + 1):
        clock.wait(30)
        status = "completed" if end == len(messages) else "running"
        parent: Any = {"parent": read} if end == at + 1 else {}
        scope.save({"messages": messages[:end]}, status=status, labels=labels, **parent)
    scope.set_note("title", "A flaky test that was a real bug")
    scope.set_note("review", {"stars": 5, "by": "Priya"}, on=scope.info())


def write_support(store: Store, clock: StoryClock) -> None:
    """Chats in the format of OpenAI, in several languages; one is hostile."""
    statuses = cycle(("completed", "waiting", "completed", "blocked"))
    for at, (session_id, (title, story)) in enumerate(stories.SUPPORT.items()):
        scope = store.scope(session_id, "support")
        clock.go_back(minutes=3 + 60 * 5 * at)
        messages = messages_of(story, openai)
        labels = {"queue": "orders", "language": ("ar", "ja", "he", "en")[at]}
        _tell(scope, clock, messages, labels=labels, last=next(statuses), pace_s=11)
        scope.set_note("title", title)


def write_port(store: Store, clock: StoryClock) -> None:
    """A long history: several hundred steps, with dead ends and forks."""
    scope = store.scope(PORT, "coder")
    dead_ends, forks = {60: 4, 140: 7, 142: 2, 230: 9, 293: 3}, {110: "by-hand", 288: "with-regex"}
    clock.go_back(minutes=60 * 24 * 5)
    for step, name in enumerate(islice(cycle(_PORT_FILES), PORT_STEPS)):
        clock.wait(30 + step * 37 % 130)
        status = "completed" if step == PORT_STEPS - 1 else ""
        said = f"{_PORT_DONE[step % 5]} `{name}.py`: {step + 9} of {PORT_STEPS + 8} tests pass."
        head = last = _append(scope, said, status, {"file": f"{name}.py"})
        for end in range(dead_ends.get(step, 0)):
            clock.wait(50)
            state: Any = {"messages": [_said(f"Try {end + 1}: a shorter grammar for the types.")]}
            last = scope.save(state, parent=last, head=False, status="aborted")
            scope.set_note("verdict", "slower, and not shorter", on=last)
        if step in forks:
            fork = scope.fork(head, scope_id=f"coder~{forks[step]}")
            for part in range(1, 7):
                clock.wait(5)
                said = f"The lexer {forks[step].replace('-', ' ')}, part {part} of 20."
                _append(fork, said, "" if part < 6 else "cancelled", {"file": "lexer.py"})
    scope.set_note("title", "Port the parser to Python, file by file")


def _append(scope: Scope, said: str, status: str, labels: dict[str, str]) -> SnapshotInfo:
    return scope.append("messages", [_said(said)], status=status, labels=labels)


def write_drafts(store: Store, clock: StoryClock) -> None:
    """A story whose last sentence is being written, and a session that has only notes."""
    scope = store.scope(STORY, "writer")
    clock.go_back(minutes=8)
    asked: Message = {"role": "user", "content": "A story about a lighthouse, very short. 🌊"}
    scope.save({"messages": [asked]}, status="running", labels={"model": "small"})
    words = stories.LIGHTHOUSE.split(" ")
    for end in range(10, len(words) + 1, 10):
        clock.wait(2)
        told = {"role": "assistant", "content": " ".join(words[:end])}
        scope.save({"messages": [asked, told]}, status="running", keep=False)
    clock.go_back(minutes=60 * 24 * 9)
    ideas = store.scope(IDEAS)
    ideas.set_note("title", "Ideas for later")
    ideas.set_note("list", ["a chess tutor", "a bird-song quiz", "sort the photographs"])


def write_runs(store: Store, clock: StoryClock, url: str) -> None:
    """Runs that completed, failed, were aborted, and lost their worker."""
    from limpet.opening import open as open_store

    completed, failed, aborted, lost = RUNS
    clock.go_back(minutes=60 * 8)
    with runs.start(store, completed, task="import", owner="worker-1") as run:
        for rows in range(500, 3000, 500):
            clock.wait(44)
            run.step({"rows": rows, "bad_rows": rows // 900}, keep=True)
    clock.go_back(minutes=60 * 2)
    with suppress(ConnectionError), runs.start(store, failed, task="sync", owner="worker-2") as run:
        for page in range(1, 5):
            clock.wait(20)
            run.step({"page": page, "changed": page * 13}, keep=True, labels={"shop": "berlin"})
        raise ConnectionError("inventory.example.org:443 refused the connection (3 attempts)")
    clock.go_back(minutes=60 * 20)
    with suppress(runs.Aborted), runs.start(store, aborted, task="crawl", owner="worker-1") as run:
        run.step({"pages": 412, "queue": 90_117}, keep=True)
        runs.abort(store, aborted)
        run.step({"pages": 413, "queue": 90_204})
    clock.go_back(minutes=35)
    # Its worker loses the store in the middle of a step, and can neither go on nor say so.
    with suppress(InvalidInput), open_store(url) as worker:
        worker.driver.opened.tools = store.driver.tools
        with runs.start(worker, lost, task="transcode", owner="worker-3") as run:
            for lecture in range(1, 8):
                clock.wait(30)
                run.step({"lecture": lecture, "of": 40, "codec": "av1"}, keep=True)
            worker.close()


def _said(text: str) -> Any:
    return {"role": "assistant", "content": text}


def _tell(
    scope: Scope,
    clock: StoryClock,
    messages: list[Message],
    *,
    begin: int = 0,
    labels: dict[str, str],
    last: str,
    pace_s: float = 25,
) -> None:
    """Save a chat after each of its messages."""
    for end in range(begin + 1, len(messages) + 1):
        clock.wait(pace_s)
        status = last if end == len(messages) else "running"
        state: Any = {"messages": messages[:end]}
        scope.save(state, status=status, labels=labels, metadata={"tokens": 210 * end})
