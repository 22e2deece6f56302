"""A defect that is planted on purpose, to see that the tests notice it."""

from typing import NamedTuple


class Defect(NamedTuple):
    name: str
    file: str
    """Below `src/limpet`."""
    old: str
    """Text that occurs exactly once in the file."""
    new: str
    tests: tuple[str, ...]
    """What pytest is given, `tests/unit/test_ids.py -k minted`: in each file a test must fail."""
