"""Bytes, shares and bars."""

_UNITS = ("KiB", "MiB", "GiB", "TiB")
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def size_text(size: int) -> str:
    """Return a number of bytes for a person to read: `713 B`, `1.5 KiB`, `412 MiB`."""
    if abs(size) < 1024:
        return f"{size} B"
    value, power = size / 1024, 0
    while abs(value) >= 999.5 and power < len(_UNITS) - 1:  # else it would have four digits
        value, power = value / 1024, power + 1
    digits = 1 if abs(value) < 99.95 else 0
    return f"{value:.{digits}f} {_UNITS[power]}"


def ratio(stored: int, logical: int) -> float | None:
    """Return how much room something takes, as a share of its plain size; None if it has none."""
    return stored / logical if logical else None


def count_text(count: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: `1 scope`, `1,204 scopes`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def bar(share: float, cells: int) -> str:
    """Return a bar of blocks that fills a share of the cells; more than nothing is always seen."""
    eighths = round(max(0.0, min(1.0, share)) * cells * 8)
    if share > 0:
        eighths = max(1, eighths)
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")
