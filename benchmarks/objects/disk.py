"""Which file system a folder is on: in memory a sync costs nothing, and proves nothing."""

import sys
import tempfile
from pathlib import Path

from benchmarks.peers.venvs import BENCH

IN_MEMORY = frozenset({"tmpfs", "ramfs"})
UNKNOWN = "unknown"
MOUNTS = Path("/proc/self/mounts")


def file_system(folder: Path) -> str:
    """Return the kind of the file system that a folder is on, if it is known."""
    if not MOUNTS.exists():
        return "apfs" if sys.platform == "darwin" else UNKNOWN
    place, best = folder.resolve(), (0, UNKNOWN)
    for line in MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines():
        _, mount, kind, *_ = line.split(" ")
        at = Path(mount.replace("\\040", " "))
        if place.is_relative_to(at) and len(at.parts) >= best[0]:
            best = (len(at.parts), kind)
    return best[1]


def folder_on_disk() -> Path:
    """Return a folder to measure in: for temporary files, or if that is in memory, here."""
    folder = Path(tempfile.gettempdir())
    if file_system(folder) not in IN_MEMORY:
        return folder
    BENCH.mkdir(exist_ok=True)
    return BENCH
