"""The examples in the README run as they stand, in an empty folder."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"
BLOCKS: list[str] = re.findall(r"^```python\n(.*?)^```$", README.read_text("utf-8"), re.M | re.S)
FIRST_BLOCK_LINES_MAX = 15


def code_lines(block: str) -> list[str]:
    """Return the lines that are neither empty nor only a comment."""
    lines = (line.strip() for line in block.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def test_readme_has_examples_of_both_faces() -> None:
    assert len(BLOCKS) >= 2
    assert "limpet.open(" in BLOCKS[0]
    assert any("limpet.open_async(" in block for block in BLOCKS)


def test_first_example_is_short() -> None:
    """A stranger reads it at one glance."""
    assert 0 < len(code_lines(BLOCKS[0])) <= FIRST_BLOCK_LINES_MAX


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_example_runs_in_an_empty_folder(block: str, tmp_path: Path) -> None:
    """Each example stands alone: a new process, an empty folder, warnings are errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, f"{block}\n{done.stderr}"
