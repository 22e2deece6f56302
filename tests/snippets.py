"""Runs the snippets of documents as a reader would: from top to bottom, in one folder.

- A Python block whose first line is `# name.py` is saved under that name. All others run in one
  interpreter and one namespace.
- An `export` or a `cd` of an `sh` block holds for all blocks that follow.
- A `text` block shows what the block before it printed; `...` in it stands for any text.
- `console` blocks, and blocks without a language, are not run.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

_MARK = "\x1e"  # between the outputs of two blocks
# `limpet diff` exits with 1 if there are differences, as diff does; any other failure ends the run.
_BEGIN = """set -eu
limpet() { command limpet "$@" || { code=$?; [ "$1" = diff ] && [ $code = 1 ]; }; }
"""
_READER = """
import json, os, re, subprocess, sys, tempfile
from pathlib import Path
left = tempfile.NamedTemporaryFile("r")  # the environment that a shell leaves
page, mark, begin, steps = json.loads(sys.argv[1])
space = {"__name__": "__main__"}
for language, line, text in steps:
    print(f"{mark}{line}", flush=True)
    if language == "sh":
        subprocess.run(["bash", "-c", f"{begin}{text}\\nenv -0 > {left.name}"], check=True)
        left.seek(0)
        os.environ.update(each.split("=", 1) for each in left.read().split("\\0") if each)
        os.chdir(os.environ["PWD"])
    elif named := re.match(r"# (\\w+\\.py)\\n", text):
        Path(named[1]).write_text(text, "utf-8")
    else:
        exec(compile("\\n" * (line - 1) + text, page, "exec"), space)
"""


class Block(NamedTuple):
    """A fenced block, and the line on which its text begins."""

    language: str
    line: int
    text: str


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    found: list[Block] = []
    begun: Block | None = None
    inside: list[str] = []
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        if not line.startswith("```"):
            inside.append(line + "\n")
        elif begun is None:
            begun, inside = Block(line[3:], number + 1, ""), []
        else:
            found.append(begun._replace(text="".join(inside)))
            begun = None
    assert begun is None, f"{page.name}:{begun.line} is never closed"
    return found


def run(
    page: Path,
    folder: Path,
    replace: Mapping[str, str] | None = None,
    programs: Path = Path(sys.executable).parent,
    warnings: str = "error",
) -> dict[str, str]:
    """Run a page in a folder; return what each block printed, by its address.

    `replace` exchanges text, for example the URL of a server, in commands and in what is shown.
    `programs` is the folder of `python` and `limpet`, `warnings` what becomes of Python's.
    """
    chosen = [
        block._replace(text=_replaced(block.text, replace or {}))
        for block in blocks(page)
        if block.language in {"python", "sh", "text"}
    ]
    steps = [block for block in chosen if block.language != "text"]
    done = subprocess.run(
        [programs / "python", "-u", "-c", _READER, json.dumps([page.name, _MARK, _BEGIN, steps])],
        cwd=folder,
        env=_environment(programs, warnings),
        capture_output=True,
        text=True,
        timeout=240,  # some seconds on a machine that has nothing else to do
        check=False,
    )
    printed = dict(part.split("\n", 1) for part in done.stdout.split(_MARK)[1:])
    where = f"{page.name}:{list(printed)[-1]}" if printed else page.name
    assert done.returncode == 0, f"{where}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    _compare(page, chosen, printed)
    return {f"{page.name}:{line}": text for line, text in printed.items()}


def _replaced(text: str, replace: Mapping[str, str]) -> str:
    for old, new in replace.items():
        text = text.replace(old, new)
    return text


def _environment(programs: Path, warnings: str) -> dict[str, str]:
    """Have `python` and `limpet` of one environment, and no store of ours."""
    others = {"LIMPET_URL", "PYTHONPATH"}
    inherited = {name: value for name, value in os.environ.items() if name not in others}
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return {**inherited, "PATH": path, "PYTHONWARNINGS": warnings, "COLUMNS": "100"}


def _compare(page: Path, chosen: Sequence[Block], printed: Mapping[str, str]) -> None:
    shown = {
        str(before.line): after.text
        for before, after in pairwise(chosen)
        if after.language == "text" and before.language != "text"
    }
    assert len(shown) == sum(block.language == "text" for block in chosen), page.name
    for line, text in shown.items():
        pattern = ".*?".join(map(re.escape, text.split("...")))
        assert re.fullmatch(pattern, printed[line], re.S), (
            f"{page.name}:{line} prints\n{printed[line]}\nand not\n{text}"
        )
