"""A worker in a process of its own: for each line of JSON one run."""

import json
import sys
import time
from typing import Any

import limpet
from limpet import Store, runs


def say(message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def count(store: Store, run_id: str, ttl_s: float) -> None:
    """Count as fast as possible; say each number when it is saved, until somebody stops it."""
    with runs.start(store, run_id, owner="the counter", ttl_s=ttl_s) as run:
        number: Any = run.state or 0
        while True:
            number += 1
            run.step(number, keep=number % 10 == 0)
            say(number)


def idle(store: Store, run_id: str, ttl_s: float) -> None:
    """Save once, and wait to be aborted."""
    try:
        with runs.start(store, run_id, ttl_s=ttl_s) as run:
            run.step("idle")
            say("ready")
            while not run.aborted:
                time.sleep(0.001)
            say("aborted")
    except runs.Aborted:
        say("left")


def doze(store: Store, run_id: str, ttl_s: float) -> None:
    """Save, do nothing until the next line, and want to go on."""
    try:
        with runs.start(store, run_id, owner="the dozer", ttl_s=ttl_s) as run:
            run.step("dozing")
            say("ready")
            sys.stdin.readline()
            run.step("awake")
        say("done")
    except limpet.LimpetError as error:
        say(type(error).__name__)


VERBS = {"count": count, "idle": idle, "doze": doze}


def main(url: str, options: str) -> None:
    with limpet.open(url, **json.loads(options)) as store:
        while line := sys.stdin.readline():
            verb, run_id, ttl_s = json.loads(line)
            VERBS[verb](store, run_id, ttl_s)


if __name__ == "__main__":
    main(*sys.argv[1:])
