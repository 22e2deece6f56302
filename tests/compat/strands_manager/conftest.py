from collections.abc import Iterator

import pytest

import limpet
from limpet import Store
from limpet.compat.strands import SnapshotStorage, StoreStorage
from tests.compat.strands_manager.hands import Observed


@pytest.fixture
def storage(store: Store) -> SnapshotStorage:
    return StoreStorage(store)


@pytest.fixture
def observed() -> Iterator[Observed]:
    with limpet.open("memory:") as store:
        yield Observed(store)
