"""What the verbs that carry data over share: what was left out, and a file that is whole."""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO

from rich.text import Text

import limpet
from limpet.cli._shared import finding_json, make_console
from limpet.opening import draw
from limpet.views.sizes import visible


def findings_json(findings: Iterable[limpet.Finding]) -> list[dict[str, object]]:
    """Return findings as all verbs write them."""
    return [finding_json(each) for each in findings]


def draw_skipped(skipped: Iterable[limpet.Finding]) -> None:
    """Tell what was left out, beside the output."""
    console = make_console(stderr=True)
    for each in skipped:
        where = "" if each.scope is None else f"{each.scope.session_id}:{each.scope.scope_id}"
        where += "" if each.id is None else f"@{each.id}"
        text = Text.assemble(("left out  ", "odd"), visible(f"{where} {each.message}".strip()))
        console.print(text, soft_wrap=True)


@contextmanager
def whole_file(path: str) -> Iterator[IO[bytes]]:
    """Open a file that is there whole at the end, or as it was before.

    A link is followed, and what is no file (a pipe, a device) is written to as it is.
    """
    place = os.path.realpath(path)
    try:
        mode = _mode_of(place)
        if mode is not None and not stat.S_ISREG(mode):
            with open(place, "wb") as file:
                yield file
            return
        with _staged(place, mode) as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise limpet.Unavailable(f"cannot write the file: {reason}. path=`{path}`") from error


def _mode_of(path: str) -> int | None:
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


@contextmanager
def _staged(path: str, mode: int | None) -> Iterator[IO[bytes]]:
    staged = f"{path}.{draw().nonce}.part"
    try:
        with open(staged, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            os.chmod(staged, stat.S_IMODE(mode))
        os.replace(staged, path)
    finally:
        with suppress(OSError):
            os.unlink(staged)
