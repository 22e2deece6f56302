"""Type checkers understand users' programs: mypy and pyright, both strict, read typed_users.py.

mypy also reads the programs of the README, of the tutorials, and of the guides to the methods.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import limpet
from tests import snippets

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("typed_users.py")
SRC = Path(limpet.__file__).resolve().parents[1]
GUIDES = (
    *("ancestors", "append", "claim", "concepts", "deletes", "diff", "fork", "history", "ids"),
    *("info", "leaves", "load", "load_many", "notes", "opening", "portable", "prune", "restore"),
    *("save", "sessions_and_scopes", "update", "upkeep", "watch"),
)
COMMANDS = {
    "mypy": [
        *("mypy", "--strict", "--config-file=", "--cache-dir=cache", "--follow-imports=silent"),
        "program.py",
    ],
    "pyright": ["pyright", "--pythonpath", sys.executable, "--project=settings.json"],
}
PYRIGHT = {
    "typeCheckingMode": "strict",
    "enableTypeIgnoreComments": False,
    "reportUnnecessaryTypeIgnoreComment": "error",
    "extraPaths": [str(SRC)],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_scope_with_a_model_is_typed_and_one_without_takes_anything(
    name: str, tmp_path: Path
) -> None:
    shutil.copyfile(PROGRAM, tmp_path / "program.py")
    (tmp_path / "settings.json").write_text(json.dumps(PYRIGHT))
    check_types(COMMANDS[name], tmp_path)


@pytest.mark.slow
def test_the_programs_of_the_pages_are_typed(tmp_path: Path) -> None:
    """As they are printed: a file of that name, or a program of its own; a guide is one program."""
    for name in GUIDES:
        blocks = snippets.blocks(ROOT / "docs" / "guides" / f"{name}.md")
        program = "\n".join(each.text for each in blocks if each.language == "python")
        (tmp_path / f"guide_{name}.py").write_text(program)
    for page in (ROOT / "README.md", *sorted((ROOT / "docs" / "tutorials").glob("*.md"))):
        for block in snippets.blocks(page):
            if block.language == "python":
                named = re.match(r"# (\w+)\.py\n", block.text)
                path = tmp_path / f"{named[1] if named else 'block'}.py"
                if not named or path.exists():  # a later version of it is checked on its own
                    path = tmp_path / f"{path.stem}_{page.stem[0]}_{block.line}.py"
                path.write_text(block.text)
    programs = [path.name for path in tmp_path.iterdir()]
    assert len(programs) > len(GUIDES) + 12
    check_types([*COMMANDS["mypy"][:-1], *programs], tmp_path)


def check_types(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(SRC), "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
