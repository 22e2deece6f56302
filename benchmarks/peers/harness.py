"""What every driver shares. Runs in the Python of the peer, so it needs the standard library only.

A driver is run as `python -m benchmarks.peers.<driver> job.json`. It saves a conversation turn by
turn, times each save, reads the latest state back, and prints one JSON object.
"""

import json
import os
import sqlite3
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

SYNC_BYTES = 12 * 1024
SYNC_EVERY = 20
LOADS = 5
Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class Job:
    """What a driver is asked to do."""

    conversation: str
    """A file with the messages of all turns, as JSON."""
    folder: str
    turns: int
    marks: Sequence[int]
    """The turns at which the disk is measured."""
    variant: str = ""
    dsn: str = ""


class Peer(ABC):
    """One store under test."""

    packages: tuple[str, ...] = ()

    @abstractmethod
    def prepare(self, turn: int, new: list[Message]) -> None:
        """Take the messages of the next turn into the state that will be saved. Not timed."""

    @abstractmethod
    def save(self) -> None:
        """Save, durably if the peer ever does. Timed."""

    def reopen(self) -> None:  # noqa: B027 - most keep nothing
        """Reopen before a load, if something may be cached. Not timed."""

    @abstractmethod
    def load(self) -> int:
        """Read the latest state; return how many messages it has. Timed."""

    @abstractmethod
    def disk_bytes(self) -> int:
        """Return what is on the disk now."""

    @abstractmethod
    def durability(self) -> str:
        """Return the settings in effect, as the open connection says where there is one."""

    @abstractmethod
    def close(self) -> None:
        """Close everything, so that the files are as they stay."""

    def timed(self, call: Callable[[], object]) -> tuple[float, float]:
        """Make a call; return the seconds of CPU, of all threads, and wall that it took."""
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        return time.process_time() - cpu, time.perf_counter() - wall


def drive(make: Callable[[Job], Peer]) -> None:
    """Run a peer through the job named on the command line, and print what was found."""
    job = Job(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    turns = json.loads(Path(job.conversation).read_text(encoding="utf-8"))[: job.turns]
    peer = make(job)
    saves: list[tuple[float, float]] = []
    syncs: list[float] = []
    disk: list[tuple[int, int]] = []
    for turn, new in enumerate(turns, 1):
        peer.prepare(turn, new)
        saves.append(peer.timed(peer.save))
        if turn in job.marks:
            disk.append((turn, peer.disk_bytes()))
        if turn % SYNC_EVERY == 0:
            syncs.append(_sync_seconds(job.folder))
    durability = peer.durability()
    loads = [_load(peer, 2 * len(turns)) for _ in range(LOADS)]
    peer.close()
    disk[-1] = (disk[-1][0], peer.disk_bytes())
    answer = {
        "saves": saves,
        "loads": loads,
        "disk": disk,
        "syncs": syncs,
        "durability": durability,
        "versions": {name: version(name) for name in peer.packages},
    }
    print(json.dumps(answer))


def _load(peer: Peer, messages: int) -> tuple[float, float]:
    peer.reopen()
    found: list[int] = []
    seconds = peer.timed(lambda: found.append(peer.load()))
    if found != [messages]:
        raise AssertionError(f"{found[0]} messages were read, {messages} were saved")
    return seconds


def _sync_seconds(folder: str) -> float:
    with open(os.path.join(folder, "sync.bin"), "ab", buffering=0) as file:
        file.write(os.urandom(SYNC_BYTES))
        start = time.perf_counter()
        os.fsync(file.fileno())
        return time.perf_counter() - start


def sqlite_bytes(path: str) -> int:
    """Return the bytes of an SQLite database as of its last commit, or of its closed file."""
    conn = sqlite3.connect(path)
    try:
        (count,) = conn.execute("PRAGMA page_count").fetchone()
        (size,) = conn.execute("PRAGMA page_size").fetchone()
    finally:
        conn.close()
    return int(count) * int(size)


def pragmas(execute: Callable[[str], Any]) -> str:
    """Return the journal and the durability of a connection, given what runs a statement on it."""
    (journal,), (synchronous,) = (execute(f"PRAGMA {n}") for n in ("journal_mode", "synchronous"))
    level = ("OFF", "NORMAL", "FULL", "EXTRA")[synchronous]
    return f"SQLite, journal_mode={str(journal).upper()}, synchronous={level}"
