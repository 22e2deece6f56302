"""A folder in which Node finds the client and the packages that one of its files is written for."""

import shutil
from pathlib import Path

from tests.js.serving import CLIENT, HERE, install


def stage(name: str, folder: Path) -> Path:
    """Fill a folder with `limpet`, the packages of a project of ours, and its programs."""
    project = HERE / name
    (folder / "node_modules").symlink_to(install(name, project) / "node_modules")
    shutil.copytree(CLIENT / "src", folder / "limpet")
    shutil.copy(project / "package.json", folder)
    for program in project.glob("*.m[jt]s"):
        shutil.copy(program, folder)
    return folder
