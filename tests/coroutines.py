"""Async tests without a plugin: each runs in a loop of its own."""

import asyncio
import inspect

import pytest


def run_coroutine(item: pytest.Function) -> bool | None:
    """Run a test that is a coroutine: what `pytest_pyfunc_call` does."""
    if not inspect.iscoroutinefunction(item.obj):
        return None
    names = inspect.signature(item.obj).parameters
    asyncio.run(item.obj(**{name: item.funcargs[name] for name in names}))
    return True
