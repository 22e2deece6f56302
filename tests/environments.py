"""Environments of other packages, each with its own Python, made by `uv` under `.bench/`.

The dependencies of the frameworks contradict each other, so none of them is in `.venv`. An
environment is kept until what it must contain changes.
"""

import fcntl
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BENCH = ROOT / ".bench"
INSTALL_S_MAX = 600


class NotReady(Exception):
    """An environment could not be made, or something else is missing."""


def python_of(name: str, requirements: Sequence[str], *, lowest: bool = False) -> Path:
    """Return the Python of an environment, which is made if it is not there as required.

    `lowest` takes the lowest version that each requirement allows. Processes wait for each other.
    """
    BENCH.mkdir(exist_ok=True)
    with (BENCH / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _made(name, requirements, lowest=lowest)


def _made(name: str, requirements: Sequence[str], *, lowest: bool) -> Path:
    folder = BENCH / name
    python, stamp = folder / "bin" / "python", folder / "requirements.txt"
    wanted = "\n".join([f"# Python {sys.version}", *requirements, str(_project()), ""])
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted and python.exists():
        return python
    sys.stderr.write(f"installing {', '.join(requirements)}\n")
    uv = _uv()
    base = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    chosen = base if base.exists() else Path(sys.executable)
    _run(uv, "venv", "--clear", "--python", str(chosen), str(folder))
    how = ["--resolution", "lowest-direct"] if lowest else []
    _run(uv, "pip", "install", "--python", str(python), *how, *requirements)
    stamp.write_text(wanted, encoding="utf-8")
    return python


def versions_of(*packages: str) -> dict[str, str]:
    """Return the newest version of each package with which all of them can be installed."""
    asked = [_uv(), "pip", "compile", "--quiet", "--no-header", "--no-annotate", "-"]
    done = subprocess.run(
        asked, input="\n".join(packages), capture_output=True, text=True, check=True
    )
    found = (line.partition("==") for line in done.stdout.splitlines())
    return {name: version for name, _, version in found if name in packages}


def limpet_with(*extras: str) -> tuple[str, ...]:
    """Return the requirement of this checkout with some of its extras."""
    return ("--editable", f"{ROOT}[{','.join(extras)}]")


def _project() -> object:
    """Return what this checkout requires: a changed extra needs a new environment."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project["dependencies"], project["optional-dependencies"], str(ROOT)


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
        reason = " ".join(done.stderr.split()) or "no reason given"
        raise NotReady(f"could not be installed: {reason[:200]}")
