"""A folder in which Node finds the client and the packages that one of its files is written for."""

import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

from tests.interop import node
from tests.interop.node import install
from tests.js.serving import CLIENT, HERE
from tests.snippets import blocks

COMPILE_S_MAX = 500
EXAMPLE_S_MAX = 300


def stage(name: str, folder: Path) -> Path:
    """Return a copy of the client, with the packages and the programs of a project of ours.

    Programs in the folder of a package can import it by its name, as its users do.
    """
    staged = folder / "limpet"
    shutil.copytree(CLIENT, staged)
    (staged / "node_modules").symlink_to(install(name, HERE / name) / "node_modules")
    for program in (HERE / name).glob("*.m[jt]s"):
        shutil.copy(program, staged)
    return staged


def check_types(staged: Path) -> None:
    """Compile the project's `types.mts` against the types of the packages."""
    compiler = str(install("types", HERE / "types") / "node_modules/typescript/bin/tsc")
    options = ("--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext")
    done = subprocess.run(
        [node.find_runtime().node, compiler, *options, "--target", "es2022", "types.mts"],
        cwd=staged,
        capture_output=True,
        text=True,
        timeout=COMPILE_S_MAX,
    )
    assert done.returncode == 0, done.stdout


def check_examples(page: Path, folder: Path, url: str, runtime: node.Runtime) -> int:
    """Run the examples of a page that show what they print, and return how many there are."""
    shown = [
        (block.text, after.text)
        for block, after in pairwise(blocks(page))
        if (block.language, after.language) == ("js", "text")
    ]
    for program, printed in shown:
        (folder / "example.mjs").write_text(program.replace("http://127.0.0.1:7420", url))
        command = [runtime.node, "example.mjs"]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=EXAMPLE_S_MAX
        )
        assert (done.stderr, done.stdout) == ("", printed)
    return len(shown)
