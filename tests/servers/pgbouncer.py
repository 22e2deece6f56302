"""PgBouncer, the real one, in transaction mode: from this machine, else from Debian's archive.

It is used as `Pooler` is, which does the same in this process.
"""

import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.servers.pg_programs import owner, watch
from tests.servers.service import POLL_S, START_S_MAX, is_free

PORTS = range(9_000, 10_000)
SIZE = 2  # connections to the server
MISSING = "PgBouncer is missing: apt install pgbouncer"
SETTINGS = """
[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listens}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = {size}
server_login_retry = 0.1
server_round_robin = 1
"""


class PgBouncer:
    """Listens on loopback as long as its block runs."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)

    def __enter__(self) -> Self:
        program, libraries = find_program()
        port = next(filter(is_free, random.sample(PORTS, len(PORTS))))
        user = self._parts.netloc.rpartition("@")[0]
        self.url = self._parts._replace(netloc=f"{user}@127.0.0.1:{port}").geturl()
        with ExitStack() as stack:
            temporary = tempfile.TemporaryDirectory(prefix="limpet-pgbouncer-")
            folder = Path(stack.enter_context(temporary))
            folder.chmod(0o755)  # it may be another user who reads it
            host, server_port = self._parts.hostname or "127.0.0.1", self._parts.port or 5432
            settings = SETTINGS.format(
                host=host, port=server_port, listens=port, folder=folder, size=SIZE
            )
            (folder / "pgbouncer.ini").write_text(settings)
            (folder / "users").write_text(f'"{user}" ""\n')
            with (folder / "log").open("ab") as log:
                process = subprocess.Popen(
                    [program, str(folder / "pgbouncer.ini")],
                    env={"LD_LIBRARY_PATH": libraries},
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # a key that interrupts the tests would end it first
                    **owner(),
                )
            for each in (process, watch(process, folder)):
                stack.callback(each.communicate)
                stack.callback(each.kill)
            deadline = time.monotonic() + START_S_MAX
            while not self._is_open():
                if process.poll() is not None or time.monotonic() > deadline:
                    said = (folder / "log").read_text(errors="replace").strip()
                    pytest.fail(f"PgBouncer does not start: {said[-200:]!r}", pytrace=False)
                time.sleep(POLL_S / 10)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _is_open(self) -> bool:
        """Have it open all connections, which it then gives out in turn; else it uses one."""
        with suppress(psycopg.OperationalError), ExitStack() as stack:
            for _ in range(SIZE):
                client = stack.enter_context(psycopg.connect(self.url, connect_timeout=10))
                client.execute("SELECT 1")
            return True
        return False


# The program


def find_program() -> tuple[str, str]:
    """Return the path of the program, and of libraries that came with it."""
    found = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    return (found, "") if found else _unpacked()


def _unpacked() -> tuple[str, str]:
    """Unpack Debian's package below the folder for temporary files, unless it is there."""
    folder = Path(tempfile.gettempdir(), f"limpet-pgbouncer-{os.geteuid()}")
    program = folder / "usr/sbin/pgbouncer"
    try:
        if not program.exists():
            with tempfile.TemporaryDirectory(prefix="limpet-deb-") as name:
                _unpack(Path(name))
                with suppress(OSError):  # another process was faster
                    Path(name, "files").rename(folder)
        is_ours = folder.stat().st_uid == os.geteuid()  # else anyone may have put it there
    except (OSError, subprocess.SubprocessError):
        is_ours = False
    if not is_ours:
        pytest.fail(MISSING, pytrace=False)
    return str(program), ":".join(map(str, folder.glob("usr/lib/*-linux-*")))


def _unpack(folder: Path) -> None:
    """Download the package, and those of its libraries that few machines have, and unpack them."""
    _download(folder, ["pgbouncer"])
    (package,) = folder.glob("*.deb")
    needed = _run(folder, "dpkg-deb", "-f", package.name, "Depends").replace(",", " ").split()
    _download(folder, [each for each in needed if each.startswith(("libc-ares", "libevent"))])
    for each in folder.glob("*.deb"):
        _run(folder, "dpkg-deb", "-x", each.name, "files")


def _download(folder: Path, packages: Iterable[str]) -> None:
    _run(folder, "apt-get", "-q", "download", *packages)


def _run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=300)
    return done.stdout.decode()
