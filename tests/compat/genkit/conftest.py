import pytest

from tests.compat.genkit.kit import ENGINES, Desk, Stores


@pytest.fixture(scope="session")
def stores(request: pytest.FixtureRequest) -> Stores:
    """Stores of each engine, by its name."""
    return Stores(request)


@pytest.fixture(params=ENGINES)
def desk(request: pytest.FixtureRequest, stores: Stores) -> Desk:
    """A desk on each engine."""
    return stores.desk(request.param)


@pytest.fixture
def memory(stores: Stores) -> Desk:
    """A desk where what the rules say is tried, which are the same on every engine."""
    return stores.desk("memory")
