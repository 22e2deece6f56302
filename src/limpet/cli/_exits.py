"""The exit codes, which docs/cli.md explains."""

from collections.abc import Mapping

from limpet import errors

FINE = 0
FOUND = 1  # findings, differences, or the opposite: not found
USAGE = 2
CONFLICT = 3
UNAVAILABLE = 4
CORRUPT = 5
DEFECT = 70  # EX_SOFTWARE of sysexits.h
INTERRUPTED = 130  # 128 + SIGINT
CLOSED = 141  # 128 + SIGPIPE
TERMINATED = 143  # 128 + SIGTERM

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
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), FOUND)
