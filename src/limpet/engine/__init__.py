"""The engine: every decision about snapshots, notes and leases, made once, over any `Storage`.

`engine.py` has the methods of `limpet.protocol.Backend`. A method that writes is a pure function
from what a `Reader` shows to a `Change`: `saving.py` for commits, `editing.py` for what replaces or
removes stored states, `noting.py` for notes and leases, `rolling.py` for the step that moves the
tail into a segment, which `background.py` does in a thread. `states.py` reads states and chooses
how they are stored.
"""

from limpet.engine.engine import Engine, open_engine

__all__ = ["Engine", "open_engine"]
