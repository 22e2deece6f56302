"""Processes that work on a queue and kill themselves: the parent starts another for each.

What a worker does depends on the run and its attempt alone: `deaths` has how often a run kills its
worker, before or after its step.
"""

import json
import os
import signal
import sys

import limpet
from limpet import runs


def deaths(run_id: str) -> int:
    number = int(run_id.rpartition("/")[2])
    return 3 if number == 0 else number % 5 == 1


def work(url: str) -> list[str]:
    """Work until nothing waits; return the runs that were completed."""
    done = []
    with limpet.open(url) as store:
        for claim in runs.work(store, prefix="q/", wait_s=0.2, ttl_s=5):
            with claim as run:
                attempt = run.info.metadata["run"]["attempt"]
                dies = attempt <= deaths(run.run_id)
                if dies and attempt % 2:
                    os.kill(os.getpid(), signal.SIGKILL)
                run.step([*(run.state or []), attempt])
                if dies:
                    os.kill(os.getpid(), signal.SIGKILL)
            done.append(run.run_id)
    return done


def begin(url: str, folder: str, number: int) -> int:
    pid = os.fork()
    if pid == 0:
        done = work(url)
        with open(os.path.join(folder, f"{number}.json"), "w") as file:
            json.dump(done, file)
        os._exit(0)
    return pid


def main(url: str, folder: str, size: str) -> None:
    with limpet.open(url) as store:
        [*runs.list(store)]  # everything is imported before the forks
    left = {begin(url, folder, number) for number in range(int(size))}
    number = int(size)
    while left:
        pid, status = os.wait()
        left.discard(pid)
        if os.WIFSIGNALED(status):
            left.add(begin(url, folder, number))
            number += 1
        elif status:
            sys.exit(f"a worker failed: {status}")


if __name__ == "__main__":
    main(*sys.argv[1:])
