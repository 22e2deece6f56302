"""Waiting for a fact instead of for a time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

WAIT_S_MAX = 300.0  # for what hangs
_POLL_S = 0.005


def until(condition: Callable[[], T]) -> T:
    """Wait until a condition holds, and return what it said."""
    deadline = time.monotonic() + WAIT_S_MAX
    while not (found := condition()):
        assert time.monotonic() < deadline, "what was waited for did not happen"
        time.sleep(_POLL_S)
    return found
