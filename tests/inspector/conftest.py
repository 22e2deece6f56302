"""Tests of pages may be coroutines."""

from tests.server.conftest import pytest_pyfunc_call  # noqa: F401
