"""A PostgreSQL of our own: on a free loopback port, in a temporary folder, stopped at the end."""

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.peers.venvs import NotReady, python_of

START_S_MAX = 120


def _binaries() -> Path:
    """Return the folder of the programs: those of the machine, else those inside a wheel."""
    asked = shutil.which("pg_config")
    if asked:
        told = subprocess.run([asked, "--bindir"], capture_output=True, text=True)
        if (Path(told.stdout.strip()) / "initdb").exists():
            return Path(told.stdout.strip())
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (folder / "initdb").exists():
            return folder
    site = python_of("postgres").parent.parent / "lib"
    for initdb in site.glob("python*/site-packages/*/pginstall/bin/initdb"):
        return initdb.parent
    raise NotReady("no PostgreSQL on this machine, and none in the wheel")


def _servant() -> dict[str, Any]:
    """Return as whom to run: PostgreSQL refuses to be root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise NotReady("PostgreSQL does not run as root, and there is no other user")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """Start a server with its data in a new folder; give its address."""
    servant = _servant()
    place = Path(tempfile.mkdtemp(dir=folder, prefix="limpet-bench-postgres-"))
    try:
        binaries = _reachable(_binaries(), place, bool(servant))
        if servant:
            os.chown(place, servant["user"], servant["group"])
        data, port = place / "data", _free_port()

        def run(program: str, *arguments: str) -> None:
            command = [str(binaries / program), "-D", str(data), *arguments]
            _run(command, place, servant)

        run("initdb", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C")
        options = f"-c listen_addresses=127.0.0.1 -p {port} -c unix_socket_directories={place}"
        run("pg_ctl", "-w", "-l", str(place / "log"), "-o", options, "start")
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-m", "fast", "-w", "stop")
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _reachable(binaries: Path, place: Path, other: bool) -> Path:
    """Return the programs where another user can read them: a wheel may lie in our home."""
    if not other or "site-packages" not in binaries.parts:
        return binaries
    print("copying PostgreSQL to where its user can read it", file=sys.stderr)
    package = binaries.parent.parent
    # The programs find their libraries next to the package, by a relative path.
    for folder in (package, package.with_name(f"{package.name}.libs")):
        if folder.exists():
            shutil.copytree(folder, place / folder.name, symlinks=True)
    return place / package.name / "pginstall" / "bin"


def _run(command: list[str], place: Path, servant: dict[str, Any]) -> None:
    output = place / "output"
    with output.open("ab") as file:
        # Not a pipe: the server inherits it, and waiting for its end would wait for the server's.
        try:
            done = subprocess.run(
                command,
                stdout=file,
                stderr=file,
                stdin=subprocess.DEVNULL,
                cwd=place,
                timeout=START_S_MAX,
                **servant,
            )
        except (OSError, subprocess.TimeoutExpired) as cause:
            raise NotReady(f"PostgreSQL did not start: {type(cause).__name__}") from cause
    if done.returncode:
        lines = output.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise NotReady(f"PostgreSQL did not start: {(lines or ['no reason given'])[-1][:120]}")
