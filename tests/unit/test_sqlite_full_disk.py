"""A full disk can be read, and be emptied in the space that SQLite needs at the least."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import limpet
from limpet import Unavailable

KIB = 1024
DISK_BYTES = 6 * KIB * KIB
# 32 KiB for the index of the log, and a few pages for what one delete changes.
LEAST_BYTES = 96 * KIB
COUNT = 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if os.getuid() or subprocess.run(["mount", *options], check=False).returncode:
        pytest.skip("a small disk can only be mounted by root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


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


def test_a_store_on_a_full_disk_can_be_read(disk: Path) -> None:
    url = f"sqlite:///{disk}/store.db"
    fill(url)
    leave(disk, 0)
    with limpet.open(f"{url}?mode=ro") as store:
        assert len(list(store.history())) == 2 * COUNT
        assert store.scope("s").load() is not None
        assert list(store.check()) == []
    with pytest.raises(Unavailable, match=r"the disk is full.*mode=ro"):
        limpet.open(url)


def test_a_full_disk_can_be_emptied(disk: Path) -> None:
    url = f"sqlite:///{disk}/store.db"
    fill(url)
    leave(disk, LEAST_BYTES)
    with limpet.open(url) as store:
        with pytest.raises(Unavailable, match="full"):
            store.scope("s").save({"text": Random(1).randbytes(100_000).hex()})
        assert store.scope("s").delete_snapshot("id-3") == 1
        assert store.scope("s").prune(keep_last=5).count == COUNT - 1 - 5
        assert store.compact() > 100 * KIB
        assert store.scope("t").prune(keep_last=1).count == COUNT - 1
        assert store.scope("t").delete() == 1
        assert store.compact() > 100 * KIB
        assert store.scope("s").save({"room": "again"}).id
        assert [each for each in store.check() if each.severity != "info"] == []
        assert len(list(store.scope("s").history())) == 6
