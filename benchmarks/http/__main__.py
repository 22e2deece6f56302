"""Measure the server: `python -m benchmarks.http [--quick] [--write]`.

Prints a page of tables; goals that are missed are marked in it. Fails only if something crashes.
"""

import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import NamedTuple

import orjson

import limpet
from benchmarks.harness import Benchmark, machine
from benchmarks.http import load
from benchmarks.http.watchers import memory_mb, watchers
from benchmarks.material import state_of
from benchmarks.measuring import take_turns
from benchmarks.objects.disk import folder_on_disk
from benchmarks.report import TIMES, Result, milliseconds, spread, table

STATE_BYTES = 10_000
CLIENTS = (16, 256)
STATES = 20  # of one client, one after the other
READY_S_MAX = 20.0
DIRECT_MAX, BARE_MIN, P99_MAX, IDLE_MAX, TOLD_S_MAX = 2.5, 0.6, 10.0, 0.01, 0.2


class Sizes(NamedTuple):
    """How much is measured."""

    calls: int = 300
    repetitions: int = 5
    seconds: float = 5.0
    rounds: int = 3
    watchers: int = 1_000
    idle_s: float = 20.0
    requests: int = 100_000


QUICK = Sizes(40, 2, 0.5, 1, 100, 1.0, 2_000)

PREFACE = """\
# The store over HTTP

Written by `make bench` (`python -m benchmarks.http --write`). Everything is on this machine, over
loopback, with SQLite; the server is one process, and the clients are another. States have 10 KB.

- **Directly**: the same engine in the calling process, in turns with `limpet.open("http://…")`.
- **Bare handler**: Starlette and uvicorn, one INSERT of the body or one SELECT, as durable as the
  store (WAL, one sync for each commit). Clients are sockets of one process that send prepared
  requests; each client has a session of its own. A ratio above 1 means that the store is faster.
- **Watchers**: all of one scope, each a connection of server-sent events.
- A goal that is missed stays in the table, marked **no**.

Machine: {machine}.
"""


def main() -> None:
    """Measure everything, print the page, and write it if asked."""
    run = Benchmark("http", "less than half a minute")
    sizes = QUICK if run.quick else Sizes()
    about = machine("uvicorn", "starlette")
    rows: list[Result] = []
    with tempfile.TemporaryDirectory(dir=folder_on_disk()) as folder:
        for part in (_direct, _clients, _watchers, _memory):
            with run.part(part.__name__[1:]):
                rows += run.judged(part(Path(folder), sizes))
    run.publish(f"{PREFACE.format(machine='; '.join(about))}\n{table(rows)}\n")


class Server(NamedTuple):
    port: int
    pid: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


@contextmanager
def _running(*command: str) -> Iterator[Server]:
    """Start a server whose last argument is its port."""
    port = _free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", *command, str(port)], stdout=subprocess.DEVNULL
    )
    try:
        until = perf_counter() + READY_S_MAX
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                if perf_counter() > until:
                    raise
                sleep(0.05)
        yield Server(port, process.pid)
    finally:
        process.terminate()
        process.wait()


def _limpet(folder: Path, name: str) -> AbstractContextManager[Server]:
    return _running(
        "limpet", "serve", "--create", f"sqlite:///{folder / name}.db", "--no-access-log", "--port"
    )


def _direct(folder: Path, sizes: Sizes) -> Iterator[Result]:
    """The same calls over HTTP and directly."""
    with ExitStack() as stack:
        server = stack.enter_context(_limpet(folder, "served"))
        far = stack.enter_context(limpet.open(server.url))
        near = stack.enter_context(limpet.open(f"sqlite:///{folder / 'direct.db'}"))
        scopes = {"http": far.scope("chat"), "direct": near.scope("chat")}

        def save(scope: limpet.Scope, number: int) -> None:
            scope.save(state_of(number, size_bytes=STATE_BYTES))

        def load_head(scope: limpet.Scope, number: int) -> None:
            scope.load()

        for name, act in (("save", save), ("load", load_head)):
            sides = {side: partial(act, scope) for side, scope in scopes.items()}
            run = take_turns(sides, calls=sizes.calls, repetitions=sizes.repetitions)
            ratios = run.ratios("http", "direct", "wall")
            yield Result(
                f"{name} of 10 KB, 1 client, wall: HTTP against directly",
                f"{milliseconds(run.seconds('http', 'wall'))} against "
                f"{milliseconds(run.seconds('direct', 'wall'))}",
                goal=f"<= {DIRECT_MAX:g} {TIMES}",
                ratio=spread(ratios),
                met=median(ratios) <= DIRECT_MAX,
            )


