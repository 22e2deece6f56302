"""The test kit that ships with Limpet (extra `testing`): put an engine of your own to the test.

`limpet.testing.conformance` is the suite that every engine passes; `limpet.testing.stateful`
runs random programs on an engine and on `limpet.testing.model` in lockstep.
"""

try:
    import hypothesis  # noqa: F401
    import pytest
except ModuleNotFoundError as cause:
    raise ModuleNotFoundError(
        "the test kit is not installed: pip install 'limpet[testing]'", name=cause.name
    ) from None

# Only then does a failed assertion in an installed module show the values that it compared.
pytest.register_assert_rewrite("limpet.testing.conformance", "limpet.testing.kit")
