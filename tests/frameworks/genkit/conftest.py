from pathlib import Path
from typing import Any

import pytest
from genkit.exp.agent import FileSessionStore, InMemorySessionStore

from limpet.compat.genkit.python import LimpetGenkitStore
from tests.compat.genkit.kit import Stores
from tests.effort import slowly
from tests.frameworks.genkit.rows import Watched
from tests.frameworks.kit import ENGINES, FAST


@pytest.fixture(scope="session")
def stores(request: pytest.FixtureRequest) -> Stores:
    """A store of each engine, which the tests share."""
    return Stores(request)


def sessions_on(engine: str, stores: Stores) -> LimpetGenkitStore:
    """Return sessions of their own in a shared store. The context is the name of a tenant."""
    desk = stores.desk(engine)

    def prefix_of(context: Any) -> str:
        return f"{desk.tenant}{(context or {}).get('tenant', '')}"

    return LimpetGenkitStore(desk.store, prefix_of=prefix_of)


@pytest.fixture(params=("memory", "sqlite"))
def sessions(request: pytest.FixtureRequest, stores: Stores) -> LimpetGenkitStore:
    """Sessions of their own in a shared store."""
    return sessions_on(request.param, stores)


@pytest.fixture(
    params=slowly([*ENGINES, "their-memory", "their-files"], but=(*FAST, "their-memory"))
)
def any_sessions(request: pytest.FixtureRequest, stores: Stores, tmp_path: Path) -> Watched:
    """Sessions on every engine, and in the stores of the package: for what is true of all."""
    if request.param == "their-memory":
        return InMemorySessionStore()
    if request.param == "their-files":
        return FileSessionStore(str(tmp_path))
    return sessions_on(request.param, stores)
