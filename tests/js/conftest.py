from collections.abc import Iterator

import pytest

import limpet
from limpet import Store
from tests.interop.conftest import PROJECT as STRANDS
from tests.interop.genkit.peer import PROJECT as GENKIT
from tests.interop.genkit.peer import Peer
from tests.interop.node import install
from tests.interop.sdk import Sdk
from tests.js.serving import Processes, Served, serve


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    """A server of a store in memory. It is shared, so use sessions of your own."""
    with serve("memory:") as found:
        yield found


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of a SQLite file, which `store` opens as well. Use sessions of your own."""
    path = tmp_path_factory.mktemp("shared") / "agents.db"
    with serve(f"sqlite:///{path}") as found:
        yield found


@pytest.fixture
def store(shared: Served) -> Iterator[Store]:
    """The file behind the server, opened in Python."""
    with limpet.open(shared.store) as store:
        yield store


@pytest.fixture(scope="session")
def sdks() -> Iterator[Processes[Sdk]]:
    processes = Processes(Sdk, install("strands", STRANDS))
    yield processes
    processes.end()


@pytest.fixture(scope="session")
def sdk(sdks: Processes[Sdk]) -> Sdk:
    """The Strands SDK in a process that tests share."""
    return sdks.start()


@pytest.fixture(scope="session")
def peers() -> Iterator[Processes[Peer]]:
    processes = Processes(Peer, install("genkit", GENKIT))
    yield processes
    processes.end()


@pytest.fixture(scope="session")
def peer(peers: Processes[Peer]) -> Peer:
    """Genkit in a process that tests share."""
    return peers.start()
