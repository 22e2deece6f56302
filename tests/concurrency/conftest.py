from collections.abc import Iterator

import pytest

from tests.concurrency.crew import Crew


@pytest.fixture(scope="session")
def crew() -> Iterator[Crew]:
    """Eight processes, started once."""
    crew = Crew()
    yield crew
    crew.dismiss()
