"""Eight kinds of traces: how the states of agents change from one save to the next.

`python -m benchmarks.traces` prints what each kind amounts to. In code:

    for step in TRACES["chat"].steps():
        scope.save(step.state)

Every state is a new dict, but what did not change is shared with the states before it: a reader
may keep states, and must not change them. Nothing is drawn by chance, so a trace is the same each
time. The text is prose of Python's documentation; files and the results of tools are modules of
the standard library (`benchmarks.prose`). No part of a trace shows the same passage twice.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import orjson
import zstandard

from benchmarks.prose import passage, passages, prose, sources
from limpet import JSON

MESSAGE_CHARS = 1024
LEVEL = 3


@dataclass(frozen=True, slots=True)
class Step:
    """What is saved next, and what of it is new."""

    state: dict[str, Any]
    change: JSON
    """The change as its author would write it: new messages and values, how many were removed."""


@dataclass(frozen=True, slots=True)
class Size:
    """What a trace amounts to, in bytes."""

    saves: int
    last: int
    """The JSON of the last state."""
    text: int
    """All text that was added, once each, in UTF-8."""
    ideal: int
    """zstd-3 of the JSON of the first state, and of the JSON of each later change by itself.

    No row, key, id or index is counted. Compressing several changes together can give less.
    """


@dataclass(frozen=True, slots=True)
class Trace:
    """One kind of trace."""

    name: str
    about: str
    make: Callable[[int], Iterator[Step]]
    saves: int

    def steps(self, saves: int | None = None) -> Iterator[Step]:
        """Yield the steps, all of them or only the first so many."""
        return self.make(self.saves if saves is None else min(saves, self.saves))

    def size(self, saves: int | None = None) -> Size:
        """Walk through the trace and add up."""
        count = last = text = ideal = 0
        compressor = zstandard.ZstdCompressor(level=LEVEL)
        for step in self.steps(saves):
            new = step.state if count == 0 else step.change
            ideal += len(compressor.compress(orjson.dumps(new)))
            text += _text_bytes(new)
            last = len(orjson.dumps(step.state))
            count += 1
        return Size(count, last, text, ideal)


def _text_bytes(value: Any) -> int:
    """Return the bytes of the text in a value; keys and words like a role's name are not text."""
    if isinstance(value, str):
        return len(value.encode()) if len(value) >= 20 else 0
    if isinstance(value, dict):
        return sum(map(_text_bytes, value.values()))
    return sum(map(_text_bytes, value)) if isinstance(value, list) else 0


ROLES = ("user", "assistant")


@dataclass
class Writer:
    """Cuts new messages out of the prose, one after another."""

    chars: int = MESSAGE_CHARS
    at: int = 0
    count: int = 0

    def text(self, chars: int) -> str:
        """Return the next passage."""
        self.at += chars
        return passage(self.at - chars, chars)

    def message(self) -> dict[str, str]:
        """Return the next message; the roles take turns."""
        self.count += 1
        role = ROLES[(self.count - 1) % 2]
        return {"role": role, "content": self.text(self.chars)}

    def messages(self, count: int) -> list[dict[str, str]]:
        """Return the next messages."""
        return [self.message() for _ in range(count)]


def conversation(turns: int) -> Iterator[list[dict[str, str]]]:
    """Yield the two messages of each turn of the chat, for 700 turns at most."""
    writer = Writer()
    for _ in range(turns):
        yield writer.messages(2)


def long_conversation(turns: int) -> Iterator[list[dict[str, str]]]:
    """Yield the two messages of each turn; after 2,500 turns or more the texts come again."""
    texts = passages(MESSAGE_CHARS)
    for turn in range(turns):
        new = (texts[(2 * turn + each) % len(texts)] for each in range(2))
        yield [{"role": role, "content": text} for role, text in zip(ROLES, new, strict=True)]


def chat(saves: int) -> Iterator[Step]:
    """A conversation, with the counter of its turns in front of the messages."""
    messages: list[Any] = []
    for turn, new in enumerate(conversation(saves), 1):
        messages = messages + new
        yield Step({"turn": turn, "messages": messages}, {"turn": turn, "messages": new})


def chat_and_counters(saves: int) -> Iterator[Step]:
    """The same conversation, with counters and times in front of the messages and behind them."""
    messages: list[Any] = []
    sent = received = 0
    for turn, new in enumerate(conversation(saves), 1):
        messages = messages + new
        sent += len(messages) * 230
        received += 230 + turn % 17
        clock = 1_750_000_000 + 37 * turn
        around = {
            "turn": turn,
            "usage": {"sent": sent, "received": received, "total": sent + received},
        }
        behind = {
            "metrics": {"calls": turn, "cost": round(sent * 3e-6 + received * 15e-6, 6)},
            "updated_at": clock + turn % 13 / 16,
            "agent": {"name": "assistant", "model": "large", "cycle": turn},
        }
        state = {**around, "messages": messages, **behind}
        yield Step(state, {**around, "messages": new, **behind})


