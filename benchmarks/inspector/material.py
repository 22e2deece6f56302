"""A store with many sessions, made in a minute."""

from pathlib import Path
from random import Random

import orjson

import limpet
from benchmarks.material import messages

SEED = 28
LONG, LARGE = "long", "large"  # sessions
_STATUSES = ("completed", "completed", "completed", "running", "failed", "")
_CHATS = ("support", "research", "billing", "travel")


def build(path: Path, *, sessions: int, snapshots: int) -> None:
    """Make a store with so many sessions, and so many snapshots in each."""
    random = Random(SEED)
    url = f"sqlite:///{path}?synchronous=off"
    names = [f"{random.choice(_CHATS)}-{number:05}" for number in range(sessions)]
    texts = messages()
    with limpet.open(url) as store:
        for number, name in enumerate(names):
            store.scope(name).save({"messages": [texts[2 * number % len(texts)]]})
        for step in range(snapshots - 2):
            said = [{"role": "user", "content": f"step {step}"}]
            for name in names:
                store.scope(name).save({"messages": said}, status="running")
    order = random.sample(range(sessions), sessions)
    with limpet.open(url) as store:
        for number in order:
            start = 2 * number % len(texts)
            state = {"messages": texts[start : start + 4], "step": snapshots}
            store.scope(names[number]).save(state, status=random.choice(_STATUSES))


def build_few(path: Path, *, long: int, large_bytes: int) -> None:
    """Make a store with a session of many snapshots, and one with a large state."""
    texts = messages()
    with limpet.open(f"sqlite:///{path}?synchronous=off") as store:
        scope = store.scope(LONG)
        for number in range(long):
            info = scope.save({"messages": texts[number % 90 : number % 90 + 2], "step": number})
            if number % 500 == 499:
                scope.fork(info.id)
        rows = [{"id": n, "text": "word " * 8} for n in range(large_bytes // 130)]
        chat = texts * (large_bytes // 2 // len(orjson.dumps(texts)))
        store.scope(LARGE).save({"messages": chat, "rows": rows})