def _clients(folder: Path, sizes: Sizes) -> Iterator[Result]:
    """Many clients at once, against a bare handler."""
    for clients in CLIENTS:
        names = [f"{kind}-{clients}" for kind in ("limpet", "bare")]
        bare = ("benchmarks.http.bare", str(folder / f"{names[1]}.db"))
        with _limpet(folder, names[0]) as ours, _running(*bare) as theirs:
            for name, requests in (("save", _saves), ("load", _loads)):
                loads: dict[str, list[load.Load]] = {"ours": [], "theirs": []}
                for _ in range(sizes.rounds):
                    for side, server in (("ours", ours), ("theirs", theirs)):
                        sent = requests(server.port, clients)
                        loads[side].append(load.run(server.port, sent, seconds=sizes.seconds))
                yield from _compared(name, clients, loads)


def _compared(name: str, clients: int, loads: dict[str, list[load.Load]]) -> Iterator[Result]:
    pairs = list(zip(loads["ours"], loads["theirs"], strict=True))
    ratios = [ours.rate / theirs.rate for ours, theirs in pairs]
    rates = [f"{median(each.rate for each in loads[side]):,.0f}" for side in ("ours", "theirs")]
    yield Result(
        f"{name} of 10 KB, {clients} clients: requests per second against a bare handler",
        f"{rates[0]} against {rates[1]}",
        goal=f">= {BARE_MIN:g} {TIMES}",
        ratio=spread(ratios),
        met=median(ratios) >= BARE_MIN,
    )
    tails = [each.p99 / each.p50 for each in loads["ours"]]
    shown = [median(getattr(each, at) for each in loads["ours"]) for at in ("p50", "p99")]
    yield Result(
        f"{name}, {clients} clients: p99 against p50",
        f"{milliseconds(shown[1])} against {milliseconds(shown[0])}",
        goal=f"<= {P99_MAX:g} {TIMES}",
        ratio=spread(tails),
        met=median(tails) <= P99_MAX,
    )


def _saves(port: int, clients: int) -> list[list[bytes]]:
    bodies = [
        orjson.dumps({"state": state_of(number, size_bytes=STATE_BYTES)})
        for number in range(STATES)
    ]
    return [
        [load.request("POST", _target("save", client), port, body) for body in bodies]
        for client in range(clients)
    ]


def _loads(port: int, clients: int) -> list[list[bytes]]:
    return [[load.request("GET", _target("snapshot", each), port)] for each in range(clients)]


def _target(verb: str, client: int) -> str:
    return f"/v1/scope/{verb}?session_id=chat-{client}"


def _watchers(folder: Path, sizes: Sizes) -> Iterator[Result]:
    with _limpet(folder, "watched") as server:
        idle, told_s = watchers(server.port, server.pid, sizes.watchers, sizes.idle_s, 5)
    yield Result(
        f"{sizes.watchers} watchers, idle: the server",
        f"{idle:.2%} of a core",
        goal=f"< {IDLE_MAX:.0%} of a core",
        met=idle < IDLE_MAX,
    )
    yield Result(
        f"{sizes.watchers} watchers: from the answer of a save to the last of them",
        milliseconds(told_s),
        goal=f"< {milliseconds(TOLD_S_MAX)}",
        met=told_s < TOLD_S_MAX,
    )


def _memory(folder: Path, sizes: Sizes) -> Iterator[Result]:
    """Memory after a tenth of the requests, and after all of them."""
    with _limpet(folder, "memory") as server:
        saves = _saves(server.port, 8)
        load.run(server.port, saves, seconds=0.5)
        requests = [*saves, *_loads(server.port, 8)]
        seen: list[tuple[int, float]] = []
        done = 0
        while done < sizes.requests:
            done += len(load.run(server.port, requests, seconds=1.0).latencies)
            seen.append((done, memory_mb(server.pid)))
    early = next(mb for count, mb in seen if count >= sizes.requests / 10)
    yield Result(
        f"memory of the server after {sizes.requests // 10:,} and after {done:,} requests",
        f"{early:.0f} MB, then {seen[-1][1]:.0f} MB",
        goal="flat (<= 1.1)",
        ratio=f"{seen[-1][1] / early:.2f} {TIMES}",
        met=seen[-1][1] / early <= 1.1,
    )


if __name__ == "__main__":
    main()
