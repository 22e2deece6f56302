"""Ages and moments for a person to read."""

from datetime import datetime

_STEPS = ((60, "s"), (60, "m"), (24, "h"), (365, "d"))


def age_text(then: datetime, now: datetime) -> str:
    """Return how long ago something was, in its biggest unit: `now`, `42s`, `3h`, `12d`, `2y`.

    What lies ahead, since clocks differ, is `now`.
    """
    rest = int((now - then).total_seconds())
    if rest < 1:
        return "now"
    for size, unit in _STEPS:
        if rest < size:
            return f"{rest}{unit}"
        rest //= size
    return f"{rest}y"


def moment_text(moment: datetime) -> str:
    """Return a time to the second, in the time zone that it has: `2026-03-01 14:05:09`."""
    return moment.strftime("%Y-%m-%d %H:%M:%S")
