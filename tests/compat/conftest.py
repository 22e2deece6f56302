"""What the tests of the adapters share: a store on every engine, of which two are fast."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import limpet
from limpet import Store
from tests.coroutines import run_coroutine
from tests.effort import slowly
from tests.runs.conftest import place_of
from tests.runs.hands import Place

if TYPE_CHECKING:
    from tests.compat.strands.kit import Grounds

ENGINES = ("memory", "sqlite", "directory", "postgres", "s3")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_coroutine(pyfuncitem)


@pytest.fixture(params=slowly(ENGINES, but=("memory", "sqlite")))
def place(request: pytest.FixtureRequest) -> Place:
    """Where an empty store is, of each engine."""
    return place_of(request.param, request)


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    """An empty store of each engine."""
    with place.open() as store:
        yield store


@pytest.fixture
def memory() -> Iterator[Store]:
    """An empty store, where what is the same on every engine is shown."""
    with limpet.open("memory:") as store:
        yield store


@pytest.fixture(scope="session")
def grounds(request: pytest.FixtureRequest) -> "Grounds":
    """Storages for snapshots of each kind, by its name, which the tests of a process share."""
    # Here, as the environment of LangGraph's lowest versions has no obstore.
    from tests.compat.strands.kit import Grounds

    return Grounds(request)
