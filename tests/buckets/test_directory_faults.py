"""A folder as a bucket: what the system refuses, and what a power cut leaves."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from limpet import LimpetError, Unavailable, Unsupported
from limpet.backends.buckets.directory.bucket import DirectoryBucket
from limpet.backends.buckets.protocol import Moved
from limpet.model import ANY, Expect
from tests.buckets.test_directory import datas, files, make, now_us
from tests.cases import for_each
from tests.effort import slowly

HOUR_US = 3_600_000_000


def handles() -> int:
    """Return how many files this process holds open."""
    return len(os.listdir("/dev/fd"))


class Faults:
    """Fails the n-th call of some functions of `os`, counted over all of them."""

    def __init__(self, code: int, at: int, names: tuple[str, ...]) -> None:
        self._code = code
        self._left = at
        self._names = names
        self.failed = ""

    def install(self, patched: pytest.MonkeyPatch) -> None:
        for name in self._names:
            patched.setattr(os, name, self._wrap(name, getattr(os, name)))

    def _wrap(self, name: str, was: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left != 0:
                return was(*given, **named)
            self.failed = name
            raise OSError(self._code, "injected")

        return call


STEPS = ("open", "mkdir", "write", "fsync", "link", "rename", "stat", "fstat", "read")
CODES = [errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS, errno.EMFILE, errno.EDQUOT]


def put_new(bucket: DirectoryBucket) -> None:
    bucket.put("a/b/new", b"new", expect=None)


def put_over(bucket: DirectoryBucket) -> None:
    (found,) = bucket.get(["k/old"])
    bucket.put("k/old", b"new", expect=found.version if found else None)


def put_blind(bucket: DirectoryBucket) -> None:
    bucket.put("k/old", b"new", expect=ANY)


def mark_two(bucket: DirectoryBucket) -> None:
    bucket.mark(["m/x/1", "m/y/2"])


def remove(bucket: DirectoryBucket) -> None:
    bucket.delete(["k/old"])


@pytest.mark.parametrize(
    "code", slowly(CODES, but=[errno.EIO]), ids=lambda code: errno.errorcode[code]
)
@for_each("act", [put_new, put_over, put_blind, mark_two, remove])
def test_every_step_may_fail(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[DirectoryBucket], None],
    code: int,
) -> None:
    """The first step fails, then the second, until none is left. Nothing stays behind."""
    failed: set[str] = set()
    for at in range(1, 100):
        root = tmp_path / str(at)
        bucket = make(root)
        bucket.put("k/old", b"old", expect=None)
        faults = Faults(code, at, STEPS)
        held = handles()
        error: LimpetError | None = None
        with monkeypatch.context() as patched:
            faults.install(patched)
            try:
                act(bucket)
            except LimpetError as raised:
                error = raised
        assert handles() <= held
        assert [each for each in files(root) if ".limpet-" in each] == []
        if not faults.failed:
            assert error is None
            assert {"open", "fsync"} <= failed
            return
        failed.add(faults.failed)
        check_after(bucket, act, error, faults.failed, code)
        with suppress(Moved):  # it was done
            act(make(root))
    pytest.fail("there is no end of steps")


def check_after(
    bucket: DirectoryBucket, act: Any, error: LimpetError | None, step: str, code: int
) -> None:
    if act is remove and error is None:  # empty folders are removed if that can be done
        assert bucket.get(["k/old"]) == [None]
        return
    assert isinstance(error, Unavailable), step
    assert errno.errorcode[code] in str(error)
    assert "`" in str(error)
    if act in (put_new, put_over, put_blind):
        found = datas(bucket.get(["k/old", "a/b/new"]))
        if error.outcome_known:
            assert found == [b"old", None]
        elif step == "fsync":
            assert b"new" in found
        else:
            assert (step, code) in [("link", errno.EIO), ("rename", errno.EIO)]


def test_writes_may_be_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    was = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: was(handle, data[: len(data) // 2 + 1]))
    bucket = make(tmp_path)
    bucket.put("a", b"0123456789" * 100, expect=None)
    assert datas(bucket.get(["a"])) == [b"0123456789" * 100]


def test_a_temporary_that_cannot_be_removed_does_not_hide_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = make(tmp_path)
    with monkeypatch.context() as patched:
        Faults(errno.EIO, 1, ("unlink",)).install(patched)
        bucket.put("a", b"1", expect=None)
    assert datas(bucket.get(["a"])) == [b"1"]
    assert len(files(tmp_path)) == 2
    assert make(tmp_path, now=lambda: now_us() + 2 * HOUR_US).sweep() == 1


def test_what_a_file_system_cannot_do_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = make(tmp_path)
    with monkeypatch.context() as patched:
        Faults(errno.EPERM, 1, ("link",)).install(patched)
        with pytest.raises(Unsupported, match="no hard links"):
            bucket.put("a", b"1", expect=None)

    for code in (errno.ENOLCK, errno.EBADF, errno.EOPNOTSUPP):

        def refuse(*_: object, code: int = code) -> None:
            raise OSError(code, "injected")

        with monkeypatch.context() as patched:
            patched.setattr("fcntl.flock", refuse)
            with pytest.raises(Unsupported, match="cannot lock folders"):
                bucket.put("a", b"1", expect=ANY)
    assert files(tmp_path) == []


@contextmanager
def unprivileged() -> Iterator[None]:
    """Be somebody whom permissions hold back, also if the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_no_permission(tmp_path: Path) -> None:
    bucket = make(tmp_path / "root")
    version = bucket.put("a/b", b"1", expect=None)
    (tmp_path / "root" / "a").chmod(0)
    try:
        with unprivileged():
            acts: list[Callable[[], object]] = [
                lambda: bucket.get(["a/b"]),
                lambda: bucket.list("", limit=9),
                lambda: bucket.put("a/b", b"2", expect=version),
                lambda: bucket.put("a/c", b"2", expect=None),
                lambda: bucket.mark(["a/d"]),
                lambda: bucket.delete(["a/b"]),
                lambda: bucket.leftovers(limit=9),
                bucket.sweep,
            ]
            for act in acts:
                with pytest.raises(Unavailable, match="permission denied"):
                    act()
    finally:
        (tmp_path / "root" / "a").chmod(0o700)
    assert files(tmp_path / "root") == ["a", "a/b"]
    assert datas(bucket.get(["a/b"])) == [b"1"]


