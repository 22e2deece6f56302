"""Real processes for tests: each runs a script and answers lines of JSON with lines of JSON.

A line over a pipe is the only synchronisation, so no test depends on how long anything takes.
"""

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SIZE = 8
ALL = slice(None)


class Worker:
    """One process. It is killed when its block is left by an error, and must end well otherwise.

    It runs a script, or a module by its name, which can import others of the tests.
    """

    def __init__(self, script: Path | str, *arguments: object) -> None:
        program = ["-m", script] if isinstance(script, str) else [str(script)]
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", *program, *map(str, arguments)],
            cwd=ROOT if isinstance(script, str) else None,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._to, self._from = self.process.stdin, self.process.stdout

    def __enter__(self) -> "Worker":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.process.kill()
        self.end()
        assert error is not None or self.process.returncode == 0

    def tell(self, message: Any) -> None:
        self._to.write(json.dumps(message) + "\n")
        self._to.flush()

    def hear(self) -> Any:
        line = self._from.readline()
        assert line.endswith("\n"), f"the process ended early: {self.process.poll()}"
        return json.loads(line)

    def ask(self, message: Any) -> Any:
        self.tell(message)
        return self.hear()

    def end(self) -> None:
        """Close its input, which ends it, and wait."""
        with suppress(BrokenPipeError):  # it may be gone already
            self._to.close()
        self.process.wait()
        self._from.close()


class Crew:
    """Several processes that all do the same task at the same time.

    They are started by the first task and serve all tests; after a failure new ones are started,
    so that no test hears the answers that another one did not wait for.
    """

    def __init__(self, size: int = SIZE) -> None:
        self._size = size
        self._workers: list[Worker] = []

    def tell(self, task: str, url: str, message: Any, *, who: slice = ALL) -> None:
        """Give a task to all, or to some of them, without waiting for the answers."""
        if not self._workers:
            script = Path(__file__).with_name("worker.py")
            self._workers = [Worker(script, number) for number in range(self._size)]
            assert self.hear() == ["ready"] * self._size
        for worker in self._workers[who]:
            worker.tell([task, url, message])

    def hear(self, *, who: slice = ALL) -> list[Any]:
        """Return the answers, in the order of the workers' numbers."""
        try:
            return [worker.hear() for worker in self._workers[who]]
        except BaseException:
            self.dismiss()
            raise

    def ask(self, task: str, url: str, message: Any, *, who: slice = ALL) -> list[Any]:
        self.tell(task, url, message, who=who)
        return self.hear(who=who)

    def dismiss(self) -> None:
        while self._workers:
            worker = self._workers.pop()
            worker.process.kill()
            worker.end()


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"
