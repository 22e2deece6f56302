"""Trees of snapshots for tests: states that change as agents' do, on a file and on the model."""

import json
import random
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from limpet import JSON, ScopeKey, SnapshotInfo, Store, opening
from limpet.backends.sqlite.storage import SqliteStorage
from limpet.engine import open_engine
from limpet.protocol import Backend
from limpet.testing._lockstep import Twins
from limpet.testing.model import ModelScope

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
    except TypeError:  # integers beyond 64 bits
        return json.dumps(state, ensure_ascii=False, separators=(",", ":")).encode()


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


def evolve(chance: random.Random, state: JSON, kind: str) -> JSON:
    """Return the next state of a kind; from what is none of ours, or too big, it begins anew."""
    if len(text_of(state)) < BIG:
        with suppress(TypeError, KeyError, ValueError, AttributeError):
            return KINDS[kind](chance, state).state
    return KINDS[kind](chance, {**BASE, "messages": [message(chance)]}).state


class Forest:
    """A file in lockstep with the model."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._twins = Twins(self._open)
        self._keys: set[ScopeKey] = set()

    def _open(self) -> Backend:
        # Nothing here dies, so waiting for the disk would add nothing.
        options: Any = {"clock": opening.CLOCK, "draw": opening.draw, "synchronous": "off"}
        return open_engine(SqliteStorage, str(self.path), **options)

    @property
    def store(self) -> Store:
        return self._twins.tested

    def close(self) -> None:
        self._twins.close()

    def reopen(self) -> None:
        """Go on with cold caches."""
        self._twins.reopen(closing=True)

    def model(self, key: ScopeKey) -> ModelScope:
        return self._twins.model.scope(*key)

    def state(self, key: ScopeKey, id: str | None = None) -> JSON:
        found = self.model(key).load(id)
        return None if found is None else found.state

    def head(self, key: ScopeKey) -> str:
        found = self.model(key).info()
        return "" if found is None else found.id

    def do(self, key: ScopeKey, verb: str, *args: Any, **options: Any) -> Any:
        """Call a verb of a scope on both; return the answer of the store, which is no error."""
        self._keys.add(key)

        def call(scope: Any, its: object) -> Any:
            answer = getattr(scope, verb)(*args, **options)
            return answer.key if verb == "fork" else answer

        answer = self._twins.at(key, call).tested
        assert not isinstance(answer, Exception), answer
        return answer

    def save(self, key: ScopeKey, state: JSON, **options: Any) -> SnapshotInfo:
        info: SnapshotInfo = self.do(key, "save", state, **options)
        return info

    def fork(self, key: ScopeKey, id: str, **options: Any) -> ScopeKey:
        fork: ScopeKey = self.do(key, "fork", id, **options)
        self._keys.add(fork)
        return fork

    def update(self, key: ScopeKey, id: str, state: JSON) -> None:
        self.do(key, "update", id, lambda snapshot: snapshot.with_(state=state))

    def delete(self, key: ScopeKey, *ids: str) -> None:
        for id in ids:
            self.do(key, "delete_snapshot", id)

    def verify(self) -> None:
        """See that the store shows exactly what the model holds, and finds nothing wrong."""
        self._twins.compare()
        wrong = [found for found in self.store.check() if found.severity != "info"]
        assert not wrong, wrong

    def verify_empty(self, bytes_max: int = 200_000) -> None:
        """Delete everything: the space is given back."""
        for key in sorted(self._keys):
            self.do(key, "delete")
        self.verify()
        with closing(sqlite3.connect(self.path)) as conn:
            for table in ("scopes", "snapshots", "tails", "segments", "shared", "labels"):
                assert conn.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
        self.store.compact()
        self.close()
        left = {each.name: each.stat().st_size for each in self.path.parent.iterdir()}
        assert sum(left.values()) < bytes_max, left


def grow(
    forest: Forest, key: ScopeKey, kind: str, count: int, *, seed: object = 0, **options: Any
) -> Sequence[SnapshotInfo]:
    """Save the next states of a kind in a row."""
    chance = random.Random(f"{seed}")
    return [
        forest.save(key, evolve(chance, forest.state(key), kind), **options) for _ in range(count)
    ]
