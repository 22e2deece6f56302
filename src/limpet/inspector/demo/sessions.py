"""The sessions of the demo, written with the plain API and as each framework writes them."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from itertools import cycle, islice
from typing import Any
from uuid import UUID

from limpet import runs
from limpet.api.scope import Scope
from limpet.api.store import Store
from limpet.compat import agentos, genkit, strands
from limpet.compat import runs as go_runs
from limpet.core.times import from_us
from limpet.errors import InvalidInput
from limpet.inspector.demo import stories
from limpet.model import SnapshotInfo
from limpet.opening import open as open_store
from limpet.protocol import Stamp

BUG, PORT, STORY, IDEAS = "fix-flaky-checkout", "port-the-parser", "lighthouse-story", "ideas"
RUNS = ("import-customers", "sync-inventory", "crawl-museums", "transcode-lectures")
PORT_STEPS = 300
_PORT_FILES = ("tokens", "lexer", "names", "types", "parser", "scopes", "errors", "printer")
_PORT_DONE = ("Wrote", "Corrected", "Shortened", "Typed", "Tested")
_DRAW_US = 1_000


class StoryClock:
    """A clock that each story sets back. Its random bits are the same each time."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._at_us = 0
        self._draws = 0
        self.go_back(0)

    @property
    def now(self) -> datetime:
        return from_us(self._at_us)

    def go_back(self, minutes: float) -> None:
        """Set the time to so long before the demo was made."""
        moment = self._now - timedelta(minutes=minutes)
        self._at_us = (moment - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)

    def wait(self, seconds: float) -> None:
        self._at_us += int(seconds * 1_000_000)

    def draw(self) -> Stamp:
        self._draws += 1
        self._at_us += _DRAW_US
        chance = blake2b(b"%d" % self._draws, digest_size=18).digest()
        return Stamp(self._at_us, chance[:8].hex(), int.from_bytes(chance[8:]))


def write_bug(store: Store, clock: StoryClock) -> None:
    """A coding agent in the format of Anthropic, that goes back once and takes another way."""
    scope = store.scope(BUG, "coder")
    clock.go_back(minutes=44)
    messages = stories.messages_of(stories.BUG, stories.anthropic)
    labels = {"repo": "shop", "branch": "fix/checkout-total"}
    at = stories.BUG_BRANCH_AT
    _tell(scope, clock, messages[:at], labels=labels, last="running")
    read = scope.info()
    dead_end = [*messages[:at], *stories.messages_of(stories.BUG_DEAD_END, stories.anthropic)]
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
    for at, (session_id, told) in enumerate(stories.SUPPORT.items()):
        scope = store.scope(session_id, "support")
        clock.go_back(minutes=3 + 60 * 5 * at)
        messages = stories.messages_of(told["story"], stories.openai)
        labels = {"queue": "orders", "language": ("ar", "ja", "he", "en")[at]}
        _tell(scope, clock, messages, labels=labels, last=next(statuses), pace_s=11)
        scope.set_note("title", told["title"])


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
    asked: stories.Message = {
        "role": "user",
        "content": "A story about a lighthouse, very short. 🌊",
    }
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
    messages: list[stories.Message],
    *,
    begin: int = 0,
    labels: dict[str, str],
    last: str,
    pace_s: float = 25,
) -> None:
    for end in range(begin + 1, len(messages) + 1):
        clock.wait(pace_s)
        status = last if end == len(messages) else "running"
        state: Any = {"messages": messages[:end]}
        scope.save(state, status=status, labels=labels, metadata={"tokens": 210 * end})


# Written through the interface of a framework, as its agents do.

TRIP, KELP, INVOICE = "night-train-to-venice", "kelp-forests", "invoices/2041"
NEWSROOM, DIGEST, GRAPH_RUN, GRAPH = "newsroom", "nightly-digest-", "annual-report-2026", "report"
READER = {"auth": {"uid": "maria"}}
_GREGORIAN_TICKS = 0x01B21DD213814000  # from 1582 to 1970, in tenths of a microsecond


async def write_trip(store: Store, clock: StoryClock) -> None:
    """Strands: a planner, and three forks of it, of which one is the fork of a fork."""
    storage = strands.StoreStorage(store)
    place = strands.SnapshotLocation(TRIP, "agent", "planner")
    messages = stories.messages_of(stories.TRIP, stories.strands)
    clock.go_back(minutes=190)
    ids = []
    for end in range(1, len(messages) + 1):
        clock.wait(21)
        if end == stories.TRIP_FORK_AT + 2:
            clock.go_back(minutes=70)  # they have slept on it, and looked at the forks
        data: Any = {"messages": messages[:end], "systemPrompt": stories.TRIP_PROMPT}
        facts = {"status": "running" if end < len(messages) else "completed", "tokens": 640 * end}
        taken = strands.Snapshot("agent", "1.0", clock.now.isoformat(), data, facts)
        ids.append(f"turn-{end:02}")
        await storage.save_snapshot(place, ids[-1], is_latest=False, snapshot=taken)
    await storage.save_snapshot(place, "latest", is_latest=True, snapshot=taken)
    planner = store.scope(TRIP, "planner")
    planner.set_note("title", "Night train to Venice")
    at = ids[stories.TRIP_FORK_AT]
    clock.go_back(minutes=150)
    by_day = _continue(planner.fork(at, scope_id="by-day"), clock, stories.TRIP_BY_DAY)
    clock.go_back(minutes=130)
    _continue(planner.fork(at, scope_id="cheaper"), clock, stories.TRIP_CHEAP)
    clock.go_back(minutes=95)
    head: Any = by_day.info()
    villach = _continue(by_day.fork(head, scope_id="villach"), clock, stories.TRIP_STOP)
    villach.set_note("title", "To Venice by day, with a night in Villach")


