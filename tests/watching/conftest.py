import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

import limpet
from limpet import Store
from tests.servers.http import Http
from tests.servers.service import Service


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store on the engine that a test names by `tools.on`."""
    match request.param:
        case "sqlite":
            return f"sqlite:///{tmp_path}/store.db"
        case "directory":
            return f"file://{tmp_path}/store"
        case "postgres":
            return str(request.getfixturevalue("postgres_url"))
        case "http":
            return str(request.getfixturevalue("served_url"))
    service: Service = request.getfixturevalue("seaweedfs")
    return f"s3://{service.name}/{uuid.uuid4()}?{urlencode(service.options)}&poll_s=0.3"


@pytest.fixture
def served_url(http: Http, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty store on SQLite behind a server."""
    url = http.mount(f"sqlite:///{tmp_path}/store.db")
    yield url
    http.unmount(url)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """A store of this process."""
    with limpet.open(url) as store:
        yield store
