"""Session services: ours on every engine, and ADK's own for comparison."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService

import limpet
from limpet.compat.adk import LimpetSessionService
from tests.effort import slowly
from tests.frameworks.adk.services import Sessions
from tests.frameworks.kit import ENGINES, FAST, Places

THEIRS: dict[str, Callable[[Path], Any]] = {
    "adk-memory": lambda _: InMemorySessionService(),
    "adk-sqlite": lambda folder: SqliteSessionService(str(folder / "adk.db")),
}
if tuple(map(int, version("google-adk").split(".")[:2])) < (2, 13):
    THEIRS.clear()  # they did not keep all contracts yet
_count = itertools.count(1)


@pytest.fixture(scope="session", params=slowly([*ENGINES, *THEIRS], but=[*FAST, "adk-memory"]))
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """One service for all tests, on every engine; and those of ADK."""
    yield from opened(request, tmp_path_factory.mktemp("services"))


@pytest.fixture(scope="session", params=("memory", "sqlite"))
def our_service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """One service for all tests."""
    yield from opened(request, tmp_path_factory.mktemp("services"))


def opened(request: pytest.FixtureRequest, folder: Path) -> Iterator[Any]:
    kind = request.param
    with ExitStack() as closing:
        if kind in THEIRS:
            yield THEIRS[kind](folder)
            return
        if kind == "postgres":  # `places` is for one test only
            server = request.getfixturevalue("postgres")
            url = closing.enter_context(server.schemas()).url()
        else:
            url = Places(request, folder).url(kind)
        yield LimpetSessionService(closing.enter_context(limpet.open(url)))


@pytest.fixture
def sessions(service: Any) -> Sessions:
    """The sessions of a new app in our service, on every engine, and in those of ADK."""
    return Sessions(service, f"app-{next(_count)}")


@pytest.fixture
def ours(our_service: Any) -> Sessions:
    """The sessions of a new app in our service."""
    return Sessions(our_service, f"app-{next(_count)}")
