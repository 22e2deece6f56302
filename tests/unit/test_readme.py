"""The examples in the README run as they are, each in an empty folder."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"
BLOCKS: list[str] = re.findall(r"^```python\n(.*?)^```$", README.read_text("utf-8"), re.M | re.S)


def test_readme_has_examples_of_both_apis() -> None:
    assert "limpet.open(" in BLOCKS[0]
    assert any("limpet.open_async(" in block for block in BLOCKS)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_example_runs_in_an_empty_folder(block: str, tmp_path: Path) -> None:
    """A new process, an empty folder, warnings are errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, f"{block}\n{done.stderr}"
