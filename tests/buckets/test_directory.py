"""A folder as a bucket."""

import os
import random
import shutil
import socket
import stat
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from limpet import InvalidInput, Unavailable
from limpet.backends.buckets.directory.bucket import DirectoryBucket
from limpet.backends.buckets.protocol import Moved, Stored
from limpet.model import ANY
from limpet.opening import CLOCK
from tests.buckets.suite import BucketSuite, listed
from tests.cases import for_each


def now_us() -> int:
    return time.time_ns() // 1000


def make(root: Path | str, **options: Any) -> DirectoryBucket:
    numbers = count()
    token = f"{os.getpid()}-{id(numbers)}"
    given = {
        "token": lambda: f"{token}-{next(numbers)}",
        "now": now_us,
        "clock": CLOCK,
        **options,
    }
    return DirectoryBucket(str(root), **given)


@pytest.fixture
def bucket(tmp_path: Path) -> DirectoryBucket:
    return make(tmp_path / "root")


class TestDirectory(BucketSuite):
    """What every bucket must do, in a folder."""


def files(root: Path) -> list[str]:
    return sorted(str(each.relative_to(root)) for each in root.rglob("*"))


def datas(found: list[Stored | None]) -> list[bytes | None]:
    return [each and each.data for each in found]


# Where things stand.


