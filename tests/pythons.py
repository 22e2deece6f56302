"""Run the tests on every other Python of this machine, from 3.11 up: `python -m tests.pythons`.

Each Python has its own environment, `.venv-3.12` and so on. Warnings are errors there too, so a
feature that a later Python deprecates is found before it is removed.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
TOOLS = ("hatchling", "pytest-timeout", "pytest-xdist", "psycopg-pool")
CONFORMANCE = ("memory", "sqlite", "directory", "refusals", "suite")
# What depends on the Python itself: not the servers, and not the packages that we work with.
FOLDERS = (
    *(f"tests/{name}" for name in ("unit", "property", "portable", "cli", "runs", "views")),
    *(f"tests/conformance/test_{name}.py" for name in CONFORMANCE),
)
# These need packages of the group `dev`, which may have no wheels for a new Python.
NEED_PEERS = (
    "tests/unit/test_guides.py",
    "tests/unit/test_corrupt.py",
    "tests/unit/test_postgres_*",
    "tests/unit/test_sql_check.py",
    "tests/cli/*langgraph*",
    "tests/cli/test_export.py",
)


def candidates() -> Iterator[Path]:
    """Yield every program that may be a Python: on the PATH, and pyenv's."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        yield from sorted(Path(folder).glob("python3.[0-9]*"))
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob("versions/*/bin/python3.[0-9]*"))


def pythons() -> dict[tuple[int, int], Path]:
    """Return one program for each version."""
    found: dict[tuple[int, int], Path] = {}
    for path in candidates():
        named = re.fullmatch(r"python3\.(\d+)", path.name)
        version = (3, int(named[1])) if named else (0, 0)
        if version < OLDEST or version in found or not os.access(path, os.X_OK):
            continue
        # pyenv has a shim for every version that is installed; most of them refuse to run.
        works = subprocess.run([path, "-c", "import venv"], capture_output=True, check=False)
        if works.returncode == 0:
            found[version] = path
    return dict(sorted(found.items()))


def install(python: Path, folder: Path) -> bool | None:
    """Prepare an environment. Return whether it has the peers too, or None if nothing fits."""
    subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
    # Only wheels: to build the peers from source needs compilers, and takes long.
    command = [uv, "pip", "install", "--quiet"]
    command += ["--python", str(folder / "bin" / "python")]
    command += ["--only-binary", ":all:", "--editable", ".[all,testing]"]
    for more in (["--group", "dev"], TOOLS):
        if subprocess.run([*command, *more], cwd=ROOT, check=False).returncode == 0:
            return more is not TOOLS
    return None


def run(python: Path, version: str) -> str:
    """Run the tests; return what to say about it."""
    folder = ROOT / f".venv-{version}"
    peers = install(python, folder)
    if peers is None:
        return "not run: a dependency has no wheel for it"
    command = [str(folder / "bin" / "python"), "-m", "tests.again"]
    command += ["-q", "-n", "3", "--dist", "worksteal", "-m", "not slow"]
    command += [] if peers else [f"--ignore-glob={ROOT / each}" for each in NEED_PEERS]
    done = subprocess.run([*command, *FOLDERS], cwd=ROOT, check=False)
    said = "passed" if done.returncode == 0 else "FAILED"
    return said if peers else f"{said}, without the tests that need other packages"


def main() -> int:
    here = sys.version_info[:2]
    said = {".".join(map(str, here)): f"has run before, in {Path(sys.prefix).name}"}
    for version, python in pythons().items():
        if version != here:
            name = ".".join(map(str, version))
            said[name] = run(python, name)
    for name, each in said.items():
        sys.stdout.write(f"Python {name}: {each}\n")
    return int(any(each.startswith("FAILED") for each in said.values()))


if __name__ == "__main__":
    sys.exit(main())
