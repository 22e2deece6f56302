import pytest

from limpet.compat.strands import SnapshotLocation
from tests.compat.strands.kit import Grounds, make_location
from tests.coroutines import run_coroutine


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_coroutine(pyfuncitem)


@pytest.fixture(scope="session")
def grounds(request: pytest.FixtureRequest) -> Grounds:
    """Storages of each kind, by its name."""
    return Grounds(request)


@pytest.fixture
def location() -> SnapshotLocation:
    """A location in a session that only this test uses."""
    return make_location()
