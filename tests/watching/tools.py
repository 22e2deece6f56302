"""What tests of watches and leases share: engines by name, and watchers that run beside a test."""

import asyncio
import gc
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from limpet import SnapshotInfo, Store
from limpet.api.watching import Dispatcher
from tests.waiting import WAIT_S_MAX, until

ENGINES = ("sqlite", "directory", "postgres", "s3", "http")
APIS = ("sync", "async")

Watch = Callable[[Any], Any]
"""Makes the watch of a store, or of its async API."""


def on(*engines: str, slow: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    """Run a test on these engines: `-k postgres` chooses one."""
    slow += ("directory", "s3", "http")
    named = [
        pytest.param(each, marks=pytest.mark.slow) if each in slow else each
        for each in engines or ENGINES
    ]
    return pytest.mark.parametrize("url", named, indirect=True)


def place(revision: str) -> tuple[int, int]:
    """Return what grows from one revision of a scope's head to the next."""
    seq, rev, _ = revision.split(".")
    return int(seq, 16), int(rev, 16)


class Watching(threading.Thread):
    """A watch in a thread of its own, by either API; `seen` is what it heard."""

    def __init__(self, store: Store, watch: Watch, *, api: str = "sync") -> None:
        super().__init__(daemon=True)
        self.seen: list[Any] = []
        self.error: BaseException | None = None
        self._store = store
        self._watch = watch
        self._api = api
        self.start()

    def run(self) -> None:
        try:
            if self._api == "sync":
                self._follow(self._watch(self._store))
            else:
                asyncio.run(self._follow_async(self._watch(self._store.aio)))
        except BaseException as error:
            self.error = error

    def _follow(self, watch: Iterator[SnapshotInfo]) -> None:
        for info in watch:
            self.seen.append(info)

    async def _follow_async(self, watch: AsyncIterator[SnapshotInfo]) -> None:
        async for info in watch:
            self.seen.append(info)

    @property
    def revisions(self) -> list[str]:
        return [info.revision for info in self.seen]

    def wait_for(self, revision: str) -> None:
        """Wait until a revision is the last that was heard of."""
        until(lambda: self.seen[-1:] and self.revisions[-1] == revision)

    def wait_for_end(self) -> None:
        """Wait until the loop has ended by itself."""
        self.join(WAIT_S_MAX)
        assert not self.is_alive(), "the watch did not end"
        if self.error is not None:
            raise self.error


def handles() -> int:
    """Return how many files, pipes and sockets this process has open."""
    return len(os.listdir("/dev/fd"))


def watchers(store: Store) -> int:
    """Return how many subscriptions this store has."""
    dispatcher = store.driver.opened.service(Dispatcher)
    return sum(len(each.subscriptions) for each in list(dispatcher._topics.values()))


@contextmanager
def nothing_left() -> Iterator[None]:
    """See that there is no thread and no open file more in the end than before."""
    gc.collect()
    threads, files = set(threading.enumerate()), handles()
    yield
    gc.collect()
    until(lambda: set(threading.enumerate()) <= threads)
    until(lambda: handles() <= files)
