"""Hearing that somebody waits for a run, so that no test has to guess when."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from limpet.api.leases import Holder
from limpet.api.verbs import Steps
from limpet.protocol import Hold
from limpet.runs.handles import _Waiting


def heard_when_it_waits(tell: Callable[[], None]) -> AbstractContextManager[Any]:
    """Have a function called each time that somebody in this process finds its run held."""
    inspect = _Waiting.inspect

    def heard(waiting: _Waiting, held: Hold) -> Steps[Holder]:
        holder = yield from inspect(waiting, held)
        tell()
        return holder

    return patch.object(_Waiting, "inspect", heard)
