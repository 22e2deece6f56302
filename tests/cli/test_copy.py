"""`limpet copy`: between all engines, interrupted, verified."""

import json
import signal
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlencode

import pytest

import limpet
from tests.cli.conftest import EXECUTABLE, Command
from tests.portable.stores import fill, lines, lose, save_rolled
from tests.servers.service import Service


@pytest.fixture
def s3_url(seaweedfs: Service, tmp_path: Path) -> str:
    """Return the URL of an empty place in a bucket, with all that is needed to open it."""
    options = {k: v for k, v in seaweedfs.options.items() if "key" not in k}
    return f"s3://{seaweedfs.name}/{tmp_path.name}?{urlencode(options)}"


@pytest.mark.slow
def test_all_the_way_round(
    command: Command, tmp_path: Path, postgres_url: str, s3_url: str, seaweedfs: Service
) -> None:
    """SQLite to S3 to PostgreSQL to a directory to SQLite: the same bytes at the end."""
    first, last = f"sqlite:///{tmp_path}/first.db", f"sqlite:///{tmp_path}/last.db"
    with limpet.open(first) as store:
        fill(store)
        expected = lines(store)
    way = [first, s3_url, postgres_url, (tmp_path / "folder").as_uri(), last]
    keys = ("access_key_id", "secret_access_key")
    secret = {f"AWS_{key.upper()}": str(seaweedfs.options[key]) for key in keys}
    for source, target in pairwise(way):
        done = command("copy", source, target, **secret)
        assert (done.returncode, done.stderr) == (0, "")
        assert "all new, verified" in done.stdout
    with limpet.open(last) as store:
        assert lines(store) == expected
    again = json.loads(command("copy", first, last, "--json").stdout)
    assert (again["written"], again["verified"], again["skipped"]) == (0, True, [])
    assert again["snapshots"] == 39


@pytest.mark.parametrize(
    ("messages", "moments"),
    [(60, [40]), pytest.param(300, [1, 60, 200], marks=pytest.mark.slow)],
)
def test_a_killed_copy_goes_on(
    messages: int, moments: list[int], command: Command, tmp_path: Path
) -> None:
    """SIGKILL at some moments, and once more from the beginning: the same as without."""
    source, target = f"sqlite:///{tmp_path}/source.db", (tmp_path / "target").as_uri()
    with limpet.open(source, synchronous="off") as store:
        fill(store)
        for number in range(messages):
            store.scope(f"chat-{number % 100}").append(
                "messages", [{"content": f"message {number}"}]
            )
        expected = lines(store)
    reached = [_killed(source, target, tmp_path / "target", each) for each in moments]
    assert reached == sorted(set(reached))  # it went on, and was in the middle each time
    assert command("copy", source, target).returncode == 0
    with limpet.open(target) as store:
        assert lines(store) == expected
        assert [each for each in store.check() if each.severity == "error"] == []


def _killed(source: str, target: str, folder: Path, snapshots: int) -> int:
    """Copy until there are so many snapshots, and kill; return how many there are then."""
    process = subprocess.Popen([EXECUTABLE, "copy", source, target], stdout=subprocess.DEVNULL)
    try:
        while _snapshots(folder) < snapshots:
            assert process.poll() is None, "the copy ended before it was killed"
            time.sleep(0.005)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    return _snapshots(folder)


def _snapshots(folder: Path) -> int:
    with limpet.open(folder.as_uri()) as store:
        return store.stats().snapshots


def test_a_part_and_what_is_refused(
    command: Command, url: str, tmp_path: Path, any_url: str
) -> None:
    target = any_url.replace("agents", "target")
    done = command("copy", url, target, "--session", "bob")
    assert done.returncode == 0
    assert done.stdout.startswith("✓ 1 session · 1 snapshot · ")
    assert command("copy", url, target, "--prefix", "alice/").returncode == 0
    with limpet.open(target) as store:
        assert list(store.sessions()) == ["alice/chat-1", "bob/chat-2"]
        store.scope("bob/chat-2").save({"mine": True})
    with limpet.open(url) as store:
        store.scope("carol").save(1)
    conflict = command("copy", url, target)
    assert conflict.returncode == 3
    assert conflict.stderr.startswith(
        "skipped  bob/chat-2:main the scope holds more snapshots than "
    )
    with limpet.open(target) as store:  # the others are copied all the same
        assert list(store.sessions()) == ["alice/chat-1", "bob/chat-2", "carol"]
    assert command("copy", url, url).returncode == 2
    (tmp_path / "link.db").symlink_to("agents.db")
    assert command("copy", url, "sqlite:///link.db").returncode == 2
    missing = command("copy", "sqlite:///absent.db", target)
    assert (missing.returncode, "absent.db" in missing.stderr) == (1, True)
    assert not (tmp_path / "absent.db").exists()


@pytest.mark.parametrize("what", ["head lost", "scope link"])
def test_what_is_left_out_is_named_and_the_command_fails(
    command: Command, tmp_path: Path, what: str
) -> None:
    folder = tmp_path / "store"
    with limpet.open(folder.as_uri()) as store:
        save_rolled(store.scope("a", "p"), folder)
        store.scope("b").save(1)
    lose(folder, what)
    code = 1 if what == "scope link" else 5  # the other is damage
    done = command("copy", folder.as_uri(), f"sqlite:///{tmp_path}/target.db")
    assert (done.returncode, "skipped  " in done.stderr) == (code, True)
    assert "not all was copied" in done.stdout
    lines = command("export", "--url", folder.as_uri())
    assert (lines.returncode, "skipped  " in lines.stderr) == (code, True)
    assert command("copy", folder.as_uri(), "sqlite:///b.db", "--session", "b").returncode == 0
