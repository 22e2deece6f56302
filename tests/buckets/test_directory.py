"""A folder as a bucket."""

import os
import stat
import subprocess
import sys
import textwrap
from itertools import count
from pathlib import Path

import pytest

from holdfast import InvalidInput, Unavailable
from holdfast.backends._bucket.directory import DirectoryBucket
from holdfast.model import ANY
from tests.buckets.suite import BucketSuite, listed


def make(root: Path | str, **options: bool) -> DirectoryBucket:
    numbers = count()
    token = f"{os.getpid()}-{id(numbers)}"
    return DirectoryBucket(str(root), token=lambda: f"{token}-{next(numbers)}", **options)


@pytest.fixture
def bucket(tmp_path: Path) -> DirectoryBucket:
    return make(tmp_path / "root")


class TestDirectory(BucketSuite):
    """What every bucket must do, in a folder."""


def files(root: Path) -> list[str]:
    return sorted(str(each.relative_to(root)) for each in root.rglob("*"))


def test_files_are_private_and_plain(tmp_path: Path) -> None:
    bucket = make(tmp_path / "new" / "root")
    bucket.put("a/b/c.json", b"{}", expect=None)
    root = tmp_path / "new" / "root"
    assert files(root) == ["a", "a/b", "a/b/c.json"]
    assert (root / "a/b/c.json").read_bytes() == b"{}"
    assert stat.S_IMODE((root / "a/b/c.json").stat().st_mode) == 0o600
    for folder in (root, root / "a", root / "a/b"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_reading_creates_nothing(tmp_path: Path) -> None:
    bucket = make(tmp_path / "root")
    assert bucket.get(["a/b"]) == [None]
    assert bucket.list("", limit=10) == []
    bucket.delete(["a/b"])
    assert not (tmp_path / "root").exists()


def test_empty_folders_go(tmp_path: Path) -> None:
    bucket = make(tmp_path)
    bucket.put("a/b/c", b"", expect=None)
    bucket.put("a/d", b"", expect=None)
    bucket.delete(["a/b/c"])
    assert files(tmp_path) == ["a", "a/d"]
    bucket.delete(["a/d"])
    assert files(tmp_path) == []


def test_relative_roots_and_roots_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    make("../there").put("a", b"1", expect=None)
    assert (tmp_path / "there" / "a").read_bytes() == b"1"


def test_nothing_leads_out_of_the_root(tmp_path: Path) -> None:
    """A link in the place of a folder or a file is not followed, and not listed."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    root = tmp_path / "root"
    bucket = make(root)
    bucket.put("a/b", b"1", expect=None)
    (root / "link").symlink_to(outside)
    (root / "a" / "file").symlink_to(outside / "secret")

    assert bucket.get(["link/secret", "a/file"]) == [None, None]
    assert listed(bucket) == ["a/b"]
    with pytest.raises(Unavailable):
        bucket.put("link/new", b"1", expect=None)
    bucket.delete(["link/secret"])
    assert (outside / "secret").read_bytes() == b"secret"
    assert sorted(each.name for each in outside.iterdir()) == ["secret"]


def test_a_file_in_the_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidInput):
        make(tmp_path / "file")
    bucket = make(tmp_path)
    assert bucket.get(["file/x"]) == [None]
    with pytest.raises(Unavailable):
        bucket.put("file/x", b"1", expect=None)


def test_leftovers_of_a_killed_process(tmp_path: Path) -> None:
    bucket = make(tmp_path)
    bucket.put("a/b", b"1", expect=None)
    leftover = tmp_path / "a" / ".holdfast-left"
    leftover.write_bytes(b"half")
    assert listed(bucket) == ["a/b"]
    now = leftover.stat().st_mtime_ns // 1000
    assert bucket.sweep(now + 60_000_000) == 0
    assert bucket.sweep(now + 7_200_000_000) == 1
    assert files(tmp_path) == ["a", "a/b"]


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = make(tmp_path)
    version = bucket.put("a/b", b"1", expect=None)

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "no space left")

    for name in ("write", "fsync", "rename"):
        with monkeypatch.context() as patched:
            patched.setattr(os, name, fail)
            with pytest.raises(Unavailable):
                bucket.put("a/b", b"2", expect=version)
        assert files(tmp_path) == ["a", "a/b"]
    assert [each and each.data for each in bucket.get(["a/b"])] == [b"1"]


PROCESS = """
    import sys
    from itertools import count
    from holdfast.backends._bucket.directory import DirectoryBucket
    from holdfast.backends._bucket.protocol import Moved
    from holdfast.model import ANY

    root, me = sys.argv[1:]
    numbers = count()
    bucket = DirectoryBucket(root, token=lambda: f"{me}-{next(numbers)}", sync=False)
    for turn in range(100):
        while True:
            (found,) = bucket.get(["k/count"])
            try:
                bucket.put("k/count", b"%d" % (int(found.data) + 1), expect=found.version)
                break
            except Moved:
                pass
        bucket.put(f"t/{me}/{turn}", b"x", expect=None)  # folders come and go beside it
        bucket.delete([f"t/{me}/{turn}"])
"""


def test_processes_exclude_each_other(tmp_path: Path) -> None:
    bucket = make(tmp_path)
    bucket.put("k/count", b"0", expect=ANY)
    command = [sys.executable, "-c", textwrap.dedent(PROCESS), str(tmp_path)]
    workers = [subprocess.Popen([*command, str(number)]) for number in range(6)]
    assert [worker.wait(120) for worker in workers] == [0] * 6
    assert [each and each.data for each in bucket.get(["k/count"])] == [b"600"]
    assert files(tmp_path) == ["k", "k/count"]
