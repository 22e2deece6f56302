"""The first hour of a newcomer: an empty venv, the wheel, the README, the tutorials, mistakes.

`python -m tests.first_hour.play` writes all that was printed to docs/_made/first_hour.txt, for
people to read.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests import snippets
from tests.first_hour.mistakes import MISTAKES, Mistake
from tests.servers.postgres import start_postgres

ROOT = Path(__file__).resolve().parents[2]
WRITTEN = ROOT / "docs" / "_made" / "first_hour.txt"
SERVER = "postgresql://postgres@localhost/agents"  # as the tutorials have it
_WIDTH = 100
_TIMEOUT_S = 120
_FRAME = re.compile(r'^  File "(.*?)", line', re.MULTILINE)
_OUR_FRAMES = re.compile(
    r'(?:^  File "…/(?:limpet/|contextlib\.py).*\n(?:    .*\n)+)+', re.MULTILINE
)
_CHANGING = (  # what differs from run to run
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<id>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?"), "<time>"),
    (re.compile(r"\b[0-9a-f]+\.[0-9a-f]+\.[0-9a-f]{16}\b"), "<revision>"),
    (re.compile(r"\b\d\d:\d\d:\d\d UTC"), "<time> UTC"),
    (re.compile(r"owner=`[\w.-]+:\d+`"), "owner=`host:pid`"),
    (re.compile(r"0x[0-9a-f]{6,}"), "0x…"),
    (re.compile(r'"/[^"]*/contextlib\.py"'), '"…/contextlib.py"'),
    (re.compile(r"127\.0\.0\.1:\d+/\w+"), "localhost/agents"),
)


class Played(NamedTuple):
    """One mistake, and what it printed."""

    mistake: Mistake
    code: int
    output: str

    def foreign_frames(self) -> list[str]:
        """Return the files of a traceback that are neither the user's nor ours."""
        files = _FRAME.findall(self.output)
        ours = re.compile(r"mistake\.py$|/limpet/|/contextlib\.py$")  # the last is a `with` of ours
        return [file for file in files if not ours.search(file)]


class Newcomer:
    """An empty folder and a venv with the wheel alone."""

    def __init__(self, folder: Path) -> None:
        self._venv = folder / "venv"
        self._bin = self._venv / "bin"
        self.folder = folder / "work"
        self.folder.mkdir()
        (self.folder / "notes.db").write_text("These are my notes, which are no database. " * 30)
        wheels = folder / "wheels"
        _run([sys.executable, "-m", "uv", "build", "--wheel", "--out-dir", str(wheels), str(ROOT)])
        _run([sys.executable, "-m", "venv", str(self._venv)])
        (self._wheel,) = wheels.glob("*.whl")
        self.install("cli")

    def install(self, *extras: str) -> None:
        asked = f"{self._wheel}[{','.join(extras)}]"
        python = str(self._bin / "python")
        _run([sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python, asked])

    def shell(self, text: str) -> tuple[int, str]:
        """Run a line of the shell as a newcomer does; return its exit code and all it printed."""
        done = subprocess.run(
            ["bash", "-c", text],
            cwd=self.folder,
            env=self._environ(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        return done.returncode, self._readable(done.stdout)

    def python(self, text: str, name: str = "script.py") -> tuple[int, str]:
        (self.folder / name).write_text(text)
        return self.shell(f"python {name}")

    def read(
        self, page: Path, folder: Path, replace: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Do what a page says, from top to bottom; return what each of its snippets printed."""
        printed = snippets.run(page, folder, replace, self._bin)
        return {name: self._readable(text) for name, text in printed.items()}

    def make(self, mistake: Mistake) -> Played:
        if mistake.is_command:
            return Played(mistake, *self.shell(mistake.text))
        return Played(mistake, *self.python(mistake.text, "mistake.py"))

    def _environ(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
        path = f"{self._bin}:{os.environ['PATH']}"
        return {**kept, "PATH": path, "COLUMNS": str(_WIDTH), "NO_COLOR": "1"}

    def _readable(self, text: str) -> str:
        packages = next(self._venv.glob("lib/python3*/site-packages"))
        text = text.replace(str(packages), "…").replace(str(self.folder) + "/", "")
        for pattern, word in _CHANGING:
            text = pattern.sub(word, text)
        return text


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


class Hour(NamedTuple):
    """What the pages printed, by page and line, and what the mistakes did, by chapter."""

    pages: dict[str, str]
    mistakes: dict[str, list[Played]]

    def transcript(self) -> str:
        """Return all that was printed, for people to read, each with what led to it."""
        parts = [_titled("Pages", "=")]
        parts += [f"{name}\n{_indented(text)}" for name, text in self.pages.items() if text]
        for chapter, each_of in self.mistakes.items():
            parts.append(_titled(chapter, "="))
            for mistake, code, output in each_of:
                asked = _indented(mistake.text, "$ " if mistake.is_command else "  ")
                shown = _indented(_OUR_FRAMES.sub("  …\n", output))
                parts.append(f"{_titled(mistake.title, '-')}{asked}\n{shown}    → {code}\n")
        return "\n".join(parts)


def _titled(title: str, line: str) -> str:
    return f"{title}\n{line * len(title)}\n"


def _indented(text: str, by: str = "    ") -> str:
    return "".join(f"{by}{line}".rstrip() + "\n" for line in text.splitlines())


def play(folder: Path, database: str) -> Hour:
    """Play the hour in an empty folder; `database` is the URL of an empty one on PostgreSQL."""
    newcomer = Newcomer(folder)
    pages = newcomer.read(ROOT / "README.md", folder)
    played = {chapter: [*map(newcomer.make, each)] for chapter, each in MISTAKES.items()}
    newcomer.install("postgres")
    for page in sorted((ROOT / "docs" / "tutorials").glob("*.md")):
        made = folder / "travel"  # by the first of them
        pages |= newcomer.read(page, made if made.exists() else folder, {SERVER: database})
    return Hour(pages, played)


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        start_postgres() as postgres,
        postgres.database() as database,
    ):
        text = play(Path(folder), database).transcript()
    WRITTEN.parent.mkdir(exist_ok=True)
    WRITTEN.write_text(text)


if __name__ == "__main__":
    main()
