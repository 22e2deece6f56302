"""Measure backups: `python -m benchmarks.backups [--quick] [--write]`.

Prints a table. Fails only if something crashes.
"""

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import limpet
from benchmarks.harness import machine
from benchmarks.prose import passage
from limpet import portable

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "backups.md"
PREFACE = """\
# Backups: size and time

Written by `python -m benchmarks.backups --write`.

- **chat**: a chat of {turns} turns of 2 KB, appended one by one. **sessions**: {sessions} sessions
  with one small snapshot each. Both are in a SQLite file; copies and restores are durable.
- **again**: the same backup once more, when nothing has changed. **verified**: everything is read
  back and compared.
- Times are wall time, and CPU time of the process.

Machine: {machine}.

| what | chat: size | wall | CPU | sessions: size | wall | CPU |
| --- | --- | --- | --- | --- | --- | --- |
"""


def measure(
    fill: Callable[[limpet.Store], None], folder: Path
) -> dict[str, tuple[int, float, float]]:
    """Return bytes, seconds and seconds of CPU of each way."""
    file, backup, lines = folder / "store.db", folder / "agents.limpet", folder / "agents.jsonl"
    found: dict[str, tuple[int, float, float]] = {}

    def timed(name: str, run: Callable[[], object], path: Path) -> None:
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        run()
        took = time.perf_counter() - wall_s, time.process_time() - cpu_s
        found[name] = (path.stat().st_size if path.is_file() else size_of(path), *took)

    def export() -> None:
        with lines.open("wb") as out:
            out.writelines(portable.export_lines(store))

    def restore() -> None:
        with limpet.open(f"sqlite:///{folder}/restored.db") as target:
            portable.restore(target, str(backup))

    def copy(url: str) -> None:
        with limpet.open(url) as target:
            portable.copy(store, target)

    with limpet.open(f"sqlite:///{file}", synchronous="off") as store:
        fill(store)
        store.compact()
        found["the store"] = (file.stat().st_size, 0, 0)
        timed("backup", lambda: portable.backup(store, str(backup)), backup)
        timed("backup, again", lambda: portable.backup(store, str(backup)), backup)
        timed("backup, verified", lambda: portable.backup(store, str(backup), verify=True), backup)
        timed("restore", restore, folder / "restored.db")
        timed("copy to SQLite", lambda: copy(f"sqlite:///{folder}/copy.db"), folder / "copy.db")
        timed("copy to a folder", lambda: copy(f"file://{folder}/copy"), folder / "copy")
        timed("export", export, lines)
    timed("cp of the closed file", lambda: shutil.copy(file, folder / "cp"), folder / "cp")
    url = os.environ.get("LIMPET_BENCH_POSTGRES_URL")
    if url and shutil.which("pg_dump"):
        with limpet.open(url) as target, limpet.open(f"sqlite:///{file}") as store:
            portable.copy(store, target)
        command = ["pg_dump", "--schema=limpet", "-Fc", "-f", str(folder / "dump"), url]
        timed("pg_dump -Fc", lambda: subprocess.run(command, check=True), folder / "dump")
    return found


def size_of(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    turns, sessions = (60, 100) if given.quick else (500, 10_000)

    def chat(store: limpet.Store) -> None:
        scope = store.scope("chat")
        for turn in range(turns):
            message = {
                "role": "assistant" if turn % 2 else "user",
                "content": passage(turn * 2000, 2000),
            }
            scope.append("messages", [message])

    def small(store: limpet.Store) -> None:
        for each in range(sessions):
            message = {"role": "user", "content": f"hello {each}"}
            store.scope(f"user-{each}").save({"messages": [message]})

    columns = []
    for fill in (chat, small):
        with tempfile.TemporaryDirectory() as folder:
            columns.append(measure(fill, Path(folder)))
    page = PREFACE.format(turns=turns, sessions=sessions, machine="; ".join(machine()))
    for name in columns[0]:
        facts = [column[name] for column in columns]
        cells = [f"{size / 1e6:,.2f} MB | {wall:.2f} s | {cpu:.2f} s" for size, wall, cpu in facts]
        page += f"| {name} | {' | '.join(cells)} |\n"
    print(page)
    if given.write:
        PAGE.write_text(page, "utf-8")


if __name__ == "__main__":
    main()
