"""The environment of each peer."""

from pathlib import Path

from benchmarks.peers.catalogue import REQUIREMENTS
from tests import environments
from tests.environments import BENCH, ROOT, NotReady

__all__ = ["BENCH", "ROOT", "NotReady", "python_of"]


def python_of(name: str) -> Path:
    """Return the Python of an environment, which is made if it is not there as required."""
    return environments.python_of(name, REQUIREMENTS[name])
