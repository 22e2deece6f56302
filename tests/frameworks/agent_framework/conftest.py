"""The servers are left to the slow tests: together the fast ones take some seconds."""

import pytest

from tests.effort import slowly
from tests.frameworks.kit import ENGINES, Places


@pytest.fixture(params=slowly(ENGINES, but={"memory", "sqlite", "directory"}))
def url(request: pytest.FixtureRequest, places: Places) -> str:
    return places.url(request.param)
