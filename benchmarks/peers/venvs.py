"""An environment for each peer, made by `uv` under `.bench/` and kept until its versions change."""

import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.catalogue import REQUIREMENTS

ROOT = Path(__file__).resolve().parent.parent.parent
BENCH = ROOT / ".bench"
INSTALL_S_MAX = 600


class NotReady(Exception):
    """Something that a row needs is missing; the row reports it, and the others still run."""


def python_of(name: str) -> Path:
    """Return the Python of an environment, which is made if it is not there as required."""
    folder = BENCH / name
    python, stamp = folder / "bin" / "python", folder / "requirements.txt"
    wanted = "\n".join([f"# Python {sys.version}", *REQUIREMENTS[name], ""])
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted and python.exists():
        return python
    print(f"installing {', '.join(REQUIREMENTS[name])}", file=sys.stderr)
    uv = _uv()
    base = (
        Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    )
    _run(
        uv,
        "venv",
        "--clear",
        "--python",
        str(base if base.exists() else sys.executable),
        str(folder),
    )
    _run(uv, "pip", "install", "--python", str(python), *REQUIREMENTS[name])
    stamp.write_text(wanted, encoding="utf-8")
    return python


def _uv() -> str:
    local = Path(sys.prefix) / "bin" / "uv"
    found = str(local) if local.exists() else shutil.which("uv")
    if found is None:
        raise NotReady("`uv` is missing, which installs it")
    return found


def _run(*command: str) -> None:
    try:
        done = subprocess.run(
            [*command, "--quiet"], capture_output=True, text=True, timeout=INSTALL_S_MAX
        )
    except (OSError, subprocess.TimeoutExpired) as cause:
        raise NotReady(f"could not be installed: {type(cause).__name__}") from cause
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[0]
        raise NotReady(f"could not be installed: {reason[:120]}")
