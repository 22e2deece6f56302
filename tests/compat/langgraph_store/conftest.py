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
SLOW = [pytest.param(each, marks=pytest.mark.slow) for each in ("directory", "postgres", "s3")]


@pytest.fixture
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Places:
    """Stores of each kind."""
    return Places(request, tmp_path)


@pytest.fixture(params=["memory", "sqlite", *SLOW])
def store(request: pytest.FixtureRequest, places: Places, tmp_path: Path) -> Iterator[Store]:
    """A store on each engine."""
    if request.param == "s3":
        service: Service = request.getfixturevalue("moto")
        place = f"s3://{service.name}/{tmp_path.name}-{next(_count)}"
        with limpet.open(place, **service.options) as store:
            yield store
        return
    with places.open(str(request.param)) as store:
        yield store


@pytest.fixture(params=["sync", "async"])
def api(request: pytest.FixtureRequest) -> str:
    """The names of the two APIs."""
    return str(request.param)


@pytest.fixture
def items(store: Store, api: str) -> Through:
    """A store of items on each engine, through each API."""
    return Through(LimpetStore(store), api)


@pytest.fixture
def memory() -> Iterator[Store]:
    """A store for what is the same on every engine."""
    with limpet.open("memory:") as store:
        yield store
