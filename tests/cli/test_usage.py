"""`limpet usage`: tables, JSON and CSV, and damage."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import limpet
from tests.cli.conftest import Command

USED = {"input_tokens": 1000, "output_tokens": 20}


def fill(url: str) -> None:
    with limpet.open(url) as store:
        for name, count in (("ann/1", 2), ("bob/1", 1)):
            said = {"role": "assistant", "content": "hi", "model": "m", "usage": USED}
            store.scope(name).save({"messages": [said] * count}, labels={"customer": name[:3]})
        store.scope("plain").save({"n": 1})


def test_usage(command: Command, url: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    fill(url)
    prices = tmp_path / "prices.toml"
    prices.write_text('currency = "USD"\n[m]\ninput = 3\noutput = 50\n')
    done = command("usage", "--prices", str(prices), "--url", url)
    assert (done.returncode, done.stderr) == (0, "")
    assert [row.split() for row in done.stdout.splitlines()] == [
        ["session", "calls", "input", "output", "cost", "USD"],
        ["ann/1", "2", "2,000", "40", "0.0080"],
        ["bob/1", "1", "1,000", "20", "0.0040"],
        ["total", "3", "3,000", "60", "0.0120"],
    ]
    shown = command("usage", "ann", "--url", url).stdout.splitlines()
    assert [row.split() for row in shown[:2]] == [
        ["message", "model", "calls", "input", "output"],
        ["main:0", "m", "1", "1,000", "20"],
    ]
    (line, _) = command(
        "usage", "--by", "label=customer", "--json", "--url", url
    ).stdout.splitlines()
    numbers = {"calls": 2, "input": 2000, "cached": 0, "written": 0, "output": 40, "reasoning": 0}
    assert json.loads(line) == {"customer": "ann", **numbers, "cost": None, "unpriced": 2}
    csv = command("usage", "bob", "--by", "model", "--csv", "--url", url).stdout.splitlines()
    assert csv[0] == "model,calls,input,cached,written,output,reasoning,cost,unpriced"
    assert csv[1] == "m,1,1000,0,0,20,0,,1"
    for by in ("colour", "label=", "label=cost"):
        assert command("usage", "--by", by, "--url", url).returncode == 2
    assert command("usage", "plain", "--url", url).stderr == "no message says what it took\n"


def test_a_damaged_session_is_skipped(command: Command, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    fill(url)
    with closing(sqlite3.connect(tmp_path / "new.db")) as conn, conn:
        query = "UPDATE snapshots SET status = 'forged' WHERE seq = ?"
        conn.execute(query, conn.execute("SELECT min(seq) FROM snapshots").fetchone())
    done = command("usage", "--json", "--url", url)
    assert done.returncode == 5
    assert "skipped" in done.stderr
    assert [json.loads(line)["session"] for line in done.stdout.splitlines()] == ["bob/1"]


def test_csv_is_not_run_by_a_spreadsheet(command: Command, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    names = ("=1+1", "+1", "-1", "@SUM(A1)", "plain")
    said = {"role": "assistant", "content": "hi", "model": "=cmd()", "usage": USED}
    with limpet.open(url) as store:
        for name in names:
            store.scope(name).save({"messages": [said]})
    rows = command("usage", "--csv", "--url", url).stdout.splitlines()
    assert {row.partition(",")[0] for row in rows[1:]} == {
        "'=1+1",
        "'+1",
        "'-1",
        "'@SUM(A1)",
        "plain",
    }
    (line, *_) = command("usage", "--by", "model", "--json", "--url", url).stdout.splitlines()
    assert json.loads(line)["model"] == "=cmd()"
