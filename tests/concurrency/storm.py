"""What one process of a storm does: many kinds of writes to the same few scopes, or only reads.

There are forks of forks, so that the states of all lines build on each other.

Every state is saved with its digest in the metadata, so that whoever loads it can tell whether it
is one that was saved under that id. Each writer changes and deletes only what it saved itself: at
the end it knows exactly what must be there.
"""

import asyncio
import hashlib
import json
import random
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import orjson

import limpet
from limpet import AsyncScope, AsyncStore, Conflict, Scope, Snapshot, Store

Own: TypeAlias = dict[str, dict[str, str]]
"""By scope id: the digests of what a writer has saved and not deleted."""

SESSION = "s"
SHARED = ("chat", "log")
WINDOW = 80  # messages of a state
WORDS = ("to", "be", "or", "not", "that", "is", "the", "question", "whether", "nobler")
PRUNED_TO = 5
LINES_MAX = 4  # of one writer at a time
THREADS = 2


def digest(state: Any) -> str:
    return hashlib.sha256(orjson.dumps(state)).hexdigest()[:20]


def check(found: Snapshot) -> None:
    """See that a state is exactly one that was saved under its id."""
    assert digest(found.state) == found.metadata["sum"], f"{found.scope} {found.id}"
    if found.id.startswith(("w", "x")):  # others are minted, and not known beforehand
        assert found.state["id"] == found.id, f"{found.scope} {found.id}"


def following(chance: random.Random, state: Any, id: str | None) -> dict[str, Any]:
    """Return a state that follows from another: longer, with an edit, or made short again."""
    messages = list(state["messages"]) if state else []
    said = " ".join(chance.choices(WORDS, k=40))
    if len(messages) > WINDOW:
        del messages[: chance.choice((1, 2, WINDOW - 3))]
    if messages and chance.random() < 0.2:
        messages[chance.randrange(len(messages))] = {"edited": said[:50]}
    messages.append({"role": "user", "content": said + chance.randbytes(20).hex()})
    if chance.random() < 0.02:
        messages.append({"role": "tool", "content": chance.randbytes(30_000).hex()})
    return {"id": id, "count": len(messages), "messages": messages, "after": {"k": id}}


