import sys
from pathlib import Path

import pytest

from limpet.compat.agentos import CheckpointStore
from tests.compat.agentos.kit import ENGINES, on
from tests.compat.strands.kit import Grounds
from tests.coroutines import run_coroutine

# So that an example can be imported: it is no part of the package, nor of the tests.
sys.path.append(str(Path(__file__).resolve().parents[3]))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_coroutine(pyfuncitem)


@pytest.fixture(scope="session")
def grounds(request: pytest.FixtureRequest) -> Grounds:
    """Stores of each kind, by its name."""
    return Grounds(request)


@pytest.fixture(params=ENGINES)
def checkpoints(request: pytest.FixtureRequest, grounds: Grounds) -> CheckpointStore:
    """Checkpoints on each engine."""
    return on(request.param, grounds)
