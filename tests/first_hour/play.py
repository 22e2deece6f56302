"""The first hour of a newcomer: an empty venv, the wheel, the README, the tutorials, mistakes."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests import snippets
from tests.first_hour.mistakes import MISTAKES, Mistake

ROOT = Path(__file__).resolve().parents[2]
SERVER = "postgresql://postgres@localhost/agents"  # as the tutorials have it
_WIDTH = 100
_TIMEOUT_S = 300
_FRAME = re.compile(r'^  File "(.*?)", line', re.MULTILINE)


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
        return done.returncode, done.stdout

    def python(self, text: str, name: str = "script.py") -> tuple[int, str]:
        (self.folder / name).write_text(text)
        return self.shell(f"python {name}")

    def read(
        self, page: Path, folder: Path, replace: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Do what a page says, from top to bottom; return what each of its snippets printed."""
        return snippets.run(page, folder, replace, self._bin)

    def make(self, mistake: Mistake) -> Played:
        if mistake.is_command:
            return Played(mistake, *self.shell(mistake.text))
        return Played(mistake, *self.python(mistake.text, "mistake.py"))

    def _environ(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
        path = f"{self._bin}:{os.environ['PATH']}"
        return {**kept, "PATH": path, "COLUMNS": str(_WIDTH), "NO_COLOR": "1"}


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


class Hour(NamedTuple):
    """What the pages printed, by page and line, and what the mistakes did, by chapter."""

    pages: dict[str, str]
    mistakes: dict[str, list[Played]]


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
