"""A process that rewrites a chat as fast as it can until it is killed, and says what it does.

Lines of JSON as those of `mortal`. Every state follows from its number alone, so that whoever looks
afterwards knows exactly what must be there.
"""

import hashlib
import json
import random
import sys
from functools import cache
from typing import Any

import limpet
from limpet import Scope, Store

SESSION = "edits"  # another than that of a storm
WINDOW = 40  # turns, after which the chat begins to slide: it must not grow from round to round


@cache
def turn(number: int) -> dict[str, Any]:
    """Return what is said at one moment: short or long, prose or noise."""
    chance = random.Random(number)
    words = [hashlib.sha256(bytes([chance.randrange(40)])).hexdigest()[:6] for _ in range(30)]
    said = " ".join(words[: chance.randrange(3, 30)])
    if number % 29 == 0:
        said += chance.randbytes(chance.choice((500, 9_000))).hex()
    return {"role": "user" if number % 2 else "assistant", "content": said}


def state_of(number: int, changed: int = 0) -> dict[str, Any]:
    """Return the state that is saved under a number; `changed` tells its later versions apart."""
    if number % 17 == 5:  # 20 KB, which take less than 1 KB when they are compressed
        return {"count": number, "text": f"turn {number} " * 2_000, "edited": changed}
    first = max(0, number - WINDOW - number % 50)
    messages = [turn(each) for each in range(first, number + 1)]
    if changed:
        messages[len(messages) // 2] = {"edited": changed}
    return {"count": number, "messages": messages, "after": {"last": number}}


def name_of(number: int) -> str:
    return f"{number:06}"


def save(scope: Scope, number: int) -> None:
    scope.save(state_of(number), id=name_of(number))


def edits(store: Store, seed: int) -> None:
    """Saves, drafts, overwrites and deletes of what others are stored against, again and again."""
    scope, chance = store.scope(SESSION, "edits"), random.Random(seed)
    numbers = sorted(map(int, scope.ids()))
    while True:
        number = numbers[-1] + 1 if numbers else 0
        verb = chance.choice(("save", "save", "overwrite", "delete", "delete", "prune", "fork"))
        if verb == "save" or len(numbers) < 40:
            change: list[Any] = ["save", number]
            if chance.random() < 0.2:  # which the save replaces
                scope.save(state_of(number + 1), keep=False)
        elif verb == "prune":
            change = [verb, 70]
        else:
            change = [verb, chance.choice(numbers), number + seed]
        # What was begun may have happened or not; what was acknowledged has.
        say(["try", change])
        numbers = perform(store, scope, change, numbers)
        say(["done"])


def perform(store: Store, scope: Scope, change: list[Any], numbers: list[int]) -> list[int]:
    """Make one change; return the numbers that are left."""
    match change:
        case ["save", number]:
            save(scope, number)
        case ["overwrite", number, mark]:
            state = state_of(number, changed=mark + 1)
            scope.save(state, id=name_of(number), overwrite=True)
        case ["delete", number, _]:
            scope.delete_snapshot(name_of(number))
        case ["prune", keep_last]:
            scope.prune(keep_last=keep_last)
        case ["fork", number, _]:
            fork = store.scope(SESSION, "edits-fork")
            fork.delete()
            scope.fork(name_of(number), scope_id="edits-fork")
    return predict(change, numbers)


def predict(change: list[Any], numbers: list[int]) -> list[int]:
    """Return which numbers are there after a change."""
    match change:
        case ["save", number]:
            return [*numbers, number]
        case ["delete", number, _]:
            return [each for each in numbers if each != number]
        case ["prune", keep_last]:
            return numbers[-keep_last:]
    return numbers


def main() -> None:
    url, seed, _ = sys.argv[1:]
    with limpet.open(url) as store:
        say(["begin", None])
        edits(store, int(seed))


def say(message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
