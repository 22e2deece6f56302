"""Servers as fixtures, started when first asked for and shared by the tests of one process.

A test module gets them by `from tests.servers.fixtures import seaweedfs`, or a `conftest.py` does.
However many modules do, there is one server of each kind.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack

import pytest

from tests.servers.moto import start_moto
from tests.servers.seaweedfs import start_seaweedfs
from tests.servers.service import Service


class Shared:
    """A server that runs as long as anybody uses it."""

    def __init__(self, start: Callable[[], AbstractContextManager[Service]]) -> None:
        self._start = start
        self._users = 0
        self._stack = ExitStack()
        self._service: Service | None = None

    def __call__(self) -> Iterator[Service]:
        if self._service is None:
            self._service = self._stack.enter_context(self._start())
        self._users += 1
        yield self._service
        self._users -= 1
        if not self._users:
            self._service = None
            self._stack.close()


_seaweedfs = Shared(start_seaweedfs)
_moto = Shared(start_moto)


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[Service]:
    """SeaweedFS. Its bucket is shared, so give each test a prefix of its own."""
    yield from _seaweedfs()


@pytest.fixture(scope="session")
def moto() -> Iterator[Service]:
    """Moto. Its bucket is shared, so give each test a prefix of its own."""
    yield from _moto()
