"""Trees of snapshots for tests: states that change as agents' states do, and a model of a file.

The model (`Forest`) holds the exact JSON text of every snapshot that is alive, and what the store
said of it. It does each verb on a real store and on itself, and `verify` compares all of it.
"""

import json
import random
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
import pytest
import zstandard

import limpet
from limpet import JSON, InvalidInput, ScopeKey, SnapshotInfo, Store

TEXT: Final = (
    "the agent reads a file and tells what it found there then asks the tool again because its "
    "answer was too long for one turn of this plan which has seven steps of different weight and "
    'returns error code timeout retry import path value result 0x1f {\\} ["quoted"] über naïve 🦀'
)
WORDS: Final = TEXT.split()
BIG: Final = 400_000  # bytes of a state, beyond which the next step makes it short again
BASE: Final[dict[str, JSON]] = {
    "version": 1,
    "counters": {"steps": 0, "tokens": 0},
    # Looks like what an append must find, and is not it.
    "decoy": {"messages": ['"messages":[', "]", "["], "text": '"log":[]}'},
    "messages": [],
    "files": {f"src/file_{n}.py": f"line {n}\n" * 40 for n in range(8)},
    "log": [],
    "after": {"cost": 0.0, "note": "nothing yet"},
}


class Step(NamedTuple):
    """A state that followed from another: how many bytes of it are new, in how many places."""

    state: JSON
    changed: int
    places: int


