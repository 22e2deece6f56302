"""The simulation: the real engines over storage in memory, under a scheduler that a seed decides.

`objects` is the engine over a bucket, `scopes` the one over a storage of scopes. A few processes
save, update, delete and read in one store. Every request to the storage is one step, and between
any two steps the others may go on, for long. Processes die, answers are lost, requests
arrive late. Then everything is read again, and the record of all answers is checked against the
promises: is there an order of the operations that explains it? A failing run prints its trace and
how to replay it::

    python -m simulation --runs 100000 --jobs 2
    python -m simulation --engine scopes --scenario B --mode lost --seed 55 --trace

`sabotage` breaks the engine in the ways that obvious designs are wrong, to show that the checker
would notice. To put an engine of your own over buckets to the test, pass its opener to `simulate`.

What the checker does not check: `list_sessions`, `list_scopes`, `store.history`, statistics,
`leaves` and `status` in queries; times; the order of listings over many scopes; parents where a
draft is involved; how long a lease lasts; ids so long that keys clip them; listings of more than
one page of the bucket. What it lets pass on purpose names the number in docs/format.md, "What these
engines do not promise", that says so.
"""

from simulation.faults import ASSERTED, MODES
from simulation.run import Run, simulate
from simulation.sabotage import ENGINES, SABOTAGES, sabotaged
from simulation.scenarios import SCENARIOS

__all__ = [
    "ASSERTED",
    "ENGINES",
    "MODES",
    "SABOTAGES",
    "SCENARIOS",
    "Run",
    "sabotaged",
    "simulate",
]
