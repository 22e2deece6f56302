"""A store on each engine: SQLite in every run, the others among the slow tests."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import Store

SLOW = [
    pytest.param(each, marks=pytest.mark.slow) for each in ("memory", "directory", "s3", "http")
]
also_on_postgres = pytest.mark.parametrize("store", ["sqlite", "postgres", *SLOW], indirect=True)
_count = itertools.count(1)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow), *SLOW])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store on each engine."""
    url, options = place_of(str(request.param), request, tmp_path)
    with limpet.open(url, **options) as store:
        yield store


def place_of(
    engine: str, request: pytest.FixtureRequest, folder: Path
) -> tuple[str, dict[str, Any]]:
    """Return the URL of an empty place, and the options to open it."""
    if engine == "postgres":
        return request.getfixturevalue("postgres_url"), {}
    if engine == "s3":
        service = request.getfixturevalue("seaweedfs")
        return f"s3://{service.name}/{folder.name}-{next(_count)}", service.options
    if engine == "http":
        return request.getfixturevalue("http").mount(f"sqlite:///{folder}/served.db"), {}
    places = {"memory": "memory:", "sqlite": f"sqlite:///{folder}/a.db"}
    return places.get(engine, (folder / "store").as_uri()), {}
