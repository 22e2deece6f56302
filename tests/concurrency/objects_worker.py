"""What one process does where some save and others delete: for each line of JSON one task."""

import json
import sys
from typing import Any

import limpet
from limpet import Conflict, Scope, Store, Unavailable

SCOPE = ("s", "log")
DONE = "done"


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
    """Delete the whole scope again and again; return how often there was something."""
    scope, count = store.scope(*SCOPE), 0
    while store.scope("control").note(DONE) is None:
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


def create(store: Store, number: int, count: int) -> list[str]:
    """Try to make the first save of scopes; return those where it was this one."""
    won = []
    for index in range(count):
        try:
            made = store.scope("race", f"r{index:02}").save({"by": number}, expect=None)
        except Conflict:
            continue
        won.append(made.revision)
    return won


TASKS = {task.__name__: task for task in (save, delete, forget, save_anyway, create)}


def main() -> None:
    number = int(sys.argv[1])
    say("ready")
    for line in sys.stdin:
        task, url, message = json.loads(line)
        with limpet.open(url) as store:
            say(TASKS[task](store, number, message))


def say(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
