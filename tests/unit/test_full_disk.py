"""A full disk can be read, and be emptied in the space that an engine needs at the least."""

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
# 32 KiB for the index of the log, and pages for the segment that one delete writes again.
LEAST_BYTES = 192 * KIB
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


def fill(url: str, count: int = COUNT) -> None:
    """Save histories of 8 KB a state, mostly in segments."""
    with limpet.open(url) as store:
        for session in "stu":
            for number in range(count):
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


@pytest.mark.parametrize("work", ["sqlite", "folder"])
def test_a_full_disk_can_be_read_and_emptied(tmp_path: Path, work: str) -> None:
    on_a_small_disk(tmp_path, {"sqlite": sqlite, "folder": folder}[work])


def sqlite(disk: Path) -> None:
    url = f"sqlite:///{disk}/store.db"
    fill(url, COUNT // 2)
    leave(disk, 0)
    with limpet.open(f"{url}?mode=ro") as store:
        assert len(list(store.history())) == 3 * COUNT // 2
        assert store.scope("s").load() is not None
        assert list(store.check()) == []
    with pytest.raises(Unavailable, match=r"the disk is full.*mode=ro"):
        limpet.open(url)

    leave(disk, LEAST_BYTES)
    with limpet.open(url) as store:
        with pytest.raises(Unavailable, match="full"):
            store.scope("s").save({"text": Random(1).randbytes(400_000).hex()})
        assert store.scope("s").delete_snapshot("id-3") == 1
        assert store.scope("s").prune(keep_last=5).count == COUNT // 2 - 1 - 5
        assert store.compact() > 100 * KIB
        assert store.scope("t").prune(keep_last=1).count == COUNT // 2 - 1
        assert store.scope("t").delete() == 1
        assert store.compact() > 100 * KIB
        assert store.scope("s").save({"room": "again"}).id
        assert [each for each in store.check() if each.severity != "info"] == []
        assert len(list(store.scope("s").history())) == 6


def folder(disk: Path) -> None:
    """Without any space scopes are deleted; that of a segment and a head is enough for the rest."""
    url = f"file://{disk}/store"
    fill(url)
    with limpet.open(url) as store:
        scope = store.scope("u")
        leave(disk, needed(disk))
        assert scope.delete_snapshot("id-3") == 1
        leave(disk, needed(disk))
        assert scope.prune(keep_last=10).count == COUNT - 1 - 10
        assert len(list(scope.history())) == 10
    leave(disk, 0)
    with limpet.open(url) as store:
        scope = store.scope("s")
        assert len(list(store.history())) == 2 * COUNT + 10
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
        assert store.delete_session("u") == 10
        assert scope.prune(keep_last=5).count == COUNT - 5
        assert scope.save({"room": "again"}).id
        assert list(store.check()) == []


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
