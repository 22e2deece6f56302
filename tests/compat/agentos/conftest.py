import sys
from pathlib import Path

import pytest

from limpet.compat.agentos import CheckpointStore
from tests.compat.agentos.kit import ENGINES, on
from tests.compat.strands.kit import Grounds

# So that an example can be imported: it is no part of the package, nor of the tests.
sys.path.append(str(Path(__file__).resolve().parents[3]))


@pytest.fixture(params=ENGINES)
def checkpoints(request: pytest.FixtureRequest, grounds: Grounds) -> CheckpointStore:
    """Checkpoints on each engine."""
    return on(request.param, grounds)
