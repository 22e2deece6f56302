"""A full disk with a store in a folder can be read, and emptied."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

import limpet
from limpet import Unavailable

KIB = 1024
DISK_BYTES = 6 * KIB * KIB
COUNT = 40


def on_a_small_disk(tmp_path: Path, work: Callable[[Path], None]) -> None:
    """Call a function of this module in a process that has mounted a small disk for itself."""
    folder = tmp_path / "disk"
    folder.mkdir()
    as_root = ["--user", "--map-root-user"] if os.getuid() else []
    command = f"mount -t tmpfs -o size={DISK_BYTES} tmpfs '{folder}' && exec \"$@\""
    program = [sys.executable, "-m", __name__, work.__name__, str(folder)]
    subprocess.run(
        ["unshare", *as_root, "--mount", "sh", "-c", command, "sh", *program], check=True
    )


def fill(url: str) -> None:
    """Save histories of 320 KB, mostly in segments."""
    with limpet.open(url) as store:
        for session in "stu":
            for number in range(COUNT):
                text = Random(f"{session}{number}").randbytes(4_000).hex()
                store.scope(session).save({"text": text}, id=f"id-{number}")


def leave(folder: Path, free_bytes: int) -> None:
    """Fill the disk but for some bytes."""
    (folder / "ballast").unlink(missing_ok=True)
    found = os.statvfs(folder)
    (folder / "ballast").write_bytes(b"x" * (found.f_bavail * found.f_frsize - free_bytes))


def needed(folder: Path) -> int:
    """Return the bytes of a segment and a head, and what each file takes beyond its bytes."""
    files = (folder.rglob("segments/*"), folder.rglob("head"))
    return sum(max(path.stat().st_size for path in each) for each in files) + 64 * KIB


def test_without_any_space_it_is_read_and_scopes_are_deleted(tmp_path: Path) -> None:
    on_a_small_disk(tmp_path, no_space)


def no_space(disk: Path) -> None:
    url = f"file://{disk}/store"
    fill(url)
    leave(disk, 0)
    with limpet.open(url) as store:
        scope = store.scope("s")
        assert len(list(store.history())) == 3 * COUNT
        assert scope.load("id-1") is not None
        assert list(store.check()) == []
        with pytest.raises(Unavailable, match="the disk is full"):
            scope.save({"text": Random(1).randbytes(100_000).hex()})
        for make_room in (
            lambda: scope.delete_snapshot("id-3"),
            lambda: scope.prune(keep_last=5),
            lambda: scope.update("id-3", lambda was: was.with_(state={})),
        ):
            with pytest.raises(Unavailable, match=r"the disk is full.*scope\.delete\(\)") as caught:
                make_room()
            assert caught.value.outcome_known
        assert len(list(scope.history())) == COUNT
        assert list(store.check()) == []

        assert store.scope("t").delete() == COUNT
        assert store.delete_session("u") == COUNT
        assert scope.prune(keep_last=5).count == COUNT - 5
        assert scope.save({"room": "again"}).id
        assert list(store.check()) == []


def test_the_space_of_a_segment_and_a_head_is_enough(tmp_path: Path) -> None:
    on_a_small_disk(tmp_path, one_segment)


def one_segment(disk: Path) -> None:
    url = f"file://{disk}/store"
    fill(url)
    with limpet.open(url) as store:
        for session in "stu":
            scope = store.scope(session)
            leave(disk, needed(disk))
            assert scope.delete_snapshot("id-3") == 1
            leave(disk, needed(disk))
            assert scope.prune(keep_last=10).count == COUNT - 1 - 10
            assert len(list(scope.history())) == 10
        assert list(store.check()) == []


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
