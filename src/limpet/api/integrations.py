"""The interface for integrations: what an adapter may use besides the public names.

An adapter translates the storage interface of a framework into calls of an opened store. It imports
the public names (from `limpet`, `limpet.model` and `limpet.errors`), `limpet.opening`,
`limpet.runs`, and what is listed here; an import contract in `pyproject.toml` keeps it so.

Most adapters need only `store.scope(…)` and the names for ids and limits. One that makes several
calls as one step gives them to `store.driver` or `scope.driver`, which run them for the sync API in
the caller's thread and for the async API in a pool:

    def latest(scope: ScopeKey) -> Work[SnapshotInfo | None]:
        return lambda backend: backend.read_info(scope, None)

    found = store.driver.run(latest(scope.key))

- To run calls: `Driver` and `AsyncDriver`. `Work` is one call, `Steps` are several, a `Walk` is a
  listing; the modules `verbs` and `upkeep` have some. `Ask` calls a function of the caller,
  `Pause` waits, `contend` repeats what another writer overtook, `Tools` has the clock, the
  randomness and the limit of a state. `awaited` makes the async twin of a method.
- What an engine takes and returns: `Backend`, `Commit`, `Found`, `FoundNote`, `NoteChange`,
  `NoteDelete`, `NoteQuery`, `NoteWrite`, `Query`, `Stamp`. The module `prepare` makes them of
  checked arguments.
- States as bytes: the modules `codec` and `delta`.
- Ids, times and arguments: `new_id`, the modules `ids`, `limits`, `matching`, `retention`, `times`,
  `check_prefix`.
- Leases: `Claim`, `Hold`, the module `leases`.
- Files of other programs: `Bucket`, `Listed`, `Moved`, `Stored` (what `opening.open_files`
  returns), `NOTHING`, `TEMPORARY`, `failure`, `is_text`, `layout_of`, `LayoutName`.
- In this process: `Recent` is the bounded cache, `Backoff` the retry loop; `Clock`, `Opened`,
  `start_thread`.
- What an import or a check reports: `finding`.
"""

from limpet.api import leases, upkeep, verbs
from limpet.api.driver import AsyncDriver, Driver, awaited
from limpet.api.opened import Opened, Tools, start_thread
from limpet.api.verbs import Ask, Pause, Steps, Walk, Work, check_prefix, contend
from limpet.backends.buckets import (
    NOTHING,
    TEMPORARY,
    Bucket,
    Listed,
    Moved,
    Stored,
    failure,
    is_text,
)
from limpet.backends.support.backoff import Backoff
from limpet.backends.support.recent import Recent
from limpet.core import codec, ids, limits, matching, prepare, retention, times
from limpet.core.deltas import delta
from limpet.core.findings import finding
from limpet.core.foreign import LayoutName, layout_of
from limpet.protocol import (
    Backend,
    Claim,
    Clock,
    Commit,
    Found,
    FoundNote,
    Hold,
    NoteChange,
    NoteDelete,
    NoteQuery,
    NoteWrite,
    Query,
    Stamp,
)

__all__ = [
    "NOTHING",
    "TEMPORARY",
    "Ask",
    "AsyncDriver",
    "Backend",
    "Backoff",
    "Bucket",
    "Claim",
    "Clock",
    "Commit",
    "Driver",
    "Found",
    "FoundNote",
    "Hold",
    "LayoutName",
    "Listed",
    "Moved",
    "NoteChange",
    "NoteDelete",
    "NoteQuery",
    "NoteWrite",
    "Opened",
    "Pause",
    "Query",
    "Recent",
    "Stamp",
    "Steps",
    "Stored",
    "Tools",
    "Walk",
    "Work",
    "awaited",
    "check_prefix",
    "codec",
    "contend",
    "delta",
    "failure",
    "finding",
    "ids",
    "is_text",
    "layout_of",
    "leases",
    "limits",
    "matching",
    "new_id",
    "prepare",
    "retention",
    "start_thread",
    "times",
    "upkeep",
    "verbs",
]


def new_id(tools: Tools) -> str:
    """Return a new id, like those that a store gives to snapshots: a UUIDv7."""
    stamp = tools.draw()
    return ids.mint(stamp.now, stamp.bits, "")
