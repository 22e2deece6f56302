"""Type checkers understand users' programs: mypy and pyright, both strict, read typed_users.py."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import limpet

PROGRAM = Path(__file__).with_name("typed_users.py")
SRC = Path(limpet.__file__).resolve().parents[1]
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
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_scope_with_a_model_is_typed_and_one_without_takes_anything(
    name: str, tmp_path: Path
) -> None:
    shutil.copyfile(PROGRAM, tmp_path / "program.py")
    (tmp_path / "settings.json").write_text(json.dumps(PYRIGHT))
    done = subprocess.run(
        [sys.executable, "-m", *COMMANDS[name]],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(SRC), "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
