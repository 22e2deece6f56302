"""A store with many sessions, made in a minute.

The first snapshot and the head of each session are saved through the API. The history between them
is inserted into the tables: rows as the engine writes them, with their checksums, and `limpet
check` finds nothing wrong with them.
"""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import orjson

import limpet
from benchmarks.material import messages
from limpet.core import codec, ids
from limpet.core.deltas.chain import body_row
from limpet.core.encryption import PLAIN
from limpet.core.rows import EMPTY, Row, row_checksum

SEED = 28
LONG, LARGE = "long", "large"  # sessions
_STATUSES = ("completed", "completed", "completed", "running", "failed", "")
_CHATS = ("support", "research", "billing", "travel")


class Line(NamedTuple):
    """A scope as its first save left it."""

    pk: int
    seq: int
    id: str
    created_at: int
    saved_at: int
    next_seq: int


def build(path: Path, *, sessions: int, snapshots: int) -> None:
    """Make a store with so many sessions, and so many snapshots in each."""
    random = Random(SEED)
    url = f"sqlite:///{path}?synchronous=off"
    names = [f"{random.choice(_CHATS)}-{number:05}" for number in range(sessions)]
    texts = messages()
    with limpet.open(url) as store:
        for number, name in enumerate(names):
            store.scope(name).save({"messages": [texts[2 * number % len(texts)]]})
    _insert(path, snapshots - 2)
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


def _insert(path: Path, count: int) -> None:
    """Insert snapshots between the first one of each scope and its next: all sessions in turns."""
    with sqlite3.connect(path, isolation_level=None) as database:
        database.execute("PRAGMA synchronous = OFF")
        query = (
            "SELECT s.pk, n.seq, n.id, n.created_at, n.saved_at, s.next_seq"
            "  FROM scopes AS s JOIN snapshots AS n ON n.seq = s.head_seq ORDER BY s.pk"
        )
        lines = [Line(*each) for each in database.execute(query)]
        database.execute("BEGIN")
        rows = _rows(lines, count)
        for snapshot, body in rows:
            marks = ", ".join("?" * len(snapshot))
            database.execute(f"INSERT INTO snapshots VALUES ({marks})", snapshot)
            database.execute("INSERT INTO bodies VALUES (?, ?, ?, ?, ?)", body)
        database.execute(
            "UPDATE scopes SET codec = NULL,"
            " head_seq = (SELECT max(seq) FROM snapshots WHERE scope_pk = scopes.pk),"
            " tip_seq = (SELECT max(seq) FROM snapshots WHERE scope_pk = scopes.pk),"
            " floor = (SELECT max(id) FROM snapshots WHERE scope_pk = scopes.pk)"
        )
        database.execute("UPDATE scopes SET next_seq = head_seq + 1")
        database.execute("COMMIT")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _rows(lines: list[Line], count: int) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Yield rows of `snapshots` and of `bodies`, in the order of their columns."""
    random = Random(SEED)
    seq = max(each.seq for each in lines)
    now = max(each.saved_at for each in lines)
    parents = {each.pk: each.id for each in lines}
    for step in range(count):
        for pk, parent_id in parents.items():
            seq, now = seq + 1, now + 1
            body = orjson.dumps({"messages": [{"role": "user", "content": f"step {step}"}]})
            row = Row(
                seq=seq,
                id=ids.mint(now, random.getrandbits(74), parent_id),
                rev=0,
                nonce=f"{random.getrandbits(64):016x}",
                kept=True,
                parent_id=parent_id,
                forked_from=None,
                status="running",
                labels=EMPTY,
                metadata=EMPTY,
                created_at=now,
                updated_at=now,
                saved_at=now,
                size=len(body),
            )
            parents[pk] = row.id
            checksum = row_checksum(row, pk)
            head, tail = (row.seq, pk, *row[1:6], 0), row[6:]
            squeezed = codec.squeeze(body)
            yield (*head, *tail, checksum), tuple(body_row(seq, None, squeezed, PLAIN, ()))
