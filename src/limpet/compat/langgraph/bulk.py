"""Making many objects at once."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_PARTS_MAX = 1024


def settled(out: list[bytes], mark: int) -> int:
    """Join what was added behind a mark, if that is much; return where to go on from.

    A short result of orjson takes 4 KB of memory, however short it is.
    """
    if len(out) - mark < _PARTS_MAX:
        return mark
    out[mark:] = [b"".join(out[mark:])]
    return mark + 1


@contextmanager
def many_objects() -> Iterator[None]:
    """Let the garbage collector wait while many objects are made that all stay.

    It would look through them again and again as they come, and find nothing: with a thousand
    messages that takes three times as long as to make them. Short, so nothing is missed meanwhile.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
