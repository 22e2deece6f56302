"""Moto: a mock of S3 that lists by bytes. It checks and sets in two steps, so no races on it."""

import os
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.servers.service import (
    START_TRIES_MAX,
    Service,
    answers,
    executable,
    free_port,
    running,
)


@contextmanager
def start_moto() -> Iterator[Service]:
    """Run moto's server until the block ends."""
    program = executable("moto_server", "moto[server]>=5.1")
    for _ in range(START_TRIES_MAX):
        port = free_port()
        service = Service(f"http://127.0.0.1:{port}", "key", "secret")
        with (
            tempfile.TemporaryDirectory(prefix="limpet-moto-") as folder,
            running(
                [program, "-H", "127.0.0.1", "-p", str(port)],
                {"PATH": os.environ.get("PATH", ""), "HOME": folder},
                Path(folder, "log"),
                partial(answers, f"{service.url}/moto-api/"),
            ) as ready,
        ):
            if ready:
                request = urllib.request.Request(f"{service.url}/{service.name}", method="PUT")
                urllib.request.urlopen(request, timeout=10).close()
                yield service
                return
    pytest.fail("moto_server does not start: run it to see why", pytrace=False)
