from collections.abc import Iterator
from pathlib import Path

import pytest

import limpet
from limpet import Store
from limpet.compat.genkit import SessionStore
from tests.interop.genkit.peer import PROJECT, Peer, Theirs
from tests.interop.genkit.rows import Ours
from tests.interop.node import install


@pytest.fixture(scope="session")
def peer() -> Iterator[Peer]:
    """The real Genkit. What it needs is installed once into the user's cache."""
    peer = Peer(install("genkit", PROJECT))
    yield peer
    peer.end()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store() -> Iterator[Store]:
    with limpet.open("memory:") as store:
        yield store


@pytest.fixture
def ours(store: Store) -> Ours:
    return Ours(SessionStore(store))


@pytest.fixture
def theirs(peer: Peer, folder: Path) -> Theirs:
    return Theirs(peer, folder)
