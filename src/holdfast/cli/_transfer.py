"""What the verbs that carry data over share: what was left out, and a file that is whole."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO

from rich.text import Text

import holdfast
from holdfast.cli._shared import finding_json, make_console
from holdfast.opening import draw
from holdfast.views.names import visible


def findings_json(findings: Iterable[holdfast.Finding]) -> list[dict[str, object]]:
    """Return findings as all verbs write them."""
    return [finding_json(each) for each in findings]


def draw_skipped(skipped: Iterable[holdfast.Finding]) -> None:
    """Tell what was left out, beside the output."""
    console = make_console(stderr=True)
    for each in skipped:
        where = "" if each.scope is None else f"{each.scope.session_id}:{each.scope.scope_id} "
        text = Text.assemble(("left out  ", "odd"), visible(f"{where}{each.message}"))
        console.print(text, soft_wrap=True)


@contextmanager
def whole_file(path: str) -> Iterator[IO[bytes]]:
    """Open a file that is there whole at the end, or as it was before."""
    staged = f"{path}.{draw().nonce}.part"
    try:
        with open(staged, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(staged, path)
    except OSError as error:
        where = error.filename2 or path
        reason = error.strerror or type(error).__name__
        raise holdfast.Unavailable(f"cannot write the file: {reason}. path=`{where}`") from error
    finally:
        with suppress(OSError):
            os.unlink(staged)
