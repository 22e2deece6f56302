"""`limpet backup`, and `import` of what it writes; `export --zstd`."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import limpet
from tests.cli.conftest import Command
from tests.portable.stores import fill, lines


def test_there_and_back(command: Command, tmp_path: Path) -> None:
    """The exit codes tell what is damaged, and what the target has from elsewhere."""
    source, target = f"sqlite:///{tmp_path}/source.db", f"sqlite:///{tmp_path}/target.db"
    with limpet.open(source, synchronous="off") as store:
        fill(store)
        expected = lines(store)
    first = command("backup", "agents.limpet", "--url", source)
    assert (first.returncode, first.stderr) == (0, "")
    assert "agents.limpet" in first.stdout
    again = json.loads(command("backup", "agents.limpet", "--url", source, "--json").stdout)
    assert (again["written"], again["snapshots"], again["skipped"]) == (0, 39, [])
    assert again["bytes"] == (tmp_path / "agents.limpet").stat().st_size
    assert command("import", "agents.limpet", "--url", target).returncode == 0
    with limpet.open(target) as store:
        assert lines(store) == expected
        store.scope("deep").save("mine")
    conflict = command("import", "agents.limpet", "--url", target)
    assert (conflict.returncode, "deep" in conflict.stderr) == (3, True)
    with closing(sqlite3.connect(tmp_path / "source.db", isolation_level=None)) as conn:
        conn.execute("UPDATE scopes SET last = last + 5 WHERE session_id = 'deep'")
    damaged = command("backup", "agents.limpet", "--url", source, "--verify")
    assert (damaged.returncode, "deep" in damaged.stderr) == (5, True)
    refused = command("backup", "source.db", "--url", source)
    assert (refused.returncode, "a file of the store itself" in refused.stderr) == (2, True)


def test_a_compressed_export(command: Command, url: str, tmp_path: Path) -> None:
    assert command("export", "--zstd", "-o", "agents.jsonl.zst", "--url", url).returncode == 0
    assert command("export", "-o", "agents.jsonl", "--url", url).returncode == 0
    sizes = [(tmp_path / f"agents.jsonl{end}").stat().st_size for end in (".zst", "")]
    assert sizes[0] < sizes[1]
    target = f"sqlite:///{tmp_path}/target.db"
    assert command("import", "agents.jsonl.zst", "--url", target).returncode == 0
    with limpet.open(target) as store, limpet.open(url) as source:
        assert lines(store) == lines(source)
