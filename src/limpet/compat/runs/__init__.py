"""Run checkpoints: the `session.Store` of a Go agent on every engine, and its own files.

One current checkpoint for each run, overwritten after each iteration and deleted at the end::

    from limpet.compat.runs import Checkpoint, RunStore

    with RunStore("runs") as runs:
        runs.save(Checkpoint("nightly-1", iteration=3, messages=messages))
        messages = runs.load("nightly-1").messages     # after a crash: the same

`RunStore` is sync, `AsyncRunStore` its async twin; both take a folder, a URL or a store.
`GoRunStore` reads and writes the files of the Go store, shared with Go processes. `import_runs` and
`export_runs` convert between the two.

`docs/guides/run_checkpoints.md` lists where each thing is stored, so that other programs, above all
`limpet.runs`, see it.

What other programs saved for a run loads as well: missing fields have their defaults, and values
that cannot be fields are in `extra["state"]`. A save replaces the head with its labels, metadata
and status, even if `limpet.runs` has a worker on that run, or the run was aborted. Use one of the
two for a run, or one after the other.
"""

from limpet.compat.runs.go import GoRunStore, export_runs, import_runs
from limpet.compat.runs.records import Checkpoint
from limpet.compat.runs.store import AsyncRunStore, RunStore
from limpet.compat.wire import Transfer

__all__ = [
    "AsyncRunStore",
    "Checkpoint",
    "GoRunStore",
    "RunStore",
    "Transfer",
    "export_runs",
    "import_runs",
]
