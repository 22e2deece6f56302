import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

import limpet
from limpet import Store
from limpet.compat.langgraph import LimpetStore
from tests.compat.langgraph.kit import Places
from tests.compat.langgraph_store.kit import Through
from tests.servers.service import Service

_count = itertools.count()

# Each API on an engine in the fast run; all with all in the others.
QUICK = [("memory", "sync"), ("sqlite", "async")]
ENGINES = ["memory", "sqlite", "directory", "postgres", "s3"]
OTHERS = [each for each in itertools.product(ENGINES, ["sync", "async"]) if each not in QUICK]


@pytest.fixture
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Places:
    """Stores of each kind."""
    return Places(request, tmp_path)


@pytest.fixture(
    params=[*QUICK, *(pytest.param(each, marks=pytest.mark.slow) for each in OTHERS)],
    ids="-".join,
)
def through(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The names of an engine and an API."""
    found: tuple[str, str] = request.param
    return found


@pytest.fixture
def store(
    request: pytest.FixtureRequest, through: tuple[str, str], places: Places, tmp_path: Path
) -> Iterator[Store]:
    """A store on each engine."""
    if through[0] == "s3":
        service: Service = request.getfixturevalue("small_s3")
        place = f"s3://{service.name}/{tmp_path.name}-{next(_count)}"
        with limpet.open(place, **service.options) as store:
            yield store
        return
    with places.open(through[0]) as store:
        yield store


@pytest.fixture
def api(through: tuple[str, str]) -> str:
    """The names of the two APIs."""
    return through[1]


@pytest.fixture
def items(store: Store, api: str) -> Through:
    """A store of items on each engine, through each API."""
    return Through(LimpetStore(store), api)


@pytest.fixture
def memory() -> Iterator[Store]:
    """A store for what is the same on every engine."""
    with limpet.open("memory:") as store:
        yield store
