"""What must be there."""

from typing import TypeVar

T = TypeVar("T")


def present(found: T | None) -> T:
    """Return what was found, or fail if that is nothing."""
    assert found is not None
    return found
