"""How much is done in `make test`, and how much more in `make full`."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest

only_fast_tests = False  # set by tests/conftest.py before any test is imported


def times(fast: int, *, full: int) -> int:
    """Return how often something random is repeated."""
    return fast if only_fast_tests else full


def slowly(values: Iterable[Any], *, but: Collection[Any]) -> list[Any]:
    """Leave all but some of these values of a parameter to the slow tests."""
    return [each if each in but else pytest.param(each, marks=pytest.mark.slow) for each in values]
