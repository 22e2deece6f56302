"""What one process does with leases and watches: a task for each line of JSON that it gets.

Some tasks say more than one line, and some listen to further ones.
"""

import json
import os
import random
import select
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import limpet
from limpet import Conflict, Store
from limpet.testing.conformance.leasing import WRITES
from tests.waiting import WAIT_S_MAX


def say(answer: Any) -> None:
    # At once and in one piece: this process may be killed at any moment.
    os.write(1, json.dumps(answer).encode() + b"\n")


def hear() -> Any:
    return json.loads(sys.stdin.readline())


# Leases


def hold(store: Store, name: str, ttl_s: float) -> str:
    """Hold a lease; write under it when told, and say what came of it; then give it back."""
    with store.scope("s").claim(owner=name, ttl_s=ttl_s, wait_s=WAIT_S_MAX) as lease:
        lease.save({"by": name}, id="a")
        lease.save({"by": name, "m": []}, id="b")
        lease.set_note("n", name)
        lease.set_note("n", name, on="a")
        say(lease.token)
        hear()
        answers = {}
        for verb, write in WRITES.items():
            try:
                answers[verb] = repr(write(lease))
            except Conflict:
                answers[verb] = "Conflict"
        say(answers)
        hear()
    return "released"


def save_on(store: Store, name: str, asked: dict[str, Any]) -> Any:
    """Save under a lease until that is Conflict, or until told; say what was acknowledged."""
    scope = store.scope(asked["session"])
    saved: list[str] = []
    chance = random.Random(name)
    with suppress(Conflict):
        with scope.claim(owner=name, ttl_s=asked["ttl_s"], wait_s=WAIT_S_MAX) as lease:
            while not select.select([sys.stdin], [], [], 0)[0]:
                saved.append(lease.save({"n": len(saved), "text": "x" * 2000}).id)
                if len(saved) == 1:
                    say("begun")
                time.sleep(chance.choice((0, 0.005)))  # or it would always be inside a save
        hear()
        return ["told", saved]
    return ["Conflict", saved]


# Watches


def burst(store: Store, name: str, asked: dict[str, Any]) -> str:
    """Save many times without a pause; return the last revision."""
    scope = store.scope(*asked["scope"])
    revision = ""
    for number in range(asked["count"]):
        revision = scope.save({"n": number}, keep=asked["keep"]).revision
    return revision


TASKS: dict[str, Callable[[Store, str, Any], Any]] = {
    task.__name__: task for task in (hold, save_on, burst)
}


def main() -> None:
    url, name = sys.argv[1:]
    with limpet.open(url) as store:
        say("ready")
        for line in iter(sys.stdin.readline, ""):
            asked = json.loads(line)
            if asked == "stop":
                continue  # what it is about had ended by itself
            task, message = asked
            say(TASKS[task](store, name, message))


if __name__ == "__main__":
    main()