def _continue(scope: Scope, clock: StoryClock, story: Sequence[stories.Beat]) -> Scope:
    messages = stories.messages_of(story, stories.strands)
    for left, message in zip(reversed(range(len(messages))), messages, strict=True):
        clock.wait(24)
        scope.append("messages", [message], status="running" if left else "completed")
    return scope


async def write_newsroom(store: Store, clock: StoryClock) -> None:
    """Strands: the state of several agents that work together."""
    clock.go_back(minutes=60 * 30)
    said = {
        "reporter": "The bridge opens on Monday, after nine years. It was planned for three.",
        "checker": "Nine years is right. The plan said four, not three: see the council's minutes.",
        "editor": "**Bridge opens after nine years.** It was planned for four.",
    }
    results = {
        name: {"result": {"message": {"role": "assistant", "content": [{"text": text}]}}}
        for name, text in said.items()
    }
    state = {"current_task": "Three sentences about the new bridge.", "node_results": results}
    data: Any = {"orchestrator_id": "desk", "state": state}
    taken = strands.Snapshot("multiAgent", "1.0", clock.now.isoformat(), data)
    place = strands.SnapshotLocation(NEWSROOM, "multiAgent", "desk")
    storage = strands.StoreStorage(store)
    await storage.save_snapshot(place, "edition-1", is_latest=False, snapshot=taken)
    await storage.save_snapshot(place, "latest", is_latest=True, snapshot=taken)


async def write_kelp(store: Store, clock: StoryClock) -> None:
    """Genkit: a turn that failed and was tried again, and a run that nobody hears from."""
    sessions = genkit.SessionStore[Any](store)
    messages = stories.messages_of(stories.KELP, stories.genkit)
    clock.go_back(minutes=60 * 26)

    async def save(id: str, parent: str | None, end: int, status: str, **more: Any) -> str:
        clock.wait(40)
        row = {"sessionId": KELP, "parentId": parent, "status": status, **more}
        row["state"] = {"messages": messages[:end], "custom": {"words_max": 300}}
        await sessions.save_snapshot(id, lambda _: row, context=READER)
        return id

    last = await save("turn-1", None, 3, "completed")
    error = {"status": "DEADLINE_EXCEEDED", "message": "the model did not answer within 60 s"}
    await save("turn-2", last, 4, "failed", error=error)
    last = await save("turn-2-again", last, 6, "completed")
    await save("turn-3-draft", last, 7, "aborted")
    last = await save("turn-3", last, 8, "completed", finishReason="stop")
    clock.go_back(minutes=18)
    await save("fact-check", last, 8, "pending", heartbeatAt=clock.now)
    store.scope(f"maria/{KELP}").set_note("title", "Sea otters and kelp, for the school newspaper")


async def write_report(store: Store, clock: StoryClock) -> None:
    """AgentOS: a checkpoint for each node of a graph, and a fork with another tone."""
    checkpoints = agentos.CheckpointStore(store)
    clock.go_back(minutes=60 * 52)
    state: dict[str, Any] = {"input": {"year": 2025}, "scratch": {"tone": "calm"}}
    state |= {"artifacts": {}, "diagnostics": {"tokens": 0}}
    written = {
        "gather": {"members": 1204, "boats": 31, "rescues": 17, "cake_sales_euros": 2350.5},
        "outline": ["The year in numbers", "The storm in March", "Thanks"],
        "draft": "In 2025 our 31 boats went out 17 times. Nobody was lost, and one dog was found.",
        "review": {"approved": True, "remarks": ["Name the dog."]},
    }
    done: list[str] = []
    for node, result in written.items():
        clock.wait(75)
        state["artifacts"][node] = result
        state["diagnostics"]["tokens"] += 1800
        done.append(node)
        at = int(clock.now.timestamp() * 1000)
        place = (f"{GRAPH_RUN}-{node}", GRAPH, GRAPH_RUN, node, at)
        await checkpoints.save(agentos.Checkpoint(*place, state, visited_nodes=[*done]))
    clock.go_back(minutes=60 * 50)
    fork = await checkpoints.fork(f"{GRAPH_RUN}-outline", {"scratch": {"tone": "like a pirate"}})
    for run_id, title in (
        (GRAPH_RUN, "The year of the lifeboats"),
        (fork, "The same, as a pirate"),
    ):
        store.scope(run_id, GRAPH, "graph").set_note("title", title)


