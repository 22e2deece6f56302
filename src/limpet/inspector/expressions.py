"""Regular expressions of strangers, in a process of their own.

Python's `re` takes exponential time for some expressions, and cannot be interrupted: it would hold
all threads of the server. A process can be killed.
"""

import json
import re
import selectors
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from limpet.errors import InvalidInput, Unsupported

TEXT_S_MAX = 1.0  # for the lines of some texts: most expressions take milliseconds
ALL_S_MAX = 10.0  # for those of a page: a single state may have thousands of texts
_START_S_MAX = 10.0
_CHILD: Final = """
import json, re, sys
pattern = re.compile(*json.loads(sys.stdin.readline()))
print(flush=True)
for line in sys.stdin:
    found = map(pattern.search, json.loads(line))
    print(json.dumps([each and each.span() for each in found]), flush=True)
"""


class Expression:
    """Searches lines for an expression, as a `views.search.Find`; to be closed."""

    def __init__(self, pattern: re.Pattern[str], monotonic: Callable[[], float]) -> None:
        self._pattern = pattern
        self._monotonic = monotonic
        self._taken_s = 0.0
        self._is_closed = False
        self._process: subprocess.Popen[str] | None = None

    def __call__(self, lines: list[str]) -> list[tuple[int, int] | None]:
        """Return where each line matches; InvalidInput if that takes too long."""
        if self._is_closed:  # the reader left, and this thread does not know yet
            raise InvalidInput("the search was ended")
        if self._process is None:
            self._process = _start()
            if self._is_closed:  # meanwhile
                self.close()
            self._answer([self._pattern.pattern, self._pattern.flags & ~re.UNICODE], _START_S_MAX)
        begun = self._monotonic()
        found = json.loads(self._answer(lines, min(TEXT_S_MAX, ALL_S_MAX - self._taken_s)))
        self._taken_s += self._monotonic() - begun
        return [None if span is None else (span[0], span[1]) for span in found]

    def _answer(self, question: object, s_max: float) -> str:
        process, answer = self._process, ""
        if process is not None and process.stdin is not None and process.stdout is not None:
            with suppress(BrokenPipeError):
                process.stdin.write(json.dumps(question) + "\n")
                process.stdin.flush()
            # Not `select.select`, which takes no descriptor above 1023.
            with selectors.DefaultSelector() as waiting:
                waiting.register(process.stdout, selectors.EVENT_READ)
                ready = waiting.select(max(0.0, s_max))
            answer = process.stdout.readline() if ready else ""
        if not answer:
            self.close()
            raise InvalidInput(
                "the expression takes too long: a repetition inside a repetition, as in (a+)+, may"
                " take forever. Make it simpler, or search for plain text"
            )
        return answer

    def close(self) -> None:
        """End the process, also one that is at work."""
        self._is_closed = True
        process, self._process = self._process, None
        if process is not None:
            process.kill()  # a thread that waits for an answer reads the end of it
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):
                    pipe.close()  # type: ignore[union-attr]


def _start() -> subprocess.Popen[str]:
    if not sys.executable:
        raise Unsupported("regular expressions need an interpreter: search for plain text")
    return subprocess.Popen(  # noqa: S603  (nothing of the request is in it)
        [sys.executable, "-I", "-S", "-c", _CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="ascii",
    )
