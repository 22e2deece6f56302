"""A full disk can be read, and be emptied in the space that SQLite needs at the least."""

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
COUNT = 20


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
    with limpet.open(url) as store:
        for number in range(COUNT):
            for session in ("s", "t"):
                text = Random(f"{session}{number}").randbytes(4_000).hex()
                store.scope(session).save({"text": text}, id=f"id-{number}")


def leave(folder: Path, free_bytes: int) -> None:
    """Fill the disk but for some bytes."""
    found = os.statvfs(folder)
    (folder / "ballast").write_bytes(b"x" * (found.f_bavail * found.f_frsize - free_bytes))


def test_a_store_on_a_full_disk_can_be_read(tmp_path: Path) -> None:
    on_a_small_disk(tmp_path, read_it)


def read_it(disk: Path) -> None:
    url = f"sqlite:///{disk}/store.db"
    fill(url)
    leave(disk, 0)
    with limpet.open(f"{url}?mode=ro") as store:
        assert len(list(store.history())) == 2 * COUNT
        assert store.scope("s").load() is not None
        assert list(store.check()) == []
    with pytest.raises(Unavailable, match=r"the disk is full.*mode=ro"):
        limpet.open(url)


def test_a_full_disk_can_be_emptied(tmp_path: Path) -> None:
    on_a_small_disk(tmp_path, empty_it)


def empty_it(disk: Path) -> None:
    url = f"sqlite:///{disk}/store.db"
    fill(url)
    leave(disk, LEAST_BYTES)
    with limpet.open(url) as store:
        with pytest.raises(Unavailable, match="full"):
            store.scope("s").save({"text": Random(1).randbytes(400_000).hex()})
        assert store.scope("s").delete_snapshot("id-3") == 1
        assert store.scope("s").prune(keep_last=5).count == COUNT - 1 - 5
        assert store.compact() > 100 * KIB
        assert store.scope("t").prune(keep_last=1).count == COUNT - 1
        assert store.scope("t").delete() == 1
        assert store.compact() > 100 * KIB
        assert store.scope("s").save({"room": "again"}).id
        assert [each for each in store.check() if each.severity != "info"] == []
        assert len(list(store.scope("s").history())) == 6


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
