"""The name that the tests of the command line have for `for_each`."""

from tests.cases import for_each as each_case

__all__ = ["each_case"]
