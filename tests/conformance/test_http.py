"""The suite over HTTP: a server in this process, with stores of SQLite or PostgreSQL behind it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from limpet import opening
from limpet.protocol import Backend
from limpet.testing import conformance
from limpet.testing.conformance.backend import BackendPromises
from limpet.testing.conformance.programs import Programs
from limpet.testing.conformance.promises import Promises
from limpet.testing.conformance.watching import Watching
from tests.conformance.parts import Async, InBoth, Sync, some
from tests.servers.http import Http


class OverHttp(conformance.Kit):
    """Serves each place by a store of its own, opened again by each `open_backend`."""

    @pytest.fixture(autouse=True)
    def _served(self, http: Http) -> Iterator[None]:
        self.http = http
        self.urls: list[str] = []
        yield
        for url in self.urls:
            http.unmount(url)

    def store_url(self, place: Path) -> str:
        # What a power cut does is not tested here.
        return f"sqlite:///{place / 'limpet.db'}?synchronous=off"

    def open_backend(self, place: Path) -> Backend:
        url = self.http.mount(self.store_url(place))
        self.urls.append(url)
        return opening.open_backend(url)


class TestHttp(Sync, OverHttp, Promises, Programs, BackendPromises, Watching):
    """The chapters that depend on what travels; the server's engine is tested elsewhere.

    The programs hold every verb; each alone is in `TestHttpAtLength`.
    """

    programs = some(4)
    # Many calls, and nothing else that travels: `TestHttpAtLength` has them.
    test_promise_05_kept_means_kept = None  # type: ignore[assignment]
    test_promise_05_kept_means_kept_for_forks = None  # type: ignore[assignment]


@pytest.mark.slow
class TestHttpAtLength(Sync, OverHttp, conformance.Suite):
    """Every chapter."""


@pytest.mark.slow
class TestHttpAsync(Async, OverHttp, InBoth):
    pass
