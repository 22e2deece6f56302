"""One server process for the tests that do it no harm."""

from collections.abc import Iterator

import pytest

from tests.coroutines import run_coroutine
from tests.server.process import Server


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_coroutine(pyfuncitem)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server without tokens, as on a developer's machine."""
    with Server(tmp_path_factory.mktemp("served")) as running:
        yield running
