"""The command `limpet`, over the public API: a module for each group of verbs.

This module holds only the entry point, so that it can be imported without the extra `cli`.
"""

import signal
import sys
from importlib import import_module

from limpet.cli import _exits

_EXTRA = ("click", "rich")


def main() -> int:
    """Run the command with the arguments of this process, and return its exit code."""
    try:
        for name in _EXTRA:  # the verbs, which need them, are imported later
            import_module(name)
        from limpet.cli._app import run
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in _EXTRA:
            raise
        sys.stderr.write("the command line is not installed: pip install 'limpet[cli]'\n")
        return 2
    except KeyboardInterrupt:
        return _exits.INTERRUPTED
    signal.signal(signal.SIGTERM, _terminated)
    try:
        return run()
    except Terminated:
        return _exits.TERMINATED


class Terminated(BaseException):
    """SIGTERM: the process cleans up as it does after Ctrl-C."""


def _terminated(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated("SIGTERM")  # a run that is held stores it as its error