def sliding(saves: int) -> Iterator[Step]:
    """A window of the newest 80 messages: each save adds two and drops two."""
    writer = Writer()
    window = writer.messages(80)
    for turn in range(1, saves + 1):
        new = writer.messages(2)
        window = window[2:] + new
        yield Step({"turn": turn, "messages": window}, {"turn": turn, "drop": 2, "messages": new})


def middle_edit(saves: int) -> Iterator[Step]:
    """A message in the middle gets another sentence, and a message is appended."""
    writer, random = Writer(), Random(1)
    messages = writer.messages(60)
    for turn in range(1, saves + 1):
        messages = list(messages)
        at = random.randrange(len(messages) // 4, 3 * len(messages) // 4)
        text, cut, sentence = messages[at]["content"], random.randrange(900), writer.text(90)
        messages[at] = {**messages[at], "content": text[:cut] + sentence + text[cut + 80 :]}
        new = writer.message()
        messages.append(new)
        yield Step(
            {"turn": turn, "messages": messages},
            {"turn": turn, "at": [at, cut], "text": sentence, "messages": [new]},
        )


def many_edits(saves: int) -> Iterator[Step]:
    """A board of 300 tasks with notes, of which 20 change a little at each save."""
    writer, random = Writer(), Random(2)
    words = ("open", "started", "blocked", "review", "done")
    tasks: list[dict[str, Any]] = [
        {"id": number, "status": "open", "score": 0.5, "seen": 0, "note": writer.text(900)}
        for number in range(300)
    ]
    for turn in range(1, saves + 1):
        tasks = list(tasks)
        change = []
        for at in sorted(random.sample(range(len(tasks)), 20)):
            new = {"status": random.choice(words), "score": round(random.random(), 4), "seen": turn}
            tasks[at] = {**tasks[at], **new}
            change.append([at, *new.values()])
        yield Step({"turn": turn, "tasks": tasks}, {"turn": turn, "tasks": change})


def summary(saves: int) -> Iterator[Step]:
    """A conversation whose older part is replaced by a summary as soon as it has 30 messages."""
    writer = Writer()
    text, messages = writer.text(1500), writer.messages(12)
    for turn in range(1, saves + 1):
        new = writer.messages(2)
        messages = messages + new
        change: dict[str, Any] = {"turn": turn, "messages": new}
        if len(messages) >= 30:
            text, messages = writer.text(1500), messages[-12:]
            change |= {"summary": text, "keep": 12}
        yield Step({"turn": turn, "summary": text, "messages": messages}, change)


def tool_result(saves: int) -> Iterator[Step]:
    """A conversation with tools: one step in eight reads a file of up to 200 KB."""
    writer = Writer(chars=700)
    files = [each for each in sources() if 8_000 <= len(each[1]) < 200_000]
    files.sort(key=lambda each: len(each[1]))
    # Every so many of them: small and large ones all along the way.
    files = [files[number * 53 % len(files)] for number in range(len(files))]
    messages: list[Any] = []
    for turn in range(1, saves + 1):
        new: list[Any] = writer.messages(1)
        if turn % 8 == 0:
            name, text = files[turn // 8]
            new.append({"role": "tool", "name": "read_file", "path": name, "content": text})
        messages = messages + new
        yield Step({"turn": turn, "messages": messages}, {"turn": turn, "messages": new})


def files(saves: int) -> Iterator[Step]:
    """A dict of 60 files, one of which changes: three lines are removed, others added."""
    writer, random = Writer(), Random(4)
    chosen = [each for each in sources() if 3_000 <= len(each[1]) < 9_000][:60]
    tree = dict(chosen)
    names = [name for name, _ in chosen]
    for turn in range(1, saves + 1):
        name = random.choice(names)
        lines = tree[name].split("\n")
        at = random.randrange(max(1, len(lines) - 3))
        new = "\n".join(f"# {line}" for line in writer.text(160).split("\n"))
        tree = {**tree, name: "\n".join([*lines[:at], new, *lines[at + 3 :]])}
        yield Step({"turn": turn, "files": tree}, {"turn": turn, "file": [name, at], "lines": new})


def _about(make: Callable[[int], Iterator[Step]]) -> str:
    return (make.__doc__ or "").strip()


TRACES = {
    make.__name__: Trace(make.__name__, _about(make), make, saves)
    for make, saves in (
        (chat, 500),
        (chat_and_counters, 500),
        (sliding, 500),
        (middle_edit, 300),
        (many_edits, 300),
        (summary, 400),
        (tool_result, 400),
        (files, 400),
    )
}


def main() -> None:
    """Print a table of the kinds."""
    print(f"{len(prose()):,} characters of prose\n")
    print(f"{'trace':18}{'saves':>7}{'last state':>12}{'text':>12}{'ideal':>12}  about")
    for trace in TRACES.values():
        size = trace.size()
        print(
            f"{trace.name:18}{size.saves:>7,}{size.last:>12,}{size.text:>12,}{size.ideal:>12,}"
            f"  {trace.about}"
        )


if __name__ == "__main__":
    main()
