"""PostgreSQL: a real server, from this machine's programs or from those inside a wheel.

`LIMPET_TEST_POSTGRES` says which: the URL of a server that runs already, the folder of the
programs `postgres` and `initdb`, or `wheel`. The workers of a parallel run share one server.
"""

import ctypes
import fcntl
import hashlib
import os
import random
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from tests.servers.pg_programs import CHOICE, find_programs, owner, processes, readable, watch
from tests.servers.service import POLL_S, START_S_MAX, START_TRIES_MAX, is_free

PORTS = range(10_000, 12_000)  # below what the system hands out, so one is still free at a restart
STOP_S_MAX = 120.0
SHARED = "LIMPET_TEST_POSTGRES_SHARED"  # the folder of the server that workers share
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "400",
    # In a file below its own folder, as it would be left behind if the server is killed.
    "dynamic_shared_memory_type": "mmap",
}


# Of the locks and sessions that a server shows, those in the own database: other workers have
# theirs in the same server. (In a transaction, `pg_stat_activity` shows no more than it did first.)
LOCKED_HERE = (
    "pid IN (SELECT pid FROM pg_locks"
    " WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
)
HERE = "datname = current_database()"

Connection = psycopg.Connection[tuple[Any, ...]]


def one(connection: Connection, query: str, *parameters: object) -> Any:
    """Return the first value of the only row that a query finds."""
    (row,) = connection.execute(query, parameters or None).fetchall()
    return row[0]


# A server as its users see it


class Postgres:
    """A server that answers, by the URL of a database in which others may be made."""

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 5432

    def connect(self) -> Connection:
        """Connect in autocommit, whatever limits the server is set to."""
        limits = ("statement_timeout=0", "lock_timeout=10s", "default_transaction_read_only=off")
        options = " ".join(f"-c {each}" for each in limits)
        return psycopg.connect(self.url, autocommit=True, connect_timeout=10, options=options)

    @contextmanager
    def schemas(self) -> Iterator["Schemas"]:
        """Yield names of schemas that no other test uses, and drop the schemas in the end."""
        schemas = Schemas(self.url, f"t{secrets.token_hex(5)}")
        yield schemas
        with self.connect() as connection:
            query = "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, %s)"
            for (name,) in connection.execute(query, [schemas.prefix]).fetchall():
                # Waits in vain, and fails, if a test left a transaction open.
                statement = sql.SQL("DROP SCHEMA {} CASCADE")
                connection.execute(statement.format(sql.Identifier(name)))

    @contextmanager
    def database(self) -> Iterator[str]:
        """Make a database, and drop it in the end; yield its URL. Takes twenty times a schema."""
        name = f"t{secrets.token_hex(5)}"
        with self.connect() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield urlsplit(self.url)._replace(path=f"/{name}").geturl()
        with self.connect() as connection:
            statement = sql.SQL("DROP DATABASE {} WITH (FORCE)")
            connection.execute(statement.format(sql.Identifier(name)))


@dataclass(frozen=True)
class Schemas:
    """Schemas of one test, which do not exist before it makes them."""

    server_url: str
    prefix: str

    def name(self, place: str = "") -> str:
        """Return the name of one schema, the same for the same key."""
        return f"{self.prefix}_{hashlib.sha256(place.encode()).hexdigest()[:8]}"

    def url(self, place: str = "", *, server_url: str | None = None) -> str:
        """Return the URL of one schema, over another address of the server if one is given."""
        return with_option(server_url or self.server_url, "schema", self.name(place))


def with_option(url: str, name: str, value: str) -> str:
    return f"{url}{'&' if urlsplit(url).query else '?'}{name}={value}"


@contextmanager
def start_postgres() -> Iterator[Postgres]:
    """Run a server of our own until the block ends, or yield the one that was asked for.

    Where workers share one, each has a database of its own there.
    """
    choice, folder = os.environ.get(CHOICE, ""), os.environ.get(SHARED)
    if "://" in choice:
        yield Postgres(choice)
    elif folder:
        with _shared(Path(folder), choice).database() as url:
            yield Postgres(url)
    else:
        with PrivatePostgres(choice) as server:
            yield server