class Writer:
    """A seed, and all kinds of writes that follow from it."""

    def __init__(self, store: Store, number: int) -> None:
        self.store = store
        self.number = number
        self.own: Own = defaultdict(dict)
        self._chance = random.Random(number)
        self._saved = 0
        self._lines: list[str] = []
        self._forks = 0

    def run(self, count: int) -> Own:
        verbs = {
            self.burst: 4, self.save: 8, self.append: 4, self.update: 6, self.overwrite: 6,
            self.delete: 6, self.fork: 8, self.prune: 3, self.compact: 2, self.delete_line: 3,
            self.inspect: 0.5, self.cover: 6,
        }  # fmt: skip
        for _ in range(count):
            (verb,) = self._chance.choices(list(verbs), list(verbs.values()))
            verb(self.store.scope(SESSION, self._chance.choice([*SHARED, *self._lines])))
        return {name: dict(digests) for name, digests in self.own.items()}

    def _put(self, scope: Scope, state: Any, id: str, **options: Any) -> None:
        # Known before it is written: a reader may load it before the answer is here.
        if options.get("keep", True) or id in self.own[scope.scope_id]:
            self.own[scope.scope_id][id] = digest(state)
        scope.save(state, id=id, metadata={"sum": digest(state)}, **options)

    def _some(self, scope: Scope) -> str | None:
        return self._chance.choice([None, *self.own[scope.scope_id]])

    def save(self, scope: Scope) -> None:
        """What follows from the present head, which others move meanwhile."""
        head = scope.load()
        if head is not None:
            check(head)
        self._saved += 1
        id = f"w{self.number}-{self._saved:04}"
        options = self._chance.choice([{}, {}, {"keep": False}, {"head": False}])
        state = following(self._chance, None if head is None else head.state, id)
        self._put(scope, state, id, **options)
        found = scope.load(id)
        if found is not None:
            check(found)
        # Another may have replaced a draft, or pruned it.
        assert found is not None or options == {"keep": False} or scope.scope_id == "pruned"

    def burst(self, scope: Scope) -> None:
        for _ in range(12):
            self.save(scope)

    def append(self, scope: Scope) -> None:
        """Against the head that was read, or the digest would not be known."""
        head = scope.load()
        while head is not None:
            item = {"role": "user", "content": self._chance.randbytes(200).hex()}
            state = {**head.state, "messages": [*head.state["messages"], item]}
            keep, facts = self._chance.random() < 0.7, {"sum": digest(state)}
            try:
                made = scope.append(
                    "messages", [item], expect=head.revision, keep=keep, metadata=facts
                )
            except Conflict:
                head = scope.load()
                continue
            if keep:
                self.own[scope.scope_id][made.id] = digest(state)
            return

    def update(self, scope: Scope) -> None:
        id = self._some(scope)
        if id is None:
            return
        made: list[str] = []

        def change(before: Snapshot) -> Snapshot:
            check(before)
            state = following(self._chance, before.state, before.state["id"])
            made.append(digest(state))
            return before.with_(state=state, metadata={"sum": made[-1]})

        assert scope.update(id, change) is not None
        self.own[scope.scope_id][id] = made[-1]

    def overwrite(self, scope: Scope) -> None:
        id = self._some(scope)
        found = None if id is None else scope.load(id)
        if found is not None:
            check(found)
            state = following(self._chance, None, found.state["id"])
            self._put(scope, state, found.id, overwrite=True)

    def delete(self, scope: Scope) -> None:
        ids = list(self.own[scope.scope_id])
        for id in self._chance.sample(ids, min(len(ids), self._chance.choice((1, 1, 4)))):
            del self.own[scope.scope_id][id]
            assert scope.delete_snapshot(id) == 1

    def fork(self, scope: Scope) -> None:
        """A fork of one's own snapshot, patched or not; a fork of a fork as often as not."""
        id = self._some(scope)
        if id is None or len(self._lines) >= LINES_MAX:
            return
        self._forks += 1
        name = f"f{self.number}-{self._forks}"
        if self._chance.random() < 0.5:
            fork = scope.fork(id, scope_id=name)
            expected = self.own[scope.scope_id][id]
        else:
            found = scope.load(id)
            assert found is not None
            check(found)
            state = following(self._chance, found.state, found.state["id"])
            expected = digest(state)
            fork = scope.fork(
                id, scope_id=name, patch=lambda _: state, metadata={"sum": digest(state)}
            )
        first = fork.load()
        assert first is not None
        check(first)
        assert digest(first.state) == expected
        self._lines.append(name)
        self.own[name][first.id] = expected
        for _ in range(self._chance.choice((0, 2, 2, 36))):
            self.save(fork)

    def cover(self, scope: Scope) -> None:
        """Drafts that cover each other, like and unlike: most of their states build on nothing."""
        for _ in range(self._chance.choice((2, 5))):
            self._saved += 1
            id = f"w{self.number}-{self._saved:04}"
            head = scope.load() if self._chance.random() < 0.6 else None
            state = following(self._chance, None if head is None else head.state, id)
            self._put(scope, state, id, keep=False)

    def prune(self, scope: Scope) -> None:
        """Only in a line of one's own, and in one that all share: there it is known what stays."""
        pruned = self.store.scope(SESSION, "pruned")
        for _ in range(12):
            self.save(pruned)
        pruned.prune(keep_last=PRUNED_TO)
        if scope.scope_id not in self._lines:
            return
        kept = [info.id for info in scope.history(limit=PRUNED_TO)]
        head = scope.info()
        scope.prune(keep_last=PRUNED_TO)
        own = self.own[scope.scope_id]
        stays = {*kept, *([] if head is None else [head.id])}
        self.own[scope.scope_id] = {id: own[id] for id in own if id in stays}

    def delete_line(self, scope: Scope) -> None:
        """The whole line, on which others may build; a draft counts as well."""
        if scope.scope_id not in self._lines:
            return
        self._lines.remove(scope.scope_id)
        own = self.own.pop(scope.scope_id)
        assert scope.delete() - len(own) in (0, 1)

    def inspect(self, scope: Scope) -> None:
        assert [found for found in self.store.check() if found.severity != "info"] == []

    def compact(self, scope: Scope) -> None:
        self.store.compact()


