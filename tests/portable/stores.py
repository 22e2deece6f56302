"""A store in which everything is that a store can hold, and what can be told of it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import limpet
from limpet import portable
from tests.waiting import until

LONG = "lång/" + "x" * 300


def fill(store: limpet.Store) -> None:
    """Save one of everything."""
    chat = store.scope("alice/chat-1", "planner")
    for number in range(20):
        message = {"role": "user", "content": f"message {number} \u0000 😀", "wide": 2**70 + number}
        chat.append("messages", [message], labels={"z": "1", "a": str(number)})
    ids = [info.id for info in chat.history()]
    bold = chat.fork(ids[10], patch={"mood": 1.0})
    bold.append("messages", ["another way"], metadata={"b": [{}], "a": None})
    chat.fork(ids[5], to="bob/chat-1")
    chat.save({"from": "an old one"}, parent=ids[15], status="failed")
    chat.delete_snapshot(ids[3])
    chat.save({"draft": True}, id="a draft", keep=False, status="running")

    kept = store.scope("kept-only", kind="multiAgent")
    old = datetime(2001, 2, 3, 4, 5, 6, 789, tzinfo=UTC)
    for number in range(3):
        at = old - timedelta(days=number)
        kept.save(number, id=f"k{number}", head=False, parent="gone", created_at=at)
    older = store.scope("older-head", kind="graph")
    older.save([1], id="head")
    older.save([2], id="later", parent="head", head=False)
    store.scope(LONG, LONG).save("a text", id=LONG)
    for name in ("x", "x-", "X", "x/1"):  # keys of object stores sort these in another order
        store.scope(name, "s").save(None)
        store.scope("x", f"{name}.", kind="thread").save({})
    notes = store.scope("noted")
    notes.set_note("manifest", {"v": 1})
    for on in ("b", "a", "a-", LONG):
        for name in ("2", "1"):
            notes.set_note(name, [on, name], on=on)
    store.scope("deep").save(_nested(200), metadata={"strands": {"appData": {"x": 1}}})


def _nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def lines(store: limpet.Store, **asked: Any) -> bytes:
    """Return an export."""
    return b"".join(portable.export_lines(store, **asked))


LOSSES = ["head lost", "head link", "segment link", "scope link", "session link"]


def noise(seed: int) -> str:
    """Return a text of 24 KB that fills a head."""
    return "".join(f"{(seed + 1) * 7919 * each % 1_000_003:06d}" for each in range(1, 4000))


def save_rolled(scope: limpet.Scope, root: Path) -> None:
    """Save eight snapshots to a store in a folder; the first of them are in a segment then."""
    for number in range(8):
        scope.save({"n": number, "text": noise(number)}, id=f"id-{number}")
    until(lambda: any(root.rglob(f"{scope.session_id}/**/segments/*")))


def lose(root: Path, what: str) -> None:
    """Take something of the session `a` away from a store, or put a link in its place."""
    scope = root / "sessions" / "a" / "scopes" / "agent" / "p"
    (segment,) = (scope / "snapshots" / "segments").iterdir()
    path = {
        "head lost": scope / "snapshots" / "head",
        "head link": scope / "snapshots" / "head",
        "segment link": segment,
        "scope link": scope,
        "session link": root / "sessions" / "a",
    }[what]
    elsewhere = root.parent / "elsewhere"
    path.rename(elsewhere)
    if what.endswith("link"):
        path.symlink_to(elsewhere)
