"""`kill -9` at any moment: what was acknowledged is there, and what was not is whole or absent."""

import json
import random
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import limpet
from tests.crash.mortal import Model, Write, observe, predict
from tests.effort import times

SCRIPT = Path(__file__).with_name("mortal.py")
ROUNDS = times(8, full=20)


def kill_after(
    acknowledged: int, url: str, seed: int, tag: str
) -> tuple[Model, list[Write], Write | None]:
    """Let a process write and kill it when it has acknowledged more than so many writes.

    Return what it found, the writes it acknowledged, and the one it had begun, if any.
    """
    command = [sys.executable, "-W", "error", str(SCRIPT), url, str(seed), tag]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if lines.count('["done"]\n') > acknowledged:
                break
        process.kill()
        # What it said before it died counts; a line that it did not finish does not.
        lines += [line for line in process.stdout if line.endswith("\n")]
    assert process.returncode == -9

    (_, found), *messages = (json.loads(line) for line in lines)
    done: list[Write] = []
    begun: Write | None = None
    for message in messages:
        if message[0] == "try":
            begun = message[1]
        else:
            assert begun is not None
            done.append(begun)
            begun = None
    assert len(done) > acknowledged
    return found, done, begun


def test_what_was_acknowledged_survives_the_kill(tmp_path: Path) -> None:
    """Promises 1, 2 and 5: one file, killed many times in the middle of all kinds of writes.

    After each kill the store shows exactly what was acknowledged in all rounds so far, in order,
    with or without the one write that was under way.
    """
    path = tmp_path / "store.db"
    url = f"sqlite:///{path}"
    chance = random.Random(20)
    with limpet.open(url) as store:
        store.scope("s", "counter").save({"count": 0}, id="counter")
        model = observe(store)
    kinds: Counter[str] = Counter()

    for number in range(ROUNDS):
        found, done, begun = kill_after(chance.randrange(45), url, number, f"{number:02}")
        assert found == model, "what a new process finds is not what this one found"
        for write in done:
            model = predict(model, write)
            kinds[write[0]] += 1
        with limpet.open(url) as store:
            seen = observe(store)
        possible = [model] if begun is None else [model, predict(model, begun)]
        assert seen in possible, f"killed after {len(done)} writes, during {begun}"
        model = seen
        assert {file.name for file in tmp_path.iterdir()} <= {
            "store.db",
            "store.db-wal",
            "store.db-shm",
        }

    assert kinds.keys() == {
        "save", "append", "draft", "update", "note", "delete", "delete_note", "forget"
    }  # fmt: skip
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
