"""Which process holds the lease of a run, and whether it is dead.

The lease's owner is stored as `worker-1 [vm:19450 9c1f0a7be2d45a63 812345]`: the owner's name, then
its host and pid, the place where this pid is valid, and when the process started. A pid is compared
only in the same place, and counts only with its start time, because pids are used again.
"""

import os
import re
import sys
from contextlib import suppress
from hashlib import blake2b
from uuid import getnode

from limpet.core import limits

_MARK = re.compile(r" \[\S+:(?P<pid>\d{1,10}) (?P<place>[0-9a-f]{16}|-) (?P<started>\d+|-)\]\Z")
_GONE = "ZX"  # the states of a process that has ended, and that its parent has not waited for yet


def with_process(owner: str) -> str:
    """Return the owner with a mark of this process, cut if it would be too long."""
    mark = f" [{host_of_process()} {_place() or '-'} {_started(os.getpid()) or '-'}]"
    return owner[: limits.ID_CHARS_MAX - len(mark)] + mark


def host_of_process() -> str:
    return f"{os.uname().nodename}:{os.getpid()}"


def without_process(owner: str) -> str:
    return _MARK.sub("", owner)


def is_alive(owner: str) -> bool | None:
    """Return whether the process that an owner names is alive; None if that cannot be seen here.

    None for another host, another container or a lease of another sort: only a lease that is not
    renewed shows then that its holder is dead.
    """
    mark = _MARK.search(owner)
    if mark is None or mark["place"] != _place():
        return None
    pid = int(mark["pid"])
    found = _stat(pid)
    if found is not None:
        return found[0] not in _GONE and found[1] == mark["started"]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return None  # hidden from us, or there is no start time to compare


def _place() -> str | None:
    """Return what all processes share for which a pid means the same process.

    Containers may have equal host names, and clones of a machine equal names and addresses. So it
    is the boot of the kernel and the namespace of the pids, where there are such.
    """
    parts = [os.uname().nodename]
    try:
        if sys.platform == "darwin":
            parts.append(str(getnode()))
        else:
            with open("/proc/sys/kernel/random/boot_id") as file:
                parts.append(file.read())
            parts.append(os.readlink("/proc/self/ns/pid"))
    except OSError:
        return None
    return blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()


def _started(pid: int) -> str | None:
    found = _stat(pid)
    return None if found is None else found[1]


def _stat(pid: int) -> tuple[str, str] | None:
    """Return the state of a process, and its start in ticks since the boot of the kernel."""
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        # The name of the program comes first, in parentheses, and may contain anything.
        fields = file.read().rpartition(b")")[2].split()
        return fields[0].decode(), fields[19].decode()
    return None
