"""The exit codes: what a script can tell apart."""

from collections.abc import Mapping

from limpet import errors

FINE = 0
FOUND = 1  # findings, differences, or the opposite: not found
USAGE = 2
CONFLICT = 3
UNAVAILABLE = 4
CORRUPT = 5
TERMINATED = 143  # as a shell tells of SIGTERM
CLOSED = 141  # as a shell tells of a pipe that nobody reads any more
DEFECT = 70  # as sysexits has it: a fault of the program itself
INTERRUPTED = 130  # as a shell tells of Ctrl-C

_CODES: Mapping[type[errors.LimpetError], int] = {
    errors.NotFound: FOUND,
    errors.InvalidInput: USAGE,
    errors.Unsupported: USAGE,
    errors.AlreadyExists: CONFLICT,
    errors.Conflict: CONFLICT,
    errors.Unavailable: UNAVAILABLE,
    errors.Corrupt: CORRUPT,
}


def code_of(error: errors.LimpetError) -> int:
    """Return the exit code that an error ends with."""
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), FOUND)