@contextmanager
def sharing() -> Iterator[None]:
    """Let the processes that are started in the block share a server, which ends with the block.

    The first that asks starts it. It also ends if this process is killed: its end of a pipe is
    closed then, to which the watcher of the server listens.
    """
    folder = Path(tempfile.mkdtemp(prefix="limpet-postgres-"))
    folder.chmod(0o755)  # it may be another user who runs the server
    os.mkfifo(folder / "alive")
    alive = os.open(folder / "alive", os.O_RDWR)
    os.environ[SHARED] = str(folder)
    try:
        yield
    finally:
        del os.environ[SHARED]
        os.close(alive)
        if not (folder / "url").exists():  # else the watcher removes the folder
            shutil.rmtree(folder, ignore_errors=True)  # a worker may still be at work there


def _shared(folder: Path, choice: str) -> Postgres:
    said = folder / "url"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not said.exists():
            _started.append(PrivatePostgres(choice, shared=folder).__enter__())
            said.write_text(_started[-1].url)
    return Postgres(said.read_text())


_started: list["PrivatePostgres"] = []  # never left, as others use it


# A server to be ill-treated


class PrivatePostgres(Postgres):
    """A server that one test has for itself, and may stop and kill.

    with PrivatePostgres(settings={"statement_timeout": "100ms"}) as server:
        server.configure(max_connections="20")  # a reload; what needs a restart waits for one
        server.stop("immediate")                # or "fast", or "smart", which waits for clients
        server.start()                          # on the same port
        server.kill()                           # all of its processes at once
        server.start()
        server.kill_connections()               # as an administrator would
        with server.standby() as standby:       # a replica that answers what only reads
            standby.catch_up()
    """

    def __init__(
        self,
        choice: str | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        primary: "PrivatePostgres | None" = None,
        shared: Path | None = None,
    ) -> None:
        """`choice` is that of `find_programs`; None: what the environment says, but for a URL.

        Below a folder that is shared, it runs until nobody writes to the pipe `alive` there.
        """
        super().__init__("")
        if choice is None:
            asked = os.environ.get(CHOICE, "")
            choice = "" if "://" in asked else asked
        self._choice = choice
        self._settings = {**SETTINGS, **(settings or {})}
        self._primary = primary
        self._shared = shared
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if self._shared is not None:
                # Of its own, as others may have failed before, which must not hide why this does.
                self._folder = Path(tempfile.mkdtemp(dir=self._shared))
            else:
                temporary = tempfile.TemporaryDirectory(prefix="limpet-postgres-")
                self._folder = Path(stack.enter_context(temporary))
            self._owner = owner()
            if self._owner:
                os.chown(self._folder, self._owner["user"], self._owner["group"])
            self._data = self._folder / "data"
            self._prepare()
            stack.callback(self.stop, "immediate")
            for _ in range(START_TRIES_MAX):
                port = next(filter(is_free, random.sample(PORTS, len(PORTS))))
                self.url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
                self.configure(port=str(port))
                if self._started():
                    break
            else:
                self._fail()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # What a test says

    def configure(self, **settings: str) -> None:
        """Change settings. Those that need no restart hold at once, or nearly."""
        self._settings |= settings
        quoted = {name: value.replace("'", "''") for name, value in self._settings.items()}
        lines = [f"{name} = '{value}'\n" for name, value in quoted.items()]
        file = self._data / "tests.conf"
        file.write_text("".join(lines))
        file.chmod(0o644)  # it may be another user who reads it
        if self._process is not None:
            self._process.send_signal(signal.SIGHUP)

    def start(self) -> None:
        """Start again after `stop` or `kill`, on the same port."""
        if not self._started():
            self._fail()

    def stop(self, mode: str = "fast") -> None:
        """Stop it in the way that `pg_ctl` calls by this name. May be repeated."""
        if self._process is not None:
            signals = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
            self._process.send_signal(signals[mode])
            try:
                self._process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self.kill()
            self._forget()

    def kill(self) -> None:
        """Kill all of its processes at once: nothing is written that was not yet."""
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGSTOP)  # else it would start new ones meanwhile
        children = {pid for pid, (parent, _) in processes().items() if parent == process.pid}
        for pid in (*children, process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        # Those that nobody waits for are dead, and listed all the same.
        while children & {pid for pid, (_, state) in processes().items() if state[0] != "Z"}:
            time.sleep(POLL_S / 10)
        self._forget()
        with suppress(FileNotFoundError, IndexError):
            # Only a server that starts again would remove this, and perhaps none does.
            identity = (self._data / "postmaster.pid").read_text().split("\n")[6]
            ctypes.CDLL(None).shmctl(int(identity.split()[1]), 0, None)

    def kill_connections(self) -> int:
        """End every connection but the own; return how many there were."""
        with self.connect() as connection:
            query = (
                "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
            return int(one(connection, query))

    def standby(self, **settings: str) -> "PrivatePostgres":
        """Return a replica, to be started by `with`, which follows as long as this one runs."""
        # It must not have smaller limits, such as that of connections, or it does not start.
        return PrivatePostgres(settings={**self._settings, **settings}, primary=self)

    def catch_up(self) -> None:
        """Wait until a replica has what its primary has now."""
        assert self._primary is not None
        with self._primary.connect() as primary, self.connect() as connection:
            there = one(primary, "SELECT pg_current_wal_lsn()")
            query = "SELECT coalesce(pg_last_wal_replay_lsn() >= %s, false)"
            deadline = time.monotonic() + START_S_MAX
            while not one(connection, query, there):
                assert time.monotonic() < deadline, "the replica does not follow"
                time.sleep(POLL_S / 10)

    # What it does

    def _prepare(self) -> None:
        """Make the folder of the data."""
        if self._primary is None:
            self._programs = readable(find_programs(self._choice), self._folder)
            options = ["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync"]
            self._run("initdb", "-D", str(self._data), *options)
            with (self._data / "postgresql.conf").open("a") as file:
                file.write("include 'tests.conf'\n")
        else:
            self._programs = self._primary._programs
            options = ["-X", "stream", "-c", "fast", "--write-recovery-conf", "--no-sync"]
            self._run("pg_basebackup", "-D", str(self._data), "-d", self._primary.url, *options)

    def _run(self, program: str, *arguments: str) -> None:
        with (self._folder / "log").open("ab") as log:
            done = subprocess.run(**self._command(program, *arguments), stdout=log, stderr=log)
        if done.returncode:
            self._fail()

    def _command(self, program: str, *arguments: str) -> dict[str, Any]:
        environ = {"PATH": os.environ.get("PATH", ""), "HOME": str(self._folder)}
        return {
            "args": [str(self._programs / program), *arguments],
            # Given here, the zone and the locale need not be searched for, which takes a while.
            "env": {**environ, "TZ": "UTC", "LC_ALL": "C"},
            "cwd": self._folder,
            "stdin": subprocess.DEVNULL,
            **self._owner,
        }

    def _started(self) -> bool:
        """Return whether it started: it does not when another took its port."""
        with (self._folder / "log").open("ab") as log:
            command = self._command("postgres", "-D", str(self._data))
            # In a session of its own, or a key that interrupts the tests would end it first.
            process = subprocess.Popen(**command, stdout=log, stderr=log, start_new_session=True)
        self._process = process
        if self._shared is None:
            self._watcher = watch(process, self._folder)
        else:
            # Opened here and at once, or who opens it when the tests have ended waits for ever.
            alive = os.open(self._shared / "alive", os.O_RDONLY | os.O_NONBLOCK)
            os.set_blocking(alive, True)
            self._watcher = watch(process, self._shared, alive)
            os.close(alive)
        deadline = time.monotonic() + START_S_MAX
        while process.poll() is None and time.monotonic() < deadline:
            with suppress(FileNotFoundError):
                lines = (self._data / "postmaster.pid").read_text().split("\n")
                if lines[0] == str(process.pid) and lines[7:] and lines[7].strip() == "ready":
                    return True
            time.sleep(POLL_S / 10)
        self.stop("immediate")
        return False

    def _forget(self) -> None:
        """Forget a process that has ended."""
        self._process = None
        if self._watcher is not None:
            self._watcher.kill()
            self._watcher.communicate()
            self._watcher = None

    def _fail(self) -> NoReturn:
        lines = (self._folder / "log").read_text(errors="replace").splitlines()
        reasons = [line for line in lines if "FATAL" in line or "error" in line] or lines[-1:]
        pytest.fail(f"PostgreSQL does not start: {' '.join(reasons[-1:])}", pytrace=False)
