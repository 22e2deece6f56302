"""What a test needs to know about a running object store, and how one is started and stopped."""

import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from limpet.backends.buckets.s3.open import ObjectStoreBucket, s3_bucket
from limpet.opening import CLOCK

START_TRIES_MAX = 5
START_S_MAX = 300.0
STOP_S_MAX = 5.0  # what it keeps is thrown away, so it may be killed
POLL_S = 0.05


@dataclass(frozen=True)
class Service:
    """An object store that answers on loopback, with one bucket in it."""

    url: str
    access_key_id: str
    secret_access_key: str
    name: str = "limpet-tests"

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def options(self) -> dict[str, Any]:
        """What `s3_bucket` or an `s3://` URL needs besides the bucket's name and a prefix."""
        return {
            "endpoint_url": self.url,
            "region": "us-east-1",
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
        }

    def store_url(self, prefix: str) -> str:
        """Return the URL of a store in the bucket."""
        return f"s3://{self.name}/{prefix}?{urlencode(self.options)}"

    def open(self, prefix: str = "", **options: Any) -> ObjectStoreBucket:
        """Open the bucket, or with `bucket=` another one. The environment is not looked at."""
        chosen = {**self.options, "clock": CLOCK, "environ": {"HOME": "/nonexistent"}, **options}
        name = chosen.pop("bucket", self.name)
        return s3_bucket(name, prefix=prefix, **chosen)


def executable(name: str, package: str) -> str:
    """Return the path of a program that came with a package, or fail saying what to install."""
    local = Path(sys.executable).parent / name
    found = str(local) if local.exists() else shutil.which(name)
    if found is None:
        pytest.fail(f"{name} is missing: pip install '{package}'", pytrace=False)
    return found


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(url: str) -> bool:
    """Return whether a server answers with a success."""
    with suppress(OSError, urllib.error.URLError), urllib.request.urlopen(url, timeout=2) as reply:
        return bool(200 <= reply.status < 300)
    return False


@contextmanager
def running(
    command: list[str], environ: Mapping[str, str], log: Path, is_ready: Callable[[], bool]
) -> Iterator[bool]:
    """Run a program until the block ends; yield whether it became ready.

    It did not if it ended by itself, as it does when another took its port.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=dict(environ), stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + START_S_MAX
        ready = False
        while not ready and process.poll() is None and time.monotonic() < deadline:
            ready = is_ready()
            if not ready:
                time.sleep(POLL_S)
        yield ready
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
