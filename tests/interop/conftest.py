from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

import limpet
from limpet.api.store import Store
from tests.interop.ground import LAYOUTS, Ground
from tests.interop.node import install
from tests.interop.places import Below, Place
from tests.interop.sdk import Sdk

PROJECT = Path(__file__).parent / "strands"


@pytest.fixture(scope="session")
def sdk() -> Iterator[Sdk]:
    """The real SDK. What it needs is installed once into the user's cache."""
    sdk = Sdk(install("strands", PROJECT))
    yield sdk
    sdk.end()


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty place: a folder, or a prefix in a bucket of SeaweedFS.

    Engine and SDK do the same in both.
    """
    if request.param == "directory":
        return tmp_path / "store"
    return Below(request.getfixturevalue("seaweedfs"), f"team/{uuid4().hex}")


@pytest.fixture(params=list(LAYOUTS))
def ground(sdk: Sdk, place: Place, request: pytest.FixtureRequest) -> Ground:
    """Storage that both sides know, in every layout that the SDK writes."""
    return Ground(sdk, LAYOUTS[request.param], place)


@pytest.fixture
def store() -> Iterator[Store]:
    """An empty store, to import into and to export from."""
    with limpet.open("memory:") as store:
        yield store
