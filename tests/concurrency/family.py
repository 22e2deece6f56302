"""What one process of a storm over a family does: forks of forks, and everything at once on them.

All lines come from two shared scopes, so that their states build on each other. Like `storm.py`,
from which it takes the simple writes: each writer changes only what it saved itself, and knows in
the end what must be there. Several threads of a process share a store.
"""

import json
import sys
import threading
from typing import Any

import limpet
from limpet import Scope, Store
from tests.concurrency.storm import (
    PRUNED_TO,
    SESSION,
    SHARED,
    Own,
    Writer,
    check,
    digest,
    following,
)

LINES_MAX = 4  # of one writer at a time


class Kin(Writer):
    """A writer whose lines are all of one family."""

    def __init__(self, store: Store, number: int) -> None:
        super().__init__(store, number)
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
        super().prune(scope)
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


def in_threads(store: Store, number: int, count: int, threads: int) -> list[Own]:
    """Several writers in one process."""
    owns: list[Own] = []
    errors: list[BaseException] = []

    def work(each: int) -> None:
        try:
            owns.append(Kin(store, each).run(count))
        except BaseException as error:
            errors.append(error)

    numbers = [number * 10 + each for each in range(threads)]
    running = [threading.Thread(target=work, args=(each,)) for each in numbers]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise errors[0]
    return owns


def main() -> None:
    url, number, count, threads = sys.argv[1:]
    with limpet.open(url) as store:
        say("ready")
        sys.stdin.readline()
        say(in_threads(store, int(number), int(count), int(threads)))


def say(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
