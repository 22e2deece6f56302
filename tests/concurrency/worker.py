"""What one process of a crew does: for each line of JSON it gets, one task and one answer."""

import hashlib
import json
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import limpet
from limpet import Conflict, Scope, Snapshot, Store

Task = Callable[[Store, int, Any], Any]


def plus_one(before: Snapshot) -> Snapshot:
    return before.with_(state={"count": before.state["count"] + 1})


def add(store: Store, number: int, count: int) -> int:
    """Raise a counter in one snapshot."""
    scope = store.scope("s")
    return sum(scope.update("counter", plus_one) is not None for _ in range(count))


def compete(store: Store, number: int, expect: str | None) -> str | None:
    """Try to be the next; return the revision if this process was."""
    try:
        return store.scope("s").save({"by": number}, expect=expect).revision
    except Conflict:
        return None


def append(store: Store, number: int, count: int) -> int:
    scope = store.scope("s")
    for index in range(count):
        scope.append("items", [[number, index]])
    return count


def tally(store: Store, number: int, count: int) -> int:
    """Raise a counter in one note."""
    scope = store.scope("s")
    for _ in range(count):
        assert scope.set_note("tally", lambda value: (value or 0) + 1) is not None
    return count


def open_new(store: Store, number: int, url: str) -> str:
    """Open a file that may not exist yet, and use it."""
    with limpet.open(url) as own:
        return own.scope("s", f"line-{number}").save({"by": number}, id=f"by-{number}").id


def in_threads(store: Store, number: int, plan: dict[str, int]) -> int:
    """Do everything at once in several threads."""
    begin = threading.Barrier(plan["threads"])
    finished = []

    def work(thread: int) -> None:
        begin.wait()
        for _ in range(plan["count"]):
            add(store, number, 1)
            tally(store, number, 1)
            store.scope("t").append("items", [[number, thread]])
        finished.append(thread)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(plan["threads"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(finished)


def sealed(text: str) -> dict[str, str]:
    """Return a state that shows by itself whether it is whole."""
    return {"text": text, "sum": hashlib.sha256(text.encode()).hexdigest()}


def check_sealed(state: Any) -> None:
    assert state == sealed(state["text"])


def write_sealed(store: Store, number: int, count: int) -> int:
    """Save and change states of any size up to 300 KB; every fourth is a draft."""
    chance = random.Random(number)
    scope = store.scope("s")
    for index in range(count):
        text = chance.randbytes(chance.choice((10, 5_000, 150_000))).hex()
        saved = scope.save(sealed(text), keep=index % 4 != 3)
        if index % 4 == 1:
            other = chance.randbytes(chance.choice((10, 60_000))).hex()
            scope.update(saved.id, lambda old, new=other: old.with_(state=sealed(new)))  # type: ignore[misc]
    return count


def read_sealed(store: Store, number: int, message: Any) -> int:
    """Read until told by a note that the writers are done; return how many versions were seen."""
    scope = store.scope("s")
    seen = set()
    while True:
        done = store.scope("control").note("done") is not None
        head = scope.load()
        if head is not None:
            check_sealed(head.state)
            seen.add(head.revision)
            assert not head.kept or in_history(scope, head.id), f"{head.id} is not in history"
        for info in scope.history(limit=3):
            found = scope.load(info.id)
            assert found is not None
            assert found.kept
            check_sealed(found.state)
        if done:
            return len(seen)


def in_history(scope: Scope, id: str) -> bool:
    return any(info.id == id for info in scope.history())


TASKS: dict[str, Task] = {
    task.__name__: task
    for task in (add, compete, append, tally, open_new, in_threads, write_sealed, read_sealed)
}


def main() -> None:
    number = int(sys.argv[1])
    store, opened = limpet.open("memory:"), "memory:"
    say("ready")
    for line in sys.stdin:
        task, url, message = json.loads(line)
        if url != opened:
            store.close()
            store, opened = limpet.open(url), url
        say(TASKS[task](store, number, message))
    store.close()


def say(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
