"""A bucket in memory: every request is a step of the scheduler and may go wrong.

A version is the hash of the bytes, as on S3, so that the same bytes twice have the same version.
Requests for many keys are that many steps, in any order, as parallel ones are. Some storages are
trees, as directories are: they list folder by folder, and others write in between. A folder stays
when it is empty, as it does when a process dies before it removes it.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from itertools import islice
from typing import Final, NamedTuple

from limpet.backends.buckets.protocol import Listed, Moved, Stored
from limpet.backends.memory import MemoryStorage
from limpet.backends.support.polling import Poller
from limpet.errors import Unavailable
from limpet.model import ANY, Expect
from limpet.protocol import Clock
from simulation.dice import Dice
from simulation.faults import Crash, Fault, Faults
from simulation.scheduler import Scheduler

START_US: Final = 1_800_000_000_000_000  # when all runs begin
_LATE_PER_MILLE = 120  # at each step, that a request which is still under way arrives


def version_of(data: bytes) -> str:
    """Return the version of an object with these bytes."""
    return blake2b(data, digest_size=8).hexdigest()


class Late(NamedTuple):
    """A request that is still under way."""

    actor: str
    what: str
    key: str
    execute: Callable[[], str]


class Storage:
    """The objects, which all processes share, and the requests that are still under way."""

    def __init__(self, scheduler: Scheduler, faults: Faults, dice: Dice) -> None:
        self.scheduler = scheduler
        self.faults = faults
        self.dice = dice
        self.objects: dict[str, Stored] = {}
        self.folders: dict[str, set[str]] = {"": set()}  # what was ever in them
        # Services differ in these; an engine must do with either.
        self.by_names = dice.chance(300)
        self.first_has_version = dice.chance(500)
        self.scopes = MemoryStorage()  # for engines over a storage of scopes
        self._late: list[Late] = []
        self._lock = threading.Lock()  # for threads that no scheduler runs

    def step(self) -> None:
        """Let others go first, and what is late arrive."""
        self.scheduler.step()
        if self._late and self.dice.chance(_LATE_PER_MILLE):
            late = self._late.pop(self.dice.below(len(self._late)))
            self.scheduler.note(late.actor, f"{late.what} (late)", late.key, late.execute())

    def send_late(self, late: Late) -> None:
        """Have a request arrive at some later step, or never."""
        self._late.append(late)

    def is_late(self, key: str) -> bool:
        """Return whether a request for a key is still under way."""
        return any(each.key == key for each in self._late)

    def write(self, key: str, data: bytes, expect: Expect) -> str:
        """Store an object now, or raise Moved."""
        with self._lock:
            found = self.objects.get(key)
            if expect is not ANY and expect != (None if found is None else found.version):
                raise Moved
            version = version_of(data)
            self.objects[key] = Stored(data, len(data), version, START_US + self.scheduler.now_us)
            if self.by_names:
                self._note_folders(key)
        return version

    def _note_folders(self, key: str) -> None:
        folder, _, name = key.rpartition("/")
        known = self.folders.setdefault(folder, set())
        if name in known:
            return
        known.add(name)
        if folder:
            self._note_folders(folder)

    def remove(self, key: str) -> None:
        """Remove an object now."""
        self.objects.pop(key, None)

    def listed(self, key: str) -> Listed:
        """Return an object as a listing shows it."""
        found = self.objects[key]
        return Listed(key, found.size, found.modified)

    def keys(self, prefix: str, after: str) -> list[str]:
        """Return the keys that begin with a prefix and come after another, in order."""
        return sorted(key for key in self.objects if key > after and key.startswith(prefix))


class SimulatedBucket:
    """The storage as one process sees it."""

    def __init__(self, storage: Storage, actor: str) -> None:
        self._storage = storage
        self._actor = actor

    def get(self, keys: Sequence[str], *, first: int | None = None) -> list[Stored | None]:
        """Return each object, or its first bytes; every key is a step of its own."""
        found: dict[str, Stored | None] = {}
        for key in self._any_order(keys):
            self._begin_read("get", key)
            found[key] = self._stored(key, first)
            entry = self._storage.objects.get(key)
            said = "none" if entry is None else _short(entry.version)
            self._note("get", key, said, entry and entry.data)
        return [found[key] for key in keys]

    def _stored(self, key: str, first: int | None) -> Stored | None:
        entry = self._storage.objects.get(key)
        if entry is None or first is None or first >= entry.size:
            return entry
        version = entry.version if self._storage.first_has_version else None
        return entry._replace(data=entry.data[:first], version=version)

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        """Store an object as one step; return its new version."""
        what = "put any" if expect is ANY else "put absent"
        if isinstance(expect, str):
            what = f"put at {_short(expect)}"

        def execute() -> str:
            return self._storage.write(key, data, expect)

        return self._write(what, key, execute, data)

    def mark(self, keys: Sequence[str]) -> None:
        """Store empty objects, each in a step of its own."""
        self._each("mark", keys, lambda key: self._storage.write(key, b"", ANY))

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects, each in a step of its own."""

        def execute(key: str) -> str:
            self._storage.remove(key)
            return "gone"

        self._each("delete", keys, execute)

    def list(self, prefix: str, *, after: str = "", limit: int, until: str = "") -> list[Listed]:
        """Return a page of keys: in one step, or on a tree in one for each folder."""
        self._begin_read("list", prefix)
        storage = self._storage
        if storage.by_names:
            folder = prefix.rpartition("/")[0]
            keys: Iterable[str] = self._walk(folder, prefix, tuple(after.split("/")))
        else:
            keys = storage.keys(prefix, after)
        found = [storage.listed(key) for key in islice(keys, limit)]
        self._note("list", prefix, f"{len(found)} keys")
        return found

    def _walk(self, folder: str, prefix: str, after: tuple[str, ...]) -> Iterator[str]:
        """Go through a tree. A folder is read once: what is created in it since is not seen."""
        storage = self._storage
        for name in sorted(storage.folders.get(folder, ())):
            path = f"{folder}/{name}" if folder else name
            if path in storage.folders:
                names = tuple(path.split("/"))
                if names >= after[: len(names)] and f"{path}/".startswith(prefix[: len(path) + 1]):
                    storage.step()
                    yield from self._walk(path, prefix, after)
            elif (
                path in storage.objects
                and path.startswith(prefix)
                and tuple(path.split("/")) > after
            ):
                yield path

    def fingerprints(self, known: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return the version of each object."""
        found = self.get(list(known))
        return {
            key: None if each is None else each.version
            for key, each in zip(known, found, strict=True)
        }

    def listen(self, *, poll_s: float, clock: Clock) -> Poller:
        """No notifications."""
        return Poller(first_s=poll_s, poll_s=poll_s, clock=clock)

    def close(self) -> None:
        """Hold nothing, so there is nothing to let go of."""

    def _any_order(self, keys: Sequence[str]) -> Sequence[str]:
        return keys if len(keys) < 2 else self._storage.dice.shuffled(keys)

    def _note(self, what: str, key: str, outcome: str, data: bytes | None = None) -> None:
        self._storage.scheduler.note(self._actor, what, key, outcome, data)

    def _begin_read(self, what: str, key: str) -> None:
        self._storage.step()
        if self._storage.faults.of_read() is not None:
            self._note(what, key, "no answer")
            raise Unavailable(f"the simulated storage did not answer. key=`{key}`")

    def _each(self, what: str, keys: Sequence[str], execute: Callable[[str], str]) -> None:
        """Send a request for each key; they are all under way before one of them fails."""
        failure: Unavailable | None = None
        for key in self._any_order(keys):
            try:
                self._write(what, key, partial(execute, key))
            except Unavailable as cause:
                failure = cause
        if failure is not None:
            raise Unavailable(*failure.args, outcome_known=False) from failure

    def _write(
        self,
        what: str,
        key: str,
        execute: Callable[[], str],
        data: bytes | None = None,
    ) -> str:
        self._storage.step()
        # What is marked once more is there then, in time.
        in_time = what == "delete" or (what == "mark" and self._storage.is_late(key))
        fault = self._storage.faults.of_write(
            in_time=in_time, is_conditional=what.startswith(("put absent", "put at"))
        )
        if fault is None:
            return self._executed(what, key, execute, data)
        if fault is Fault.FALSE_REFUSAL:
            self._note(what, key, f"{fault.value} ({_outcome(execute)})", data)
            raise Moved
        if fault is Fault.LATE:
            self._storage.send_late(Late(self._actor, what, key, lambda: _outcome(execute)))
            self._note(what, key, fault.value, data)
            raise self._silence(key, outcome_known=False)
        done = fault in (Fault.CRASH_AFTER, Fault.LOST_AFTER)
        outcome = f" ({_outcome(execute)})" if done else ""
        self._note(what, key, fault.value + outcome, data)
        if fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER):
            raise Crash
        raise self._silence(key, outcome_known=fault is Fault.REFUSED)

    def _executed(self, what: str, key: str, execute: Callable[[], str], data: bytes | None) -> str:
        try:
            version = execute()
        except Moved:
            self._note(what, key, "moved", data)
            raise
        self._note(what, key, _short(version), data)
        return version

    def _silence(self, key: str, *, outcome_known: bool) -> Unavailable:
        message = f"the simulated storage did not answer. key=`{key}`"
        return Unavailable(message, outcome_known=outcome_known)


def _outcome(execute: Callable[[], str]) -> str:
    try:
        return _short(execute())
    except Moved:
        return "moved"


def _short(version: str | None) -> str:
    return (version or "")[:6]
