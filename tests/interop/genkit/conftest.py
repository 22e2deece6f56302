from collections.abc import Iterator
from pathlib import Path

import pytest

from limpet.compat.genkit.node_files.store import JsonFileSessionStore
from tests.coroutines import run_coroutine
from tests.interop import node
from tests.interop.genkit.peer import PROJECT, Peer, Theirs
from tests.interop.genkit.rows import Ours


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_coroutine(pyfuncitem)


@pytest.fixture(scope="session")
def peer() -> Iterator[Peer]:
    """The real Genkit. What it needs is installed once into the user's cache, or the tests fail."""
    try:
        runtime = node.find_runtime()
        packages = node.install("genkit", PROJECT, cache=node.cache_folder(), runtime=runtime)
    except node.Missing as missing:
        pytest.fail(str(missing), pytrace=False)
    peer = Peer(runtime, packages)
    yield peer
    peer.end()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def ours(folder: Path) -> Ours:
    return Ours(JsonFileSessionStore(folder))


@pytest.fixture
def theirs(peer: Peer, folder: Path) -> Theirs:
    return Theirs(peer, folder)
