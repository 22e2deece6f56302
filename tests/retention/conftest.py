"""Stores on each engine whose time is the test's."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import limpet
from limpet import Store
from limpet.protocol import Stamp

ENGINES = [
    "memory",
    "sqlite",
    *(
        pytest.param(each, marks=pytest.mark.slow)
        for each in ("directory", "small_s3", "postgres_url", "http")
    ),
]


class Time:
    """What a store takes for the time; it passes by a microsecond with each write."""

    def __init__(self, store: Store) -> None:
        self.now = datetime.now(UTC) - timedelta(days=100)
        opened = store.driver.opened
        self._draw = opened.tools.draw
        opened.tools = opened.tools._replace(draw=self.draw)

    def draw(self) -> Stamp:
        self.now += timedelta(microseconds=1)
        return self._draw()._replace(now=round(self.now.timestamp() * 1_000_000))


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a new store on each engine."""
    sqlite = f"sqlite:///{tmp_path}/a.db?synchronous=off"
    match request.param:
        case "memory":
            yield "memory:"
        case "sqlite":
            yield sqlite
        case "directory":
            yield f"file://{tmp_path}/folder"
        case "small_s3":
            yield request.getfixturevalue("small_s3").store_url(tmp_path.name)
        case "postgres_url":
            yield request.getfixturevalue("postgres_url")
        case "http":
            http = request.getfixturevalue("http")
            mounted = http.mount(sqlite)
            yield mounted
            http.unmount(mounted)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with limpet.open(url) as store:
        yield store


@pytest.fixture
def time(store: Store) -> Time:
    return Time(store)
