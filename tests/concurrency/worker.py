"""What one process of a crew does: for each line of JSON it gets, one task and one answer."""

import json
import sys
from collections.abc import Callable
from typing import Any

import limpet
from limpet import Conflict, Snapshot, Store

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
    """Open a store that may not exist yet, and use it."""
    with limpet.open(url) as own:
        own.scope("shared").set_note("count", lambda n: (n or 0) + 1)
        return own.scope("s", f"line-{number}").save({"by": number}, id=f"by-{number}").id


TASKS: dict[str, Task] = {task.__name__: task for task in (add, compete, append, tally, open_new)}


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
