"""The checklist of the Go store, item by item.

What both of our stores promise, the test of the seed shows on both (`tests/seeds`). Where we differ
from Go, the test says why.
"""

import json
import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import Corrupt, InvalidInput, NotFound, Unavailable
from limpet.compat.runs import Checkpoint, GoRunStore, RunStore
from limpet.compat.runs import go as go_format
from tests.cases import for_each
from tests.compat.runs.hands import FIXTURES, HELLO, SESSIONS, Runs, golden

WHOLE = Checkpoint(
    "r", "task", 3, [{"role": "user"}], "<p>", 12, 34, "2026-03-01T20:54:15.123456789-05:00"
)
ESCAPES = ["", ".", "..", "../x", "a/b", "/x", "a\\b", "a\0b", "x" * 231, "\ud800", None, 1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of what Go wrote, and of the probes, all of one age."""
    folder = tmp_path / "sessions"
    folder.mkdir()
    for file in SESSIONS.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
        os.utime(folder / file.name, (0, 0))
    return folder


@pytest.fixture(params=["go", "sqlite"])
def runs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Runs]:
    if request.param == "go":
        yield GoRunStore(tmp_path / "new")
        return
    with limpet.open(f"sqlite:///{tmp_path}/runs.db") as store:
        yield RunStore(store)


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_an_empty_time_becomes_the_present(runs: Runs) -> None:
    runs.save(Checkpoint("r"))
    made = datetime.fromisoformat(runs.load("r").created_at)
    assert abs(datetime.now(UTC) - made) < timedelta(minutes=1)


def test_has_is_false_for_what_is_no_file(folder: Path) -> None:
    """Go says True for a folder. A damaged file counts: a run must not begin anew unnoticed."""
    (folder / "folder.json").mkdir()
    runs = GoRunStore(folder)
    assert not runs.has_checkpoint("folder")
    assert runs.has_checkpoint("truncated")
    with pytest.raises(NotFound):
        runs.load("folder")
    runs.delete("folder")
    assert (folder / "folder.json").is_dir()
    with pytest.raises(Unavailable):
        runs.save(Checkpoint("folder"))
    assert "folder" not in [each.run_id for each in runs.list()]


def test_list_newest_first_messages_absent(folder: Path) -> None:
    """As the real List, but for three probes and the prompt.

    The prompt stands in the middle of a file, behind the messages. A run has the name of its file,
    by which alone Load finds it. A file that holds `null` is damaged, not an empty checkpoint.
    """
    renamed = {"other-id": "extra", "casekeys": "CaseKeys"}
    expected = [
        each | {"system_prompt": "", "run_id": renamed.get(each["run_id"], each["run_id"])}
        for each in golden()["list"]
        if each["run_id"]
    ]
    assert [each.to_json() for each in GoRunStore(folder).list()] == expected


def test_load_reads_what_go_reads(folder: Path) -> None:
    runs = GoRunStore(folder)
    renamed = {"extra", "CaseKeys"}
    for run_id, expected in golden()["load"].items():
        if "error" in expected or run_id == "null":
            with pytest.raises(Corrupt, match=f"{run_id}.json"):
                runs.load(run_id)
            continue
        found = runs.load(run_id)
        assert found.run_id == (run_id if run_id in renamed else expected["run_id"])
        assert found.iteration == expected["iteration"]
        assert len(found.messages or []) == expected["messages"]


def test_tmp_ignored(folder: Path) -> None:
    """Ours as well, by Go: it looks at names that end in `.json`."""
    runs = GoRunStore(folder)
    (folder / ".limpet-0123456789abcdef.tmp").write_bytes(b"{}")
    assert not {"orphan", "orphan.json"} & {each.run_id for each in runs.list()}
    with pytest.raises(NotFound):
        runs.load("orphan")
    left = [each.message for each in runs.check() if each.code == "temporary_left"]
    assert len(left) == 2


def test_nil_messages(runs: Runs, folder: Path) -> None:
    assert GoRunStore(folder).load("nil-messages").messages is None
    runs.save(Checkpoint("nil"))
    runs.save(Checkpoint("none", messages=[]))
    assert runs.load("nil").messages is None
    assert runs.load("none").messages == []


# Ours.


@for_each("run_id", ESCAPES)
def test_path_guard(run_id: Any, tmp_path: Path) -> None:
    """Go wrote, saw and deleted `../x` outside of the folder."""
    (tmp_path / "x.json").write_bytes(go_format.encode(Checkpoint("x")))
    runs = GoRunStore(tmp_path / "sessions")
    for verb in (runs.load, runs.delete, runs.has_checkpoint):
        with pytest.raises(InvalidInput):
            verb(run_id)
    with pytest.raises(InvalidInput):
        runs.save({"run_id": run_id})
    assert names(tmp_path) == ["sessions", "x.json"]
    assert names(tmp_path / "sessions") == []


def test_the_longest_name_fits_with_all_that_is_made_of_it(tmp_path: Path) -> None:
    runs = GoRunStore(tmp_path)
    run_id = "é" * 115
    (tmp_path / f"{run_id}.json").write_bytes(b"{")
    runs.save(Checkpoint(run_id))
    assert names(tmp_path) == [f"{run_id}.json", f"{run_id}.json.corrupt-1"]


def test_0600(tmp_path: Path) -> None:
    """Go writes transcripts that everybody can read."""
    GoRunStore(tmp_path).save(WHOLE)
    assert stat.S_IMODE((tmp_path / "r.json").stat().st_mode) == 0o600


def test_corrupt_reported_not_hidden(folder: Path) -> None:
    """Go skips it in List, starts fresh after Load, and overwrites it."""
    runs = GoRunStore(folder)
    told = {(each.code, each.scope.session_id) for each in runs.check() if each.scope}
    damaged = {"truncated", "empty", "array", "badtime", "null"}
    assert told == {("checkpoint_damaged", run_id) for run_id in damaged} | {
        ("run_id_differs", "extra"),
        ("run_id_differs", "CaseKeys"),
    }
    before = (folder / "truncated.json").read_bytes()
    runs.save(Checkpoint("truncated", iteration=1))
    runs.save(Checkpoint("truncated", iteration=2))
    assert runs.load("truncated").iteration == 2
    assert (folder / "truncated.json.corrupt-1").read_bytes() == before
    assert [each.code for each in runs.check() if "truncated" in each.message] == [
        "checkpoint_set_aside"
    ]
    (folder / "truncated.json").write_bytes(b"")
    runs.save(Checkpoint("truncated"))
    assert (folder / "truncated.json.corrupt-2").read_bytes() == b""


def test_raw_json_messages(runs: Runs) -> None:
    """Go sorts keys, rounds 12345678901234567890, writes 1.0 as 1, and drops unknown blocks."""
    text = (FIXTURES / "run-hello-world.first_save.json").read_text()
    saved = json.loads(text)
    saved["messages"].append({"role": "user", "content": [{"type": "brand_new_block", "n": 1e300}]})
    saved["messages"].append({"wide": 10**40, "small": -0.0, "": {}, "none": [[], None]})
    runs.save(saved)
    found = runs.load(HELLO)
    assert json.dumps(found.messages) == json.dumps(saved["messages"])
    resaved = json.loads((FIXTURES / "run-hello-world.after_load_resave.json").read_text())
    assert json.dumps(resaved["messages"]) != json.dumps(json.loads(text)["messages"])
