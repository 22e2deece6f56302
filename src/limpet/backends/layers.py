"""The layers that a store is opened with: each has the interface of an engine, and is over one."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from limpet.errors import Unsupported
from limpet.protocol import Backend, Clock


def observer(options: Mapping[str, Any], engine: str, clock: Clock) -> Callable[[Backend], Backend]:
    """Return what adds the layers that are asked for; without any, the backend itself."""
    layers: list[Callable[..., Any]] = []
    if "slow_s" in options:
        from limpet.backends.observed import SlowLogged

        layers.append(partial(SlowLogged, slow_s=options["slow_s"]))
    if options.get("otel"):
        try:
            from limpet.backends.telemetry import Traced
        except ImportError:
            raise Unsupported("otel needs an extra: pip install 'limpet[otel]'") from None
        layers.append(Traced)  # outside, so that a line in the log belongs to its span

    def observe(backend: Backend) -> Backend:
        for layer in layers:
            backend = layer(backend, engine, clock)
        return backend

    return observe
