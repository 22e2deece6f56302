"""Walk a history in a process of its own; print the entries, the growth in bytes, the seconds.

Run by `benchmarks.reading`, with the URL of a store.
"""

import resource
import sys
from pathlib import Path
from time import perf_counter

import limpet


def peak_bytes() -> int:
    """Return the most memory that this process ever held."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not ru_maxrss: on Linux a new process inherits that of its parent, which hides growth.
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def main() -> None:
    """Read one page first, so that opening and the caches of a first read do not count."""
    with limpet.open(sys.argv[1]) as store:
        scope = store.scope("benchmark")
        for _ in scope.history(limit=20):
            pass
        before, start = peak_bytes(), perf_counter()
        count = sum(1 for _ in scope.history())
        print(count, peak_bytes() - before, perf_counter() - start)


if __name__ == "__main__":
    main()
