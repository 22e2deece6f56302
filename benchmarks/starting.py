"""What `import limpet` costs a new interpreter."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.measuring import order_of
from benchmarks.plan import Plan
from benchmarks.report import Result, milliseconds, spread

IMPORT_S_MAX = 0.150
PROGRAMS = {
    "bare": "pass",
    "import": "import limpet",
    "sqlite": "import limpet, limpet.backends.sqlite.storage",
    "asyncio": "import asyncio",
}


def start(program: str, bytecode: str) -> tuple[float, float]:
    """Run a program in a new interpreter; return the seconds of CPU and wall."""
    # Compiled code is kept even if the shell is set up so that it is not.
    env = {key: text for key, text in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-X", f"pycache_prefix={bytecode}", "-c", program]
    before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, env=env)
    wall, after = time.perf_counter() - wall, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, wall


def measure(plan: Plan) -> Iterator[Result]:
    """Yield how much longer an interpreter takes that imports something than one that does not."""
    extra: dict[str, list[tuple[float, float]]] = {name: [] for name in PROGRAMS}
    with TemporaryDirectory() as bytecode:
        for program in PROGRAMS.values():
            start(program, bytecode)  # compiled, and in the cache of the file system
        for number in range((1 if plan.quick else 4) * plan.repetitions):
            names = order_of(list(PROGRAMS), number)
            spent = {name: start(PROGRAMS[name], bytecode) for name in names}
            bare_cpu, bare_wall = spent["bare"]
            for name, (cpu, wall) in spent.items():
                extra[name].append((cpu - bare_cpu, wall - bare_wall))
    walls = [1000 * wall for _, wall in extra["import"]]
    yield Result(
        measure="`import limpet` in a new interpreter, minus a bare start, wall",
        goal=f"< {milliseconds(IMPORT_S_MAX)}",
        measured=spread(walls, "ms", 0),
        met=median(walls) < 1000 * IMPORT_S_MAX,
    )
    for name, what in (
        ("import", "the same, CPU"),
        ("asyncio", "`import asyncio` alone, for comparison, CPU"),
        ("sqlite", "`import limpet` and its SQLite engine, CPU"),
    ):
        yield Result(what, spread([1000 * cpu for cpu, _ in extra[name]], "ms", 0))
