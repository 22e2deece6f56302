"""Regular expressions of strangers, with limits of their time and memory.

Python's `re` takes exponential time for some expressions, and holds all threads of the server
until it is done. The package `regex` reads the same expressions, lets other threads run, and gives
up after a time.
"""

import re
from collections.abc import Callable

from limpet.errors import InvalidInput
from limpet.views.search import Find

TEXTS_S_MAX = 1.0  # for the lines of some texts: most expressions take milliseconds
ALL_S_MAX = 10.0  # for those of a page: a single state may have thousands of texts
GROUPS_MAX = 15  # to compile repetitions inside each other takes twice the memory for each: 40 MB

_LEAST_S = 0.001  # for a line, so that a batch of many ends too
_NO_COUNT = re.compile(r"(\\.)|\{(?!\d*,?\d*\})", re.DOTALL)


def timed_finder(pattern: re.Pattern[str], monotonic: Callable[[], float]) -> Find:
    """Return a function that searches lines, and raises InvalidInput when it takes too long.

    Raises:
        InvalidInput: the expression has too many groups.
    """
    import regex  # type: ignore[import-untyped]  # 30 ms, and most searches are for plain text

    if pattern.pattern.count("(") > GROUPS_MAX:
        raise InvalidInput(f"the expression has more than {GROUPS_MAX} groups: make it simpler")
    # In `regex`, a brace that is no count would allow errors in what is before it.
    text = _NO_COUNT.sub(lambda found: found[1] or r"\{", pattern.pattern)
    expression = regex.compile(text, pattern.flags & ~re.UNICODE)
    left_s = ALL_S_MAX

    def find(lines: list[str]) -> list[tuple[int, int] | None]:
        nonlocal left_s
        begun = monotonic()
        end = begun + min(TEXTS_S_MAX, left_s)
        found = []
        try:
            for line in lines:
                match = expression.search(line, timeout=max(_LEAST_S, end - monotonic()))
                found.append(match and match.span())
        except TimeoutError:
            raise InvalidInput(
                "the expression takes too long: a repetition inside a repetition, as in (a|aa)+,"
                " may take forever. Make it simpler, or search for plain text"
            ) from None
        left_s -= monotonic() - begun
        return found

    return find