def test_files_are_private_and_plain(tmp_path: Path) -> None:
    """And folders are made when they are needed, and removed when they are empty."""
    root = tmp_path / "new" / "root"
    bucket = make(root)
    assert bucket.get(["a/b"]) == [None]
    assert (bucket.list("", limit=10), bucket.leftovers(limit=10)) == ([], [])
    assert bucket.sweep() == 0
    bucket.delete(["a/b"])
    assert not root.exists()
    bucket.put("a/b/c.json", b"{}", expect=None)
    bucket.put("a/b/c.json", b"{ }", expect=ANY)
    bucket.mark(["a/m"])
    assert files(root) == ["a", "a/b", "a/b/c.json", "a/m"]
    assert (root / "a/b/c.json").read_bytes() == b"{ }"
    for file in (root / "a/b/c.json", root / "a/m"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for folder in (root.parent, root, root / "a", root / "a/b"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    bucket.delete(["a/b/c.json"])
    assert files(root) == ["a", "a/m"]
    shutil.rmtree(root)
    assert bucket.get(["a/m"]) == [None]
    bucket.mark(["a/m"])
    assert files(root) == ["a", "a/m"]


def test_where_a_root_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative, which is resolved when it is opened; or a link to what does not exist yet."""
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    monkeypatch.chdir(tmp_path / "here")
    bucket = make("../there")
    monkeypatch.chdir("/")
    bucket.put("a", b"1", expect=None)
    assert datas(make(tmp_path / "link").get(["a"])) == [b"1"]
    (tmp_path / "file").write_bytes(b"")
    for root in (tmp_path / "file", tmp_path / "\0"):
        with pytest.raises(InvalidInput):
            make(root)


@for_each("name", ["con", "nul.json", "a b", "ä", "x" * 255, "~"])
def test_names_that_are_odd_elsewhere(tmp_path: Path, name: str) -> None:
    bucket = make(tmp_path)
    bucket.put(f"{name}/{name}", b"1", expect=None)
    bucket.mark([f"{name}/m"])
    assert sorted(listed(bucket)) == sorted([f"{name}/{name}", f"{name}/m"])
    assert datas(bucket.get([f"{name}/{name}", f"{name}/m"])) == [b"1", b""]
    bucket.delete([f"{name}/{name}", f"{name}/m"])
    assert files(tmp_path) == []


KEYS = ["", "/a", "a/", "a//b", ".", "..", "a/../b", "../b", "a\0", ".limpet-x", "a/\ud800"]


@for_each("key", [*KEYS, "/".join("a" * 65)])
def test_what_is_no_key_is_refused(tmp_path: Path, key: str) -> None:
    bucket = make(tmp_path / "root")
    with pytest.raises(InvalidInput):
        bucket.put(key, b"1", expect=ANY)
    for act in (bucket.get, bucket.mark, bucket.delete):
        with pytest.raises(InvalidInput):
            act([key])
    assert files(tmp_path) == []


@for_each("key", ["x" * 256, "x" * 256 + "/a"])
def test_a_name_that_is_too_long_names_nothing(tmp_path: Path, key: str) -> None:
    bucket = make(tmp_path / "root")
    assert bucket.get([key]) == [None]
    bucket.delete([key])
    for write in (lambda: bucket.put(key, b"1", expect=None), lambda: bucket.mark([key])):
        with pytest.raises(InvalidInput, match="too long"):
            write()
    assert listed(bucket) == []


# What is not ours.


def test_pipes_sockets_and_folders_are_left_alone(tmp_path: Path) -> None:
    bucket = make(tmp_path)
    bucket.put("a/b", b"1", expect=None)
    os.mkfifo(tmp_path / "a" / "pipe")
    (tmp_path / "a" / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(tmp_path / "a", os.O_RDONLY)
        try:  # the path of a socket must be short
            listener.bind(f"/proc/self/fd/{here}/socket")
        except OSError:
            listener.bind(str(tmp_path / "a" / "socket"))
        finally:
            os.close(here)
    odd = ["a/folder", "a/pipe", "a/socket"]
    assert bucket.get(odd) == [None, None, None]
    assert bucket.get(odd, first=1) == [None, None, None]
    assert listed(bucket) == ["a/b"]
    for key in odd:
        for expect in (None, ANY):
            with pytest.raises(Unavailable, match="not a regular file"):
                bucket.put(key, b"1", expect=expect)
    bucket.delete(odd)
    assert files(tmp_path) == ["a", "a/b", *odd]
    assert sorted(bucket.leftovers(limit=10)) == [
        ("a/pipe", "neither a file nor a folder", False),
        ("a/socket", "neither a file nor a folder", False),
    ]


def test_names_that_are_not_text_do_not_break_a_listing(tmp_path: Path) -> None:
    bucket = make(tmp_path)
    bucket.put("a/b", b"1", expect=None)
    refused = False
    try:
        with open(os.fsencode(tmp_path) + b"/a/\xff", "wb"):
            os.mkdir(os.fsencode(tmp_path) + b"/a/\xfe")
    except OSError:
        refused = True  # this file system takes only UTF-8
    assert listed(bucket, page=1) == ["a/b"]
    if refused:
        assert bucket.leftovers(limit=10) == []
        return
    assert sorted(bucket.leftovers(limit=10)) == [
        (r"a/\xfe", "a name that is not UTF-8", False),
        (r"a/\xff", "a name that is not UTF-8", False),
    ]
    assert len(bucket.leftovers(limit=1)) == 1


def test_a_foreign_write_during_a_compare_and_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody without the lock replaces the file, or writes into it, while it is compared."""
    bucket = make(tmp_path)
    file = tmp_path / "a"

    def rename() -> None:
        (tmp_path / "foreign").write_bytes(b"foreign")
        (tmp_path / "foreign").rename(file)

    for write in (rename, lambda: file.write_bytes(b"foreign"), file.unlink):
        version = bucket.put("a", b"1", expect=ANY)

        def read(*given: Any, write: Any = write, was: Any = os.fstat) -> Any:
            found = was(*given)
            if stat.S_ISREG(found.st_mode):
                write()
            return found

        with monkeypatch.context() as patched:
            patched.setattr(os, "fstat", read)
            with pytest.raises(Moved):
                bucket.put("a", b"2", expect=version)
        assert datas(bucket.get(["a"])) in ([b"foreign"], [None])
    assert files(tmp_path) == []


# Listing.


def test_pages_of_any_tree(tmp_path: Path) -> None:
    """Against a sorted list: any prefix, any place to continue from, any size of a page."""
    chance = random.Random(5)
    names = ["a", "a-", "a.b", "ab", "b+", "~", "0", "ä", "z z", "é"]
    keys: set[str] = set()
    for _ in range(120):
        key = "/".join(chance.choices(names, k=chance.randint(1, 4)))
        whole = key.split("/")
        above = {"/".join(whole[:depth]) for depth in range(1, len(whole))}
        if not above & keys and not any(each.startswith(key + "/") for each in keys):
            keys.add(key)
    assert len(keys) > 30
    bucket = make(tmp_path, sync=False)
    bucket.mark(sorted(keys))
    asked = [*keys, *(f"{key}/" for key in keys), *(key[:-1] for key in keys), "", "~~"]
    for _ in range(300):
        prefix, after = chance.choice(asked), chance.choice(asked)
        if "//" in prefix or prefix.startswith("/"):
            continue
        limit = chance.choice([1, 2, 5, 1000])
        wanted = sorted(key for key in keys if key.startswith(prefix) and key > after)
        found = [each.key for each in bucket.list(prefix, after=after, limit=limit)]
        assert found == wanted[:limit], (prefix, after)
    assert bucket.list("", limit=0) == []


def test_a_page_reads_few_of_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = make(tmp_path, sync=False)
    bucket.mark([f"a/{number:05}" for number in range(3000)])
    for number in range(600):
        (tmp_path / "b" / f"{number:04}").mkdir(parents=True)
    looked = count()
    was = os.stat

    def look(*given: Any, **named: Any) -> os.stat_result:
        next(looked)
        return was(*given, **named)

    monkeypatch.setattr(os, "stat", look)
    found = bucket.list("a/", after="a/01499", limit=20)
    assert [each.key for each in found] == [f"a/{number:05}" for number in range(1500, 1520)]
    assert next(looked) <= 21
    assert bucket.list("b/", limit=1) == []  # many empty folders


# What killed processes leave.


def old(file: Path, *, hours: float = 2) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"half")
    modified = time.time() - hours * 3600
    os.utime(file, (modified, modified))
    return file


def test_leftovers_are_reported_and_swept(tmp_path: Path) -> None:
    bucket = make(tmp_path)
    bucket.put("a/b", b"1", expect=None)
    old(tmp_path / "a" / ".limpet-left")
    old(tmp_path / "a" / ".limpet-young", hours=0.5)
    old(tmp_path / "c" / ".limpet-alone")
    (tmp_path / ".limpet-link").symlink_to(tmp_path / "a" / "b")
    (tmp_path / ".limpet-folder").mkdir()
    old(tmp_path / "a" / "foreign")
    assert listed(bucket) == ["a/b", "a/foreign"]
    left = {".limpet-folder", ".limpet-link", "a/.limpet-left", "c/.limpet-alone"}
    assert {each.key for each in bucket.leftovers(limit=10)} == left
    assert (bucket.sweep(), bucket.sweep()) == (2, 0)
    kept = [".limpet-folder", ".limpet-link", "a", "a/.limpet-young", "a/b", "a/foreign"]
    assert files(tmp_path) == kept
    assert make(tmp_path, now=lambda: now_us() + 3_600_000_000).sweep() == 1


@for_each("act", [lambda b: b.put("a/b", b"2", expect=ANY), lambda b: b.delete(["a/b"])])
def test_the_first_write_into_a_folder_sweeps_it(tmp_path: Path, act: Any) -> None:
    make(tmp_path).put("a/b", b"1", expect=None)
    left = old(tmp_path / "a" / ".limpet-left")
    young = old(tmp_path / "a" / ".limpet-young", hours=0.5)
    bucket = make(tmp_path)
    act(bucket)
    assert not left.exists()
    assert young.exists()
    old(left)
    bucket.put("a/b", b"3", expect=ANY)
    assert left.exists()  # once is enough
