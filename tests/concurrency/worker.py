"""What one process of a crew does: for each line of JSON it gets, one task and one answer."""

import json
import sys
from collections.abc import Callable
from typing import Any

import limpet
from limpet import Conflict, Scope, Snapshot, Store, Unavailable

Task = Callable[[Store, int, Any], Any]
SCOPE = ("s", "log")
DONE = "done"


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


# Where some save and others delete


def save(store: Store, number: int, count: int) -> list[str]:
    """Save snapshots, every third of them as a draft first; return their ids."""
    scope = store.scope(*SCOPE)
    ids = [f"w{number}-{index:03}" for index in range(count)]
    for index, id in enumerate(ids):
        if index % 3 == 0:
            scope.save({"draft": id}, keep=False)
        scope.save({"id": id}, id=id, labels={"by": str(number)})
        found = scope.load(id)
        assert found is None or found.state == {"id": id}  # another may have deleted it
    return ids


def delete(store: Store, number: int, message: Any) -> list[str]:
    """Delete most of what others save, the head too, until they are done; return what was there."""
    scope, gone = store.scope(*SCOPE), list[str]()
    while True:
        done = store.scope("control").note(DONE) is not None
        head = scope.info()
        doomed = [id for id in scope.ids() if not id.endswith("0")]
        if head is not None and head.id in doomed:
            doomed.append(head.id)
        gone += [id for id in doomed[-4:] if scope.delete_snapshot(id)]
        if done and not doomed:
            return gone


def forget(store: Store, number: int, message: Any) -> int:
    """Delete the whole scope again and again; return how often there was something, at least 1."""
    scope, count = store.scope(*SCOPE), 0
    while not count or store.scope("control").note(DONE) is None:
        look(scope)
        count += scope.delete() > 0
    return count


def look(scope: Scope) -> None:
    """See that what is there is whole."""
    head = scope.load()
    assert head is None or head.state.keys() <= {"id", "draft"}
    for found in scope.load_many([info.id for info in scope.history(limit=5)]):
        assert found.state == {"id": found.id}


def save_anyway(store: Store, number: int, count: int) -> int:
    """Save while others delete the scope: that may end in doubt, but never in a refusal."""
    scope, doubts = store.scope(*SCOPE), 0
    for index in range(count):
        try:
            scope.save({"id": f"a{number}-{index}"}, id=f"a{number}-{index}")
        except Unavailable as error:
            if error.outcome_known:
                raise
            doubts += 1
    return doubts


TASKS: dict[str, Task] = {
    task.__name__: task
    for task in (add, compete, append, tally, open_new, save, delete, forget, save_anyway)
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
