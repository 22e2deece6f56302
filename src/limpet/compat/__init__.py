"""The interfaces that people already program against, each over one core on every engine."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec


def is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package around it
        return False


@contextmanager
def needs(module: str, framework: str, *, extra: str) -> Iterator[None]:
    """Raise an error that names the extra if imports fail because a framework is missing."""
    try:
        yield
    except ModuleNotFoundError as cause:
        if is_installed(module):
            raise
        message = f"{framework} is not installed: pip install 'limpet[{extra}]'"
        raise ModuleNotFoundError(message, name=cause.name) from None
