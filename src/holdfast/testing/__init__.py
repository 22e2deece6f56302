"""The test kit that ships with Holdfast (extra `testing`): put an engine of your own to the test.

`holdfast.testing.conformance` is the suite that every engine passes.
"""

import pytest

# Only then does a failed assertion in an installed module show the values that it compared.
pytest.register_assert_rewrite("holdfast.testing.conformance")
