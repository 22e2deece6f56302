"""What one process does with leases and watches: a task for each line of JSON that it gets.

Some tasks say more than one line, and some listen to further ones.
"""

import asyncio
import json
import os
import random
import select
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import limpet
from limpet import AsyncStore, Conflict, Lease, Snapshot, SnapshotInfo, Store

WAIT_S_MAX = 60.0


def say(answer: Any) -> None:
    # At once and in one piece: this process may be killed at any moment.
    os.write(1, json.dumps(answer).encode() + b"\n")


def hear() -> Any:
    return json.loads(sys.stdin.readline())


def is_told() -> bool:
    """Tell whether there is another line."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


# Leases


def contend(store: Store, name: str, rounds: int) -> int:
    """Raise a counter under a lease, again and again, in two steps that would show a rival."""
    scope = store.scope("s")
    for _ in range(rounds):
        with scope.claim(owner=name, ttl_s=20, wait_s=WAIT_S_MAX) as lease:
            begun = begin(lease.load(), name)
            lease.save(begun, keep=False)
            lease.save(end(lease.load(), begun), keep=False)
    return rounds


def contend_async(store: Store, name: str, rounds: int) -> int:
    """The same by the async API."""

    async def work() -> None:
        scope = store.aio.scope("s")
        for _ in range(rounds):
            async with scope.claim(owner=name, ttl_s=20, wait_s=WAIT_S_MAX) as lease:
                begun = begin(await lease.load(), name)
                await lease.save(begun, keep=False)
                await lease.save(end(await lease.load(), begun), keep=False)

    asyncio.run(work())
    return rounds


def begin(head: Snapshot | None, name: str) -> dict[str, Any]:
    state: Any = {"count": 0, "log": []} if head is None else head.state
    return {**state, "log": [*state["log"], [name, "begin"]]}


def end(head: Snapshot | None, begun: dict[str, Any]) -> dict[str, Any]:
    assert head is not None
    assert head.state == begun, f"not alone: {head.state}"
    name = begun["log"][-1][0]
    return {"count": begun["count"] + 1, "log": [*begun["log"], [name, "end"]]}


WRITES: dict[str, Callable[[Lease], object]] = {
    "save": lambda lease: lease.save({"by": "woken"}),
    "draft": lambda lease: lease.save({"by": "woken"}, keep=False),
    "aside": lambda lease: lease.save({"by": "woken"}, head=False),
    "again": lambda lease: lease.save({"by": "woken"}, id="first", overwrite=True),
    "append": lambda lease: lease.append("items", ["woken"]),
    "update": lambda lease: lease.update("first", lambda s: s.with_(state={"by": "woken"})),
    "set_note": lambda lease: lease.set_note("note", "woken"),
    "set_note_on": lambda lease: lease.set_note("note", "woken", on="first"),
    "add_note": lambda lease: lease.set_note("other", "woken"),
    "change_note": lambda lease: lease.set_note("note", lambda _: "woken"),
    "delete_note": lambda lease: lease.delete_note("note"),
    "delete_snapshot": lambda lease: lease.delete_snapshot("first"),
    "prune": lambda lease: lease.prune(keep_last=1),
    "prune_old": lambda lease: lease.prune(older_than=timedelta(0)),
    "delete": lambda lease: lease.delete(),
}


def hold(store: Store, name: str, ttl_s: float) -> str:
    """Hold a lease; write under it when told, and say what came of it; then give it back."""
    with store.scope("s").claim(owner=name, ttl_s=ttl_s, wait_s=WAIT_S_MAX) as lease:
        lease.save({"by": name}, id="first")
        lease.save({"by": name, "items": []}, id="second")
        lease.set_note("note", name)
        lease.set_note("note", name, on="first")
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
            while not is_told():
                saved.append(lease.save({"n": len(saved), "text": "x" * 2000}).id)
                if len(saved) == 1:
                    say("begun")
                time.sleep(chance.choice((0, 0.005)))  # or it would always be inside a save
        hear()
        return ["told", saved]
    return ["Conflict", saved]


def report(store: Store, name: str, ttl_s: float) -> None:
    """Save under a lease, and say after each save what was saved and when the lease ends."""
    with store.scope("s").claim(owner=name, ttl_s=ttl_s) as lease:
        while True:
            id = lease.save({"by": name}).id
            say([id, lease.expires_at.timestamp()])


# Watches


def watch(store: Store, name: str, asked: dict[str, Any]) -> None:
    """Say what a watch hears, and None in the end."""
    if asked.pop("api") == "sync":
        for info in watch_of(store, asked):
            tell(info)
    else:
        asyncio.run(watch_async(store.aio, asked))


async def watch_async(store: AsyncStore, asked: dict[str, Any]) -> None:
    async for info in watch_of(store, asked):
        tell(info)


def watch_of(store: Any, asked: dict[str, Any]) -> Any:
    """Return the watch of a scope, of one of its snapshots, or of what a store has."""
    scope = asked.pop("scope", None)
    return store.watch(**asked) if scope is None else store.scope(*scope).watch(**asked)


def tell(info: SnapshotInfo) -> None:
    say([info.id, info.revision])


def burst(store: Store, name: str, asked: dict[str, Any]) -> str:
    """Save many times without a pause; return the last revision."""
    scope = store.scope(*asked["scope"])
    revision = ""
    for number in range(asked["count"]):
        revision = scope.save({"n": number}, keep=asked["keep"]).revision
    return revision


TASKS: dict[str, Callable[[Store, str, Any], Any]] = {
    task.__name__: task for task in (contend, contend_async, hold, save_on, report, watch, burst)
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
