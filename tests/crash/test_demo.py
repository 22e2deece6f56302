"""The demonstration is a promise too: it runs, it kills, it resumes, it verifies."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_demo_kills_resumes_and_verifies(tmp_path: Path) -> None:
    """A killed agent resumes at the step after the last one that the file holds.

    No escape sequence reaches a pipe, and nothing is left in the temporary folder.
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / "resume.py")],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    killed = re.search(r"killed with SIGKILL after step (\d+) was acknowledged", done.stdout)
    found = re.search(r"^ +step (\d+), \d+ messages, \d+ bytes$", done.stdout, re.MULTILINE)
    began = re.findall(r"begins at step (\d+)", done.stdout)
    assert killed is not None
    assert found is not None
    assert int(killed[1]) >= 3
    assert int(found[1]) in (int(killed[1]), int(killed[1]) + 1)
    assert began == ["1", str(int(found[1]) + 1)]
    assert "FAILED" not in done.stdout
    assert "Everything holds." in done.stdout
    assert "\x1b" not in done.stdout
    assert list(tmp_path.iterdir()) == []
