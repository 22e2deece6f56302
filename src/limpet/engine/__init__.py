"""The engine: every decision about snapshots, notes and leases, made once, over any `Storage`.

`engine.py` has the methods of `limpet.protocol.Backend`. A method that writes is a pure function
from what a `Reader` shows to a `Change`: `saving.py` for commits, `editing.py` for what replaces or
removes stored states, `noting.py` for notes and leases, `rolling.py` for the step that moves the
tail into a segment, also in a thread. `states.py` reads states and chooses
how they are stored.
"""

from collections.abc import Callable
from typing import Any, Literal

from limpet.core import limits
from limpet.engine import rolling
from limpet.engine.engine import Engine
from limpet.engine.states import States
from limpet.protocol import Clock, Stamp
from limpet.storage import Storage

__all__ = ["Engine", "open_engine"]


def open_engine(
    storage: Callable[..., Storage],
    place: Any,
    *,
    clock: Clock,
    draw: Callable[[], Stamp],
    rolls: Literal["background", "inline"] = "inline",
    tails: rolling.Limits = rolling.LIMITS,
    cache_bytes_max: int = limits.CACHE_BYTES_MAX,
    **options: Any,
) -> Engine:
    """Open a storage, with its options, and an engine over it."""
    opened = storage(place, clock=clock, states=States, **options)
    return Engine(
        opened, clock=clock, draw=draw, tails=tails, rolls=rolls, cache_bytes_max=cache_bytes_max
    )
