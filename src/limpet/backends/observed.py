"""An engine that is observed: a layer with the same operations. Here the slow ones are logged.

`telemetry.py` has the layer for OpenTelemetry.
"""

from collections.abc import Callable
from typing import Any

from limpet.backends.support import logs
from limpet.protocol import METHODS, Backend, Clock, Listener, Topic


class Observed:
    """Passes everything that is no operation on to the engine below."""

    def __init__(self, below: Backend, engine: str, clock: Clock) -> None:
        self.below = below
        self.engine = engine
        self.monotonic = clock.monotonic

    def __init_subclass__(cls, *, operation: Callable[[str], Callable[..., Any]]) -> None:
        """Give the layer a method for each operation: `operation` makes one of its name."""
        for name in METHODS:
            setattr(cls, name, operation(name))

    @property
    def blocking(self) -> bool:
        return self.below.blocking

    @property
    def capabilities(self) -> frozenset[str]:
        return self.below.capabilities

    def listen(self) -> Listener[Topic]:
        return self.below.listen()

    def close(self) -> None:
        self.below.close()


def _logged(name: str) -> Callable[..., Any]:
    def operation(self: "SlowLogged", *args: Any, **options: Any) -> Any:
        begun_s = self.monotonic()
        error: dict[str, str] = {}
        try:
            return getattr(self.below, name)(*args, **options)
        except BaseException as cause:
            error = {"error": type(cause).__name__}
            raise
        finally:
            took_s = self.monotonic() - begun_s
            if took_s >= self.slow_s:
                facts = {"operation": name, "seconds": round(took_s, 3), "engine": self.engine}
                logs.warning("slow operation", **facts, **error)

    return operation


class SlowLogged(Observed, operation=_logged):
    """Logs each operation that takes `slow_s` or longer."""

    def __init__(self, below: Backend, engine: str, clock: Clock, *, slow_s: float) -> None:
        super().__init__(below, engine, clock)
        self.slow_s = slow_s