def text_of(state: JSON) -> bytes:
    """Return the exact encoding of a state, in the order of its keys."""
    try:
        return orjson.dumps(state)
    except TypeError:  # an integer beyond 64 bits: the standard library writes it, and a mark
        text = json.dumps(state, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return b" " + text.encode()


def prose(chance: random.Random, words: int) -> str:
    return " ".join(chance.choices(WORDS, k=words))


def message(chance: random.Random, words: int = 60) -> dict[str, JSON]:
    role = chance.choice(("user", "assistant", "tool"))
    said = prose(chance, chance.randint(1, words))
    return {"role": role, "content": said, "seen": chance.randrange(100)}


# The eight kinds of traces. Each takes a state made from BASE, and shares with it what stays.


def _plus(state: JSON, *more: JSON) -> dict[str, JSON]:
    return {**state, "messages": [*state["messages"], *more]}


def append(chance: random.Random, state: JSON) -> Step:
    new = message(chance)
    return Step(_plus(state, new), len(text_of(new)), 1)


def counters(chance: random.Random, state: JSON) -> Step:
    step = append(chance, state)
    count = {
        "steps": state["counters"]["steps"] + 1,
        "tokens": state["counters"]["tokens"] + chance.randrange(900),
    }
    after = {**state["after"], "cost": round(state["after"]["cost"] + chance.random(), 6)}
    return Step({**step.state, "counters": count, "after": after}, step.changed + 40, 4)


def sliding(chance: random.Random, state: JSON) -> Step:
    step = counters(chance, state)
    return step._replace(state={**step.state, "messages": step.state["messages"][-40:]}, places=5)


def middle(chance: random.Random, state: JSON) -> Step:
    step = append(chance, state)
    at = chance.randrange(len(step.state["messages"]))
    other = message(chance, 20)
    messages = [*step.state["messages"][:at], other, *step.state["messages"][at + 1 :]]
    state = {**step.state, "messages": messages}
    return Step(state, step.changed + len(text_of(other)), 2)


def many(chance: random.Random, state: JSON) -> Step:
    step = append(chance, state)
    messages = list(step.state["messages"])
    chosen = chance.sample(range(len(messages)), min(12, len(messages)))
    for at in chosen:
        messages[at] = {**messages[at], "seen": chance.randrange(10_000)}
    state = {**step.state, "messages": messages}
    return Step(state, step.changed + 4 * len(chosen), 1 + len(chosen))


def summary(chance: random.Random, state: JSON) -> Step:
    if len(state["messages"]) < 30:
        return append(chance, state)
    told = {"role": "system", "content": prose(chance, 80), "seen": 0}
    return Step({**state, "messages": [told, *state["messages"][-4:]]}, len(text_of(told)), 2)


def tool(chance: random.Random, state: JSON) -> Step:
    if chance.random() < 0.9:
        return append(chance, state)
    size = chance.choice((2_000, 20_000, 20_000, 200_000))
    said = (prose(chance, 300) * (size // 1_000))[:size]
    new = {"role": "tool", "content": said, "seen": 0}
    return Step(_plus(state, new), len(text_of(new)), 1)


def files(chance: random.Random, state: JSON) -> Step:
    name = chance.choice(sorted(state["files"]))
    lines = state["files"][name].split("\n")
    lines[chance.randrange(len(lines))] = new = prose(chance, 8)
    if len(lines) < 400:
        lines.insert(chance.randrange(len(lines)), new)
    changed = {**state["files"], name: "\n".join(lines)}
    return Step({**state, "files": changed}, 2 * len(text_of(new)), 2)


KINDS: Final[Mapping[str, Callable[[random.Random, JSON], Step]]] = {
    kind.__name__: kind for kind in (append, counters, sliding, middle, many, summary, tool, files)
}

ODD: Final[tuple[JSON, ...]] = (
    {}, [], "", None, True, 0, 1.0, -0.0, 1e16, 5e-324, 2**64 - 1, 2**64, -(2**63) - 1, "\0",
    {"a": 1}, {"b": 1, "a": 2}, {"a": 2, "b": 1}, [[]], [[[{}]], 1, 1.0], "text " * 900,
    {"messages": []}, {"messages": {}}, {"messages": [[]], "z": [10**30, 1e-7]}, {"log": "none"},
)  # fmt: skip


def odd(chance: random.Random, state: JSON) -> JSON:
    """Return what no trace would: other types, noise, text of all planes, wide integers."""
    match chance.randrange(8):
        case 0:
            return chance.randbytes(chance.choice((3, 300, 9_000))).hex()
        case 1:
            tops = chance.choices((0x7F, 0x7FF, 0xD7FF, 0x10FFFF), k=300)
            points = [chance.randint(0, top) for top in tops]
            text = "".join(chr(point) for point in points if not 0xD800 <= point < 0xE000)
            return {**BASE, "text": text}
        case 2 if isinstance(state, dict):
            return {"wide": chance.choice((1, -1)) * chance.getrandbits(80) + 10**25, **state}
        case 3 if isinstance(state, dict):
            return {**state, "blob": chance.randbytes(2_000).hex(), "float": chance.random()}
        case 4 if isinstance(state, dict):
            return dict(reversed(state.items()))
        case 5:
            return state
    return chance.choice(ODD)


def evolve(chance: random.Random, state: JSON, kind: str) -> JSON:
    """Return the next state of a kind; from what is none of ours, or too big, it begins anew."""
    if kind == "odd":
        return odd(chance, state)
    if len(text_of(state)) < BIG:
        # Odd ones and patches leave states of any shape behind: most kinds cannot go on from them.
        with suppress(TypeError, KeyError, ValueError, AttributeError):
            return KINDS[kind](chance, state).state
    return KINDS[kind](chance, {**BASE, "messages": [message(chance)]}).state


@dataclass
class Entry:
    """A snapshot that is alive: what it holds, and what the store said when it was written."""

    info: SnapshotInfo
    state: JSON
    text: bytes
    place: int


@dataclass
class Line:
    """A scope: everything that it holds, and what it shows."""

    entries: dict[str, Entry] = field(default_factory=dict)
    head: str | None = None

    def kept(self) -> list[Entry]:
        """Return what stands in history, the last saved first."""
        kept = [entry for entry in self.entries.values() if entry.info.kept]
        return sorted(kept, key=lambda entry: -entry.place)

    def remove(self, id: str) -> int:
        gone = self.entries.pop(id, None)
        if self.head == id:
            self.head = next((entry.info.id for entry in self.kept()), None)
        return gone is not None


class Forest:
    """A file with one store over it or two, and the model of what they must show."""

    def __init__(self, path: Path, *, stores: int = 1) -> None:
        self.path = path
        self.lines: dict[ScopeKey, Line] = {}
        self.stores = [self._open() for _ in range(stores)]
        self._turn = 0
        self._places = 0

    def _open(self) -> Store:
        # Nothing here dies, so waiting for the disk would add nothing.
        store = limpet.open(f"sqlite:///{self.path}", synchronous="off")
        engine: Any = store.driver.opened.backend
        engine._roller = None  # rolls are made at once, so that each run is the same
        return store

    @property
    def store(self) -> Store:
        """The store whose turn it is: what another has written, it has not seen yet."""
        return self.stores[self._turn % len(self.stores)]

    def turn(self) -> None:
        self._turn += 1

    def close(self) -> None:
        for store in self.stores:
            store.close()

    def reopen(self) -> None:
        """Go on with cold caches."""
        self.store.close()
        self.stores[self._turn % len(self.stores)] = self._open()

    def line(self, key: ScopeKey) -> Line:
        return self.lines.setdefault(key, Line())

    def _write(self, key: ScopeKey, info: SnapshotInfo, state: JSON, *, head: bool) -> SnapshotInfo:
        """Enter what a verb has stored; a new snapshot takes the last place."""
        line, text = self.line(key), text_of(state)
        assert info.size == len(text), f"size of {info.id}"
        assert info.scope == key
        before = line.entries.get(info.id)
        if before is None:
            self._places += 1
            covered = line.entries.get(line.head or "")
            if head and covered is not None and not covered.info.kept:
                del line.entries[covered.info.id]
            line.head = info.id if head else line.head
        place = self._places if before is None else before.place
        line.entries[info.id] = Entry(info, state, text, place)
        return info

    # The verbs, each on the store and in the model.

    def save(self, key: ScopeKey, state: JSON, **options: Any) -> SnapshotInfo:
        info = self.store.scope(*key).save(state, **options)
        assert info.kept == options.get("keep", True) or options.get("overwrite", False)
        return self._write(key, info, state, head=options.get("head", True))

    def append(self, key: ScopeKey, name: str, items: list[JSON], *, keep: bool = True) -> None:
        line, scope = self.line(key), self.store.scope(*key)
        before = {} if line.head is None else line.entries[line.head].state
        if not isinstance(before, dict) or not isinstance(before.get(name, []), list):
            with pytest.raises(InvalidInput):
                scope.append(name, items, keep=keep)
            return
        info = scope.append(name, items, keep=keep)
        state = {**before, name: [*before.get(name, []), *items]}
        self._write(key, info, state, head=True)

    def update(self, key: ScopeKey, id: str, state: JSON, status: str = "completed") -> None:
        before = self.line(key).entries[id]
        info = self.store.scope(*key).update(
            id, lambda snapshot: snapshot.with_(state=state, status=status)
        )
        assert info is not None
        assert info.kept == before.info.kept
        self._write(key, info, state, head=False)

    def fork(
        self, key: ScopeKey, id: str, *, to: str | None = None, patch: JSON = None, **options: Any
    ) -> ScopeKey:
        source = self.line(key).entries[id]
        fork = self.store.scope(*key).fork(id, to=to, patch=patch, **options)
        info = fork.info()
        assert info is not None
        assert info.forked_from == (key, id)
        assert fork.key not in self.lines
        state = source.state if patch is None else {**source.state, **patch}
        self._write(fork.key, info, state, head=True)
        return fork.key

    def delete(self, key: ScopeKey, *ids: str) -> None:
        scope, line = self.store.scope(*key), self.line(key)
        for id in ids:
            assert scope.delete_snapshot(id) == line.remove(id)

    def prune(self, key: ScopeKey, keep_last: int) -> None:
        line = self.line(key)
        doomed = [entry for entry in line.kept()[keep_last:] if entry.info.id != line.head]
        pruned = self.store.scope(*key).prune(keep_last=keep_last)
        assert (pruned.count, pruned.bytes) == (len(doomed), sum(len(e.text) for e in doomed))
        for entry in doomed:
            line.remove(entry.info.id)

    def delete_scope(self, key: ScopeKey) -> None:
        assert self.store.scope(*key).delete() == len(self.line(key).entries)
        del self.lines[key]

    def delete_session(self, session_id: str) -> None:
        doomed = [key for key in self.lines if key.session_id == session_id]
        count = sum(len(self.lines.pop(key).entries) for key in doomed)
        assert self.store.delete_session(session_id) == count

    # Looking

    def verify(self) -> None:
        """See that the store whose turn it is shows exactly what the model holds."""
        for key, line in self.lines.items():
            self._verify_line(key, line)
        filled = {key: line for key, line in self.lines.items() if line.entries}
        assert {found.key for found in self.store.scopes()} == filled.keys()
        entries = [entry for line in filled.values() for entry in line.entries.values()]
        stats = self.store.stats()
        assert stats.snapshots == len(entries)
        assert stats.logical_bytes == sum(len(entry.text) for entry in entries)
        wrong = [found for found in self.store.check() if found.severity != "info"]
        assert not wrong, wrong

    def _verify_line(self, key: ScopeKey, line: Line) -> None:
        scope, kept = self.store.scope(*key), line.kept()
        assert list(scope.history()) == [entry.info for entry in kept]
        assert list(scope.ids()) == sorted(entry.info.id for entry in kept)
        found = list(scope.load_many([entry.info.id for entry in kept]))
        head, shown = scope.load(), None if line.head is None else line.entries[line.head]
        assert (head is None) == (shown is None)
        if head is not None and shown is not None:
            found.append(head)
            kept.append(shown)
        for snapshot, entry in zip(found, kept, strict=True):
            where = f"{key} {entry.info.id}, {len(entry.text)} bytes"
            # Not compared by `assert a == b`: the difference of long texts takes for ever to show.
            same = text_of(snapshot.state) == entry.text
            assert same, f"reads back as something else: {where}"
            for name in SnapshotInfo.__slots__:
                assert getattr(snapshot, name) == getattr(entry.info, name), f"{name}: {where}"

    def verify_empty(self, bytes_max: int = 200_000) -> None:
        """Delete everything: the space is given back."""
        for key in list(self.lines):
            self.delete_scope(key)
        self.verify()
        with closing(sqlite3.connect(self.path)) as conn:
            for table in ("scopes", "snapshots", "tails", "segments", "shared", "labels"):
                assert conn.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
        self.store.compact()
        self.verify()
        self.close()
        left = {each.name: each.stat().st_size for each in self.path.parent.iterdir()}
        assert sum(left.values()) < bytes_max, left


def grow(
    forest: Forest, key: ScopeKey, kind: str, count: int, *, seed: object = 0, **options: Any
) -> Sequence[SnapshotInfo]:
    """Save the next states of a kind in a row."""
    chance = random.Random(f"{seed}")
    saved = []
    for _ in range(count):
        line = forest.line(key)
        state = None if line.head is None else line.entries[line.head].state
        saved.append(forest.save(key, evolve(chance, state, kind), **options))
    return saved


def everything_in(path: Path) -> Iterator[bytes]:
    """Yield every value in every table of a file, as it is stored and, if it was, decompressed."""
    with closing(sqlite3.connect(path)) as conn:
        tables = [name for (name,) in conn.execute("SELECT name FROM pragma_table_list")]
        values = [value for name in tables for row in conn.execute(f"SELECT * FROM {name}")
                  for value in row]  # fmt: skip
    for value in values:
        yield from decompressed(value if isinstance(value, bytes) else str(value).encode())


def decompressed(stored: bytes) -> Iterator[bytes]:
    """Yield bytes as they are, and what the frames of zstd among them hold."""
    yield stored
    at = stored.find(zstandard.FRAME_HEADER)
    while at >= 0:
        with suppress(zstandard.ZstdError):
            yield zstandard.ZstdDecompressor().decompressobj().decompress(stored[at:])
        at = stored.find(zstandard.FRAME_HEADER, at + 1)
