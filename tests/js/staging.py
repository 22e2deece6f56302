"""A folder in which Node finds the client and the packages that one of its files is written for."""

import shutil
import subprocess
from pathlib import Path

from tests.interop import node
from tests.js.serving import CLIENT, HERE, install

COMPILE_S_MAX = 100


def stage(name: str, folder: Path) -> Path:
    """Fill a folder with `limpet`, the packages of a project of ours, and its programs."""
    project = HERE / name
    (folder / "node_modules").symlink_to(install(name, project) / "node_modules")
    shutil.copytree(CLIENT / "src", folder / "limpet")
    shutil.copy(project / "package.json", folder)
    for program in project.glob("*.m[jt]s"):
        shutil.copy(program, folder)
    return folder


def check_types(staged: Path) -> None:
    """Compile the project's `types.mts` against the types of the packages."""
    compiler = str(install("langgraph", HERE / "langgraph") / "node_modules/typescript/bin/tsc")
    options = ("--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext")
    done = subprocess.run(
        [node.find_runtime().node, compiler, *options, "--target", "es2022", "types.mts"],
        cwd=staged,
        capture_output=True,
        text=True,
        timeout=COMPILE_S_MAX,
    )
    assert done.returncode == 0, done.stdout
