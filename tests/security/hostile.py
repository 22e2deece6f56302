"""Runs a piece of hostile code in a process of its own, with little memory and little time."""

import subprocess
import sys
import textwrap

_BEGIN = """
import resource
import limpet
resource.setrlimit(resource.RLIMIT_AS, ({bytes_max}, {bytes_max}))


def bomb(levels, inner):
    for _ in range(levels):
        inner = [inner] * 10
    return inner


def refused(kind, act):
    try:
        act()
    except kind as error:
        assert len(str(error)) < 500, len(str(error))
        return
    raise AssertionError("accepted")

"""


def run(code: str, *, seconds: float, bytes_max: int = 1536 * 2**20) -> None:
    """Fail if the code raises, takes longer, or takes more memory than this."""
    program = _BEGIN.format(bytes_max=bytes_max) + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=seconds
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