# Power cuts.


class Syncs:
    """Records what is synced, by inode, and when something is placed."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.seen: list[int | str] = []
        for name in ("fsync", "link", "rename", "unlink"):
            patched.setattr(os, name, self._wrap(name, getattr(os, name)))

    def _wrap(self, name: str, was: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            self.seen.append(os.fstat(given[0]).st_ino if name == "fsync" else name)
            return was(*given, **named)

        return call


def inode(path: Path) -> int:
    return path.stat().st_ino


def test_everything_new_is_synced_up_to_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file before it is placed; after it the folder; and the folder above each new folder."""
    root = tmp_path / "new" / "root"
    bucket = make(root)
    syncs = Syncs(monkeypatch)
    bucket.put("a/b/c", b"1", expect=None)
    above = [tmp_path, tmp_path / "new", root, root / "a"]
    folder, file = inode(root / "a/b"), inode(root / "a/b/c")
    assert syncs.seen == [*map(inode, above), file, "link", "unlink", folder]

    syncs.seen.clear()
    bucket.put("a/b/c", b"2", expect=ANY)
    assert syncs.seen == [inode(root / "a/b/c"), "rename", folder]

    syncs.seen.clear()
    with pytest.raises(Moved):  # who is told that it exists may go by it
        bucket.put("a/b/c", b"3", expect=None)
    assert syncs.seen == [folder]

    syncs.seen.clear()
    bucket.mark(["a/b/m", "a/b/n", "a/o"])
    assert syncs.seen == [folder, inode(root / "a")]
    syncs.seen.clear()
    bucket.mark(["a/b/m"])
    assert syncs.seen == [folder]

    syncs.seen.clear()
    bucket.delete(["a/b/m", "a/b/n", "a/o"])
    assert syncs.seen == ["unlink", "unlink", "unlink", folder, inode(root / "a")]


def test_a_folder_that_was_not_synced_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next write would take it for durable."""
    bucket = make(tmp_path)
    Faults(errno.EIO, 1, ("fsync",)).install(monkeypatch)
    with pytest.raises(Unavailable) as raised:
        bucket.put("a/b", b"1", expect=None)
    assert raised.value.outcome_known
    assert files(tmp_path) == []


def test_nothing_is_synced_if_that_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = Syncs(monkeypatch)
    bucket = make(tmp_path / "root", sync=False)
    expect: Expect
    for expect in (None, ANY):
        bucket.put("a/b", b"1", expect=expect)
    bucket.mark(["a/c"])
    bucket.delete(["a/b", "a/c"])
    assert set(syncs.seen) <= {"link", "rename", "unlink"}


def test_a_file_system_without_syncs_of_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = make(tmp_path)
    bucket.put("a", b"1", expect=None)
    Faults(errno.EINVAL, 2, ("fsync",)).install(monkeypatch)
    bucket.put("a", b"2", expect=ANY)
