"""Prefixes as ranges of text in code-point order, which every index can serve."""


def prefix_end(prefix: str) -> str | None:
    """Return the least text that is greater than all that begin with `prefix`; None: no end."""
    for at in range(len(prefix) - 1, -1, -1):
        following = ord(prefix[at]) + 1
        if following == 0xD800:
            following = 0xE000  # surrogates are not characters and cannot be stored
        if following <= 0x10FFFF:
            return prefix[:at] + chr(following)
    return None