def write(store: Store, number: int, count: int) -> list[Own]:
    """Several writers in one process."""
    with ThreadPoolExecutor(THREADS) as pool:
        writers = [Writer(store, number * 10 + each) for each in range(THREADS)]
        return list(pool.map(lambda writer: writer.run(count), writers))


def read(store: Store, number: int, url: str) -> int:
    """Load whatever there is until told by a note to stop; return how many were loaded."""
    chance, loaded = random.Random(number), 0
    while True:
        done = store.scope("control").note("done") is not None
        if chance.random() < 0.1:  # with nothing remembered
            with limpet.open(url) as other:
                loaded += look(other, chance)
        loaded += look(store, chance)
        if done:
            return loaded


def look(store: Store, chance: random.Random) -> int:
    loaded = 0
    for info in store.scopes(SESSION):
        scope = store.scope(*info.key)
        ids = list(scope.ids())
        chosen = chance.sample(ids, min(len(ids), 12))
        one = [scope.load(), *(scope.load(id) for id in chosen[:2])]
        for found in [*one, *scope.load_many(chosen)]:
            if found is not None:
                loaded += 1
                if info.key.scope_id == "items":
                    check_items(found.state["items"])
                else:
                    check(found)
    return loaded


def item(number: int, index: int) -> list[Any]:
    """Return what one writer appends at one moment."""
    text = random.Random(number * 10_000 + index).randbytes(40 + index % 400).hex()
    return [number, index, text]


def check_items(items: list[Any]) -> None:
    """See that nothing of what any writer appended is missing, doubled, changed or overtaken."""
    counts: dict[int, int] = defaultdict(int)
    for number, index, text in items:
        assert [number, index, text] == item(number, counts[number])
        counts[number] += 1


def append_items(store: Store, number: int, count: int) -> int:
    for index in range(count):
        store.scope(SESSION, "items").append("items", [item(number, index)])
    return count


async def write_async(store: AsyncStore, number: int, count: int) -> Own:
    """The same through the other face, several at a time."""
    own: Own = {name: {} for name in SHARED}
    chance = random.Random(number)

    async def save(scope: AsyncScope, id: str) -> None:
        head = await scope.load()
        state = following(chance, None if head is None else head.state, id)
        own[scope.scope_id][id] = digest(state)
        await scope.save(state, id=id, metadata={"sum": digest(state)})
        found = await scope.load(id)
        assert found is not None
        check(found)
        if id.endswith("7"):
            del own[scope.scope_id][id]
            assert await scope.delete_snapshot(id) == 1

    for at in range(0, count, 8):
        scopes = [store.scope(SESSION, chance.choice(SHARED)) for _ in range(8)]
        names = [f"x{number}-{at + n:04}" for n in range(8)]
        await asyncio.gather(*map(save, scopes, names))
    return own


def main() -> None:
    task, url, number, message = sys.argv[1:]
    with limpet.open(url) as store:
        say("ready")
        sys.stdin.readline()
        match task:
            case "write":
                say(write(store, int(number), int(message)))
            case "append_items":
                say(append_items(store, int(number), int(message)))
            case "read":
                say(read(store, int(number), url))


def say(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
