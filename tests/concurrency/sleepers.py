"""Processes that are stopped for a while, and wake up later."""

import fcntl
import os
import signal
from typing import Any

import limpet
from limpet import Conflict, Store, Unavailable
from limpet.opening import file_of
from tests.concurrency.crew import Worker
from tests.waiting import until

_LOCK_WAIT_S = 0.3


def stop(worker: Worker) -> None:
    worker.process.send_signal(signal.SIGSTOP)


def go_on(worker: Worker) -> None:
    worker.process.send_signal(signal.SIGCONT)


def stop_between_writes(worker: Worker, url: str, *scope: str, **options: Any) -> None:
    """Stop a process that has claimed a scope, at a moment when it holds no lock of the storage.

    It renews its lease in the background. Stopped in that very transaction it would keep everybody
    out until it wakes, however long ago its lease has ended.
    """
    if url.startswith(("s3:", "http:")):
        stop(worker)  # a client holds no locks
        return

    def is_stopped() -> bool:
        stop(worker)
        if _is_locked(store, url, *scope):
            go_on(worker)
            return False
        return True

    with limpet.open(url, lock_wait_s=_LOCK_WAIT_S, **options) as store:
        until(is_stopped)


def _is_locked(store: Store, url: str, *scope: str) -> bool:
    """Find out by a claim: it is refused, or given back at once. In folders it takes no lock."""
    path = file_of(url)
    if path is not None and os.path.isdir(path):
        return any(_is_folder_locked(folder) for folder, _, _ in os.walk(path))
    try:
        with store.scope(*scope).claim(owner="a look"):
            return False
    except Conflict:
        return False
    except Unavailable:
        return True


def _is_folder_locked(path: str) -> bool:
    folder = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(folder)
    return False
