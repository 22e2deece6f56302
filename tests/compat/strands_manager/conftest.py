"""Storages over every engine."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

import limpet
from limpet import Store
from limpet.compat.strands import SnapshotStorage, StoreStorage
from tests.compat.strands_manager.hands import Observed

SLOW = [pytest.param(each, marks=pytest.mark.slow) for each in ("directory", "postgres", "s3")]
ENGINES = ["memory", "sqlite", *SLOW]


@pytest.fixture(params=ENGINES)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """An empty store of each engine."""
    folder: Path = request.getfixturevalue("tmp_path")
    match request.param:
        case "memory":
            opened = limpet.open("memory:")
        case "sqlite":
            opened = limpet.open(f"sqlite:///{folder}/store.db", synchronous="off")
        case "directory":
            opened = limpet.open(f"file://{folder}/store", sync=False)
        case "postgres":
            opened = limpet.open(request.getfixturevalue("postgres_url"))
        case _:
            service = request.getfixturevalue("seaweedfs")
            url = f"s3://{service.name}/{secrets.token_hex(8)}"
            opened = limpet.open(url, **service.options)
    with opened:
        yield opened


@pytest.fixture
def storage(store: Store) -> SnapshotStorage:
    return StoreStorage(store)


@pytest.fixture
def observed() -> Iterator[Observed]:
    with limpet.open("memory:") as store:
        yield Observed(store)
