"""A folder as a bucket, in many hands: threads, processes, forks, and folders that vanish."""

import fcntl
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from limpet import Unavailable
from limpet.backends.buckets.directory import bucket as directory
from limpet.backends.buckets.directory.folders import locked
from limpet.backends.buckets.protocol import Moved
from limpet.model import ANY
from limpet.opening import CLOCK
from tests.buckets.test_directory import datas, files, make

# Six processes, of which three are forks that go on with the same bucket, and draw the same names
# for their temporary files. All work in the same few folders, which come and go.
STORM = """
    import os, sys, time
    from itertools import count
    from limpet.backends.buckets.directory.bucket import DirectoryBucket
    from limpet.backends.buckets.protocol import Moved
    from limpet.opening import CLOCK

    root, me = sys.argv[1:]
    name = me
    numbers = count()
    bucket = DirectoryBucket(
        root,
        token=lambda: f"{name}-{next(numbers)}",
        now=lambda: time.time_ns() // 1000,
        clock=CLOCK,
        sync=False,
    )
    bucket.get(["k/count"])
    child = os.fork()
    me += "" if child else "-fork"

    for turn in range(25):
        while True:
            (found,) = bucket.get(["k/count"])
            try:
                bucket.put("k/count", b"%d" % (int(found.data) + 1), expect=found.version)
                break
            except Moved:
                pass
        mine = [f"t/{turn % 2}/x/{me}-{turn}-{each}" for each in "abc"]
        bucket.put(mine[0], b"x", expect=None)
        bucket.mark(mine[1:2])
        bucket.put(mine[2], b"y", expect=None)
        bucket.delete([mine[0]])
        found = bucket.get(mine)
        assert [each and each.data for each in found] == [None, b"", b"y"], (mine, found)
        bucket.delete(mine[1:])
        bucket.put(f"kept/{turn % 3}/{me}-{turn}", b"z", expect=None)
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_storm_of_processes(tmp_path: Path) -> None:
    """No increment is lost, no acknowledged file vanishes while others delete its neighbours."""
    bucket = make(tmp_path)
    bucket.put("k/count", b"0", expect=ANY)
    command = [sys.executable, "-c", textwrap.dedent(STORM), str(tmp_path)]
    workers = [subprocess.Popen([*command, str(number)]) for number in range(3)]
    assert [worker.wait(300) for worker in workers] == [0] * 3
    assert datas(bucket.get(["k/count"])) == [b"150"]
    assert len(bucket.list("kept/", limit=1000)) == 150
    assert [each for each in files(tmp_path) if not each.startswith("kept")] == ["k", "k/count"]


@pytest.mark.parametrize("step", ["mkdir", "open"])
def test_a_folder_that_vanishes_at_any_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """After each of the first calls whatever is empty goes; then the writer is left in peace."""
    bucket = make(tmp_path / "root")
    was = getattr(os, step)
    rounds = count()

    def call(*given: Any, **named: Any) -> Any:
        found = was(*given, **named)
        if next(rounds) < 12:
            for name in ("a/b", "a", ""):
                try:
                    os.rmdir(tmp_path / "root" / name)
                except OSError:
                    continue
        return found

    with monkeypatch.context() as patched:
        patched.setattr(os, step, call)
        bucket.put("a/b/c", b"1", expect=None)
    bucket.delete(["a/b/c"])
    rounds = count()
    with monkeypatch.context() as patched:
        patched.setattr(os, step, call)
        bucket.mark(["a/b/c", "a/b/d"])
    assert files(tmp_path / "root") == ["a", "a/b", "a/b/c", "a/b/d"]


def test_a_folder_that_never_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "_TRIES_MAX", 20)

    def token() -> str:
        os.rmdir(tmp_path / "a")
        return "x"

    bucket = make(tmp_path, token=token)
    with pytest.raises(Unavailable, match="keeps removing the folder"):
        bucket.put("a/b", b"1", expect=None)


@pytest.mark.parametrize(("step", "expect"), [("link", None), ("rename", ANY)])
def test_a_writer_that_slept_while_its_temporary_file_was_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, expect: Any
) -> None:
    bucket = make(tmp_path)
    was = getattr(os, step)
    rounds = count()

    def call(*given: Any, **named: Any) -> Any:
        if next(rounds) == 0:
            assert make(tmp_path, now=lambda: 1 << 60).sweep() == 1
            assert files(tmp_path) == []
        return was(*given, **named)

    monkeypatch.setattr(os, step, call)
    bucket.put("a/b", b"1", expect=expect)
    assert next(rounds) == 2
    assert datas(bucket.get(["a/b"])) == [b"1"]


# The lock.


@contextmanager
def held(folder: Path) -> Iterator[int]:
    """Hold the lock of a folder through a handle of our own, as another process would."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def test_who_compares_waits_for_the_lock_but_not_for_ever(tmp_path: Path) -> None:
    bucket = make(tmp_path, lock_wait_s=0.05)
    version = bucket.put("a/b", b"1", expect=None)
    with held(tmp_path / "a"):
        for expect in (version, ANY):
            with pytest.raises(Unavailable, match="holds the lock") as raised:
                bucket.put("a/b", b"2", expect=expect)
            assert raised.value.outcome_known
        with pytest.raises(Unavailable, match="holds the lock"):
            bucket.delete(["a/b"])
        # What creates does not compare, and needs no lock; nor does who reads.
        bucket.put("a/c", b"3", expect=None)
        bucket.mark(["a/d", "a/d"])
        with pytest.raises(Moved):
            bucket.put("a/c", b"4", expect=None)
        assert datas(bucket.get(["a/b", "a/c", "a/d"])) == [b"1", b"3", b""]
        bucket.put("other/b", b"2", expect=ANY)
    assert files(tmp_path / "a") == ["b", "c", "d"]
    bucket.put("a/b", b"2", expect=version)


@pytest.mark.parametrize("other", ["delete", "put"])
def test_nothing_comes_between_a_comparison_and_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    bucket = make(tmp_path)
    version = bucket.put("a/b", b"1", expect=None)
    acts = {
        "delete": lambda: bucket.delete(["a/b"]),
        "put": lambda: bucket.put("a/b", b"other", expect=ANY),
    }
    thread = threading.Thread(target=acts[other])
    was = os.rename

    def rename(*given: Any, **named: Any) -> None:
        if threading.current_thread() is not thread:
            thread.start()
            thread.join(0.1)
            assert thread.is_alive()
            with pytest.raises(Moved):  # to create is one step, which need not wait
                bucket.put("a/b", b"new", expect=None)
            assert datas(bucket.get(["a/b"])) == [b"1"]
        was(*given, **named)

    monkeypatch.setattr(os, "rename", rename)
    bucket.put("a/b", b"2", expect=version)
    thread.join(300)
    assert datas(bucket.get(["a/b"])) == [None if other == "delete" else b"other"]


def test_a_fork_in_the_middle_does_not_keep_the_lock(tmp_path: Path) -> None:
    """A forked process shares the handles of the one that forked, here as copies of them."""
    bucket = make(tmp_path, lock_wait_s=0)
    handle = os.open(tmp_path, os.O_RDONLY)
    with locked(handle, "", clock=CLOCK, wait_s=0):
        copy = os.dup(handle)
        with pytest.raises(Unavailable):
            bucket.put("a", b"1", expect=ANY)
    os.close(handle)
    bucket.put("a", b"1", expect=ANY)
    os.close(copy)