def write_digests(store: Store, clock: StoryClock) -> None:
    """A Go agent: one checkpoint for each run."""
    saved = go_runs.RunStore(store)
    for day, news in enumerate(("Rain until noon.", "The ferry is late.")):
        clock.go_back(minutes=60 * (24 * (2 - day) - 6))
        story = ({"user": "Write the digest of the night."}, {"say": f"03:00. {news}"})
        saved.save(
            go_runs.Checkpoint(
                f"{DIGEST}{day + 12}",
                "digest",
                iteration=4 + day,
                messages=[*stories.messages_of(story, stories.anthropic)],
                system_prompt="One line for each hour in which something happened.",
                input_tokens=9_120 + 310 * day,
                output_tokens=412,
                created_at=clock.now,
            )
        )


def write_invoice(store: Store, clock: StoryClock) -> None:
    """LangGraph: a thread that waits for a person; an earlier answer is a branch of it."""
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langgraph.types import Interrupt

    from limpet.compat.langgraph import LimpetSaver

    saver = LimpetSaver(store)
    question = "The invoice is € 180 higher than the order PO-118. Approve it anyway?"
    calls = [
        {"name": name, "args": args, "id": f"call-{name}"}
        for name, args in (("read_invoice", {"number": 2041}), ("read_order", {"id": "PO-118"}))
    ]
    steps: list[list[Any]] = [
        [HumanMessage("Check invoice 2041 before it is paid on Friday.", id="m-1")],
        [AIMessage("", tool_calls=calls, id="m-2")],
        [
            ToolMessage(
                str(stories.INVOICE), tool_call_id=calls[0]["id"], name="read_invoice", id="m-3"
            ),
            ToolMessage(
                str(stories.ORDER), tool_call_id=calls[1]["id"], name="read_order", id="m-4"
            ),
        ],
        [AIMessage(question, id="m-5")],
    ]
    no = [HumanMessage("No. Ask them why.", id="m-6"), AIMessage("I have asked them.", id="m-7")]
    clock.go_back(minutes=55)
    config: Any = {"configurable": {"thread_id": INVOICE, "checkpoint_ns": ""}}

    def put(config: Any, messages: list[Any], step: int) -> Any:
        clock.wait(9)
        drawn = clock.draw()
        checkpoint: Any = {
            "v": 4,
            "id": _uuid6(drawn),
            "ts": clock.now.isoformat(),
            "channel_values": {"messages": messages, "invoice": stories.INVOICE},
            "channel_versions": {"messages": f"{step + 2:032}.0", "invoice": f"{1:032}.0"},
            "versions_seen": {},
        }
        meta: Any = {"source": "input" if step < 0 else "loop", "step": step, "parents": {}}
        return saver.put(config, checkpoint, meta, checkpoint["channel_versions"])

    said: list[Any] = []
    for step, more in enumerate(steps, start=-1):
        said += more
        config = put(config, said, step)
    put(config, said + no, len(steps) - 1)
    clock.go_back(minutes=12)
    config = put(config, said, len(steps) - 1)
    asked = Interrupt(value={"question": question, "options": ["approve", "reject"]}, id="ask-1")
    saver.put_writes(config, [("__interrupt__", (asked,))], "task-approve")
    store.scope(INVOICE, kind="thread").set_note("title", "Invoice 2041 waits for approval")


def _uuid6(drawn: Stamp) -> str:
    """Return an id as LangGraph makes them, which sort by their time."""
    ticks = drawn.now * 10 + _GREGORIAN_TICKS
    high, low = ticks >> 12 << 80, (ticks & 0xFFF) << 64
    return str(UUID(int=high | 6 << 76 | low | 2 << 62 | drawn.bits % 2**62))


def fill(url: str, *, now: datetime | None = None) -> list[str]:
    """Write the sessions of the demo into an empty store, as if over the last days.

    With the same `now`, all ids, texts and times are the same. Returns a line for each session
    that was left out because its package is not installed.
    """
    left_out: list[str] = []
    with open_store(url) as store:
        tools = store.driver.tools
        clock = StoryClock(now or from_us(tools.draw().now))
        store.driver.opened.tools = tools._replace(draw=clock.draw)
        for write in (write_port, write_bug, write_support, write_drafts):
            write(store, clock)
        write_runs(store, clock, url)
        write_digests(store, clock)
        with ThreadPoolExecutor(1) as pool:  # the caller's thread may have a loop already
            pool.submit(asyncio.run, _write_async(store, clock)).result()
        try:
            write_invoice(store, clock)
        except ImportError:
            hint = "pip install 'limpet[langgraph]'"
            left_out.append(f"the session of LangGraph is left out: it needs {hint}")
    return left_out


async def _write_async(store: Store, clock: StoryClock) -> None:
    for write in (write_trip, write_newsroom, write_kelp, write_report):
        await write(store, clock)
