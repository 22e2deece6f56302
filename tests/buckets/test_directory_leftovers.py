"""A folder as a bucket: what killed processes leave in it."""

import os
import time
from pathlib import Path

import pytest

from limpet.backends.buckets.directory import listing
from limpet.model import ANY
from tests.buckets.suite import listed
from tests.buckets.test_directory import files, make, now_us

HOUR_US = 3_600_000_000


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
    assert [each.key for each in sorted(bucket.leftovers(limit=10))] == [
        ".limpet-folder",
        ".limpet-link",
        "a/.limpet-left",
        "c/.limpet-alone",
    ]
    assert bucket.sweep() == 2
    assert bucket.sweep() == 0
    assert files(tmp_path) == [
        ".limpet-folder",
        ".limpet-link",
        "a",
        "a/.limpet-young",
        "a/b",
        "a/foreign",
    ]


def test_the_clock_is_given(tmp_path: Path) -> None:
    bucket = make(tmp_path, now=lambda: now_us() + 3 * HOUR_US)
    bucket.put("a/b", b"1", expect=None)
    old(tmp_path / "a" / ".limpet-young", hours=0)
    assert bucket.sweep() == 1


@pytest.mark.parametrize("write", ["put", "delete"])
def test_the_first_write_into_a_folder_sweeps_it(tmp_path: Path, write: str) -> None:
    make(tmp_path).put("a/b", b"1", expect=None)
    leftover = old(tmp_path / "a" / ".limpet-left")
    young = old(tmp_path / "a" / ".limpet-young", hours=0.5)
    bucket = make(tmp_path)
    if write == "put":
        bucket.put("a/b", b"2", expect=ANY)
    else:
        bucket.delete(["a/b"])
    assert not leftover.exists()
    assert young.exists()
    old(leftover)
    bucket.put("a/b", b"3", expect=ANY)
    assert leftover.exists()  # once is enough


def test_no_more_folders_are_remembered_than_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After so many the rest is left to `sweep`, lest a server with many scopes scan for ever."""
    monkeypatch.setattr(listing, "_TIDIED_MAX", 3)
    left = [old(tmp_path / str(number) / ".limpet-left") for number in range(5)]
    bucket = make(tmp_path)
    for _ in range(2):
        for number in range(5):
            bucket.put(f"{number}/x", b"1", expect=ANY)
    assert [each.exists() for each in left] == [False, False, False, True, True]
    assert bucket.sweep() == 2
