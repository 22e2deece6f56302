"""What the tests of all frameworks share. Each folder is collected in its own environment only."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import limpet
from tests.coroutines import run_coroutine
from tests.effort import slowly
from tests.frameworks.catalogue import FRAMEWORKS
from tests.frameworks.kit import ENGINES, FAST, FRAMEWORK, Places

collect_ignore = [name for name in (*FRAMEWORKS, "together") if name != os.environ.get(FRAMEWORK)]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_coroutine(pyfuncitem)


@pytest.fixture
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Places:
    """URLs of new stores: `places.url("postgres")`."""
    return Places(request, tmp_path)


@pytest.fixture
def url(places: Places) -> str:
    """The URL of a new store that can be opened twice."""
    return places.url(*FAST)


@pytest.fixture
def store(url: str) -> Iterator[limpet.Store]:
    """A new store."""
    with limpet.open(url) as store:
        yield store


@pytest.fixture(params=slowly(ENGINES, but=("memory", *FAST)))
def any_store(request: pytest.FixtureRequest, places: Places) -> Iterator[limpet.Store]:
    """A new store, on every engine."""
    with limpet.open(places.url(request.param)) as store:
        yield store


@pytest.fixture
def memory() -> Iterator[limpet.Store]:
    """A new store in memory: for what is the same on every engine."""
    with limpet.open("memory:") as store:
        yield store
