"""The command `limpet`: a file for each verb. They draw; what they show, a library can ask for.

This file holds only the way in, so that it can be imported without the extra `cli`.
"""

import signal
import sys
from importlib import import_module

from limpet.cli import _exits

_EXTRA = ("click", "rich")


def main() -> int:
    """Run the command with the arguments of this process, and return its exit code."""
    try:
        for name in _EXTRA:  # the verbs, which need them, are loaded later
            import_module(name)
        from limpet.cli._app import run
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in _EXTRA:
            raise
        sys.stderr.write("the command line is an extra: pip install 'limpet[cli]'\n")
        return 2
    except KeyboardInterrupt:  # before there is anything that could tell of it
        return _exits.INTERRUPTED
    signal.signal(signal.SIGTERM, _terminated)
    try:
        return run()
    except _Terminated:
        return _exits.TERMINATED


class _Terminated(BaseException):
    """Somebody asked the process to end: it leaves as it would with Ctrl-C."""


def _terminated(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
    raise _Terminated
