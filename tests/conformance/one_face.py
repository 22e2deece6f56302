"""The suite through one face only: the other one just hands the calls to threads."""

import pytest

from holdfast.testing import conformance
from holdfast.testing.conformance import Face


class Sync(conformance.Kit):
    @pytest.fixture(params=["sync"])
    def face(self, request: pytest.FixtureRequest) -> Face:
        face: Face = request.param
        return face


class Async(conformance.Kit):
    @pytest.fixture(params=["async"])
    def face(self, request: pytest.FixtureRequest) -> Face:
        face: Face = request.param
        return face
