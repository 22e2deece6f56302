import pytest

from limpet.compat.strands import SnapshotLocation
from tests.compat.strands.kit import make_location


@pytest.fixture
def location() -> SnapshotLocation:
    """A location in a session that only this test uses."""
    return make_location()
