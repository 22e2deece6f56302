"""Storages for snapshots, each shared by the tests of a process."""

import pytest

from limpet.compat.strands import SnapshotLocation
from tests.compat.strands.kit import ENGINES, FILED, At, Grounds, make_location
from tests.coroutines import run_coroutine


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_coroutine(pyfuncitem)


@pytest.fixture(scope="session")
def grounds(request: pytest.FixtureRequest) -> Grounds:
    """Storages of each kind, by its name."""
    return Grounds(request)


@pytest.fixture(params=ENGINES)
def at(request: pytest.FixtureRequest, grounds: Grounds) -> At:
    """A storage on each engine, and the two that stand in for those of the SDK."""
    return At(grounds[request.param])


@pytest.fixture(params=FILED)
def filed(request: pytest.FixtureRequest, grounds: Grounds) -> At:
    """A storage of each kind that writes files or objects."""
    return At(grounds[request.param])


@pytest.fixture
def location() -> SnapshotLocation:
    """A location in a session that only this test uses."""
    return make_location()
