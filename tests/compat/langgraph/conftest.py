from collections.abc import Iterator
from pathlib import Path

import pytest

from limpet import Store
from limpet.compat.langgraph import LimpetSaver
from tests.compat.langgraph.kit import ENGINES, Places
from tests.coroutines import run_coroutine


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_coroutine(pyfuncitem)


@pytest.fixture
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Places:
    """Stores of each kind."""
    return Places(request, tmp_path)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """The name of each engine."""
    return str(request.param)


@pytest.fixture
def store(engine: str, places: Places) -> Iterator[Store]:
    """A store on each engine."""
    with places.open(engine) as store:
        yield store


@pytest.fixture
def saver(store: Store) -> LimpetSaver:
    """A saver on each engine."""
    return LimpetSaver(store)


@pytest.fixture
def memory(places: Places) -> Iterator[LimpetSaver]:
    """A saver where what the rules say is tried, which are the same on every engine."""
    with places.open("memory") as store:
        yield LimpetSaver(store)
