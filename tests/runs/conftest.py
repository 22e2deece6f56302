"""Every engine, and both APIs: the verbs of runs are the same on all, so each engine has one."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from limpet import Store
from limpet.testing.conformance import Api
from tests.runs.hands import Hands, Place


def place_of(engine: str, request: pytest.FixtureRequest) -> Place:
    folder: Path = request.getfixturevalue("tmp_path")
    match engine:
        case "memory":
            return Place("memory:", {})
        case "sqlite":
            return Place(f"sqlite:///{folder}/runs.db", {})
        case "directory":
            # What a power cut does is not tested here, and without syncing it is much faster.
            return Place(f"file://{folder}/store", {"sync": False})
        case "http":
            http = request.getfixturevalue("http")
            return Place(http.mount(f"sqlite:///{folder}/runs.db?synchronous=off"), {})
        case "postgres":
            return Place(request.getfixturevalue("postgres_url"), {})
    service = request.getfixturevalue("seaweedfs")
    url = f"s3://{service.name}/{secrets.token_hex(8)}"
    return Place(url, {**service.options, "poll_s": 0.2})


# What an engine must do for runs is in the conformance suite, which all of them pass.
SLOWLY = [pytest.param(each, marks=pytest.mark.slow) for each in ("directory", "postgres", "s3")]
ASYNC = ("memory", "file")  # the schemes of the stores that are used by the async API


@pytest.fixture(params=["memory", "sqlite", *SLOWLY])
def place(request: pytest.FixtureRequest) -> Place:
    """An empty store of each engine."""
    return place_of(request.param, request)


@pytest.fixture(params=["sqlite", *SLOWLY])
def shared(request: pytest.FixtureRequest) -> Place:
    """An empty store of each engine that several processes can open."""
    return place_of(request.param, request)


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    with place.open() as store:
        yield store


@pytest.fixture
def api(place: Place) -> Api:
    return "async" if place.scheme in ASYNC else "sync"


@pytest.fixture
def hands(api: Api, store: Store) -> Iterator[Hands]:
    with Hands(api, store) as hands:
        yield hands
