"""How much is done in `make test`, how much more in `make full`, and most in `make torture`."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest

# Set by tests/conftest.py before any test is imported.
only_fast_tests = False
at_length = False

TORTURE = (pytest.mark.slow, pytest.mark.torture)  # marks of a value that only `make torture` takes


def times(fast: int, *, full: int, torture: int = 0) -> int:
    """Return how often something random is repeated; a test with `torture` is marked `long`."""
    return fast if only_fast_tests else (torture if at_length and torture else full)


def slowly(values: Iterable[Any], *, but: Collection[Any]) -> list[Any]:
    """Leave all but some of these values of a parameter to the slow tests."""
    return [each if each in but else pytest.param(each, marks=pytest.mark.slow) for each in values]
