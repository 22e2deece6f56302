"""How often a random test is repeated: less in `make test`, more in `make full`."""

only_fast_tests = False  # set by tests/conftest.py before any test is imported


def times(fast: int, *, full: int) -> int:
    return fast if only_fast_tests else full
