"""Run checkpoints: the `session.Store` of a Go agent on every engine, and its own files.

One current checkpoint for each run, overwritten after each iteration and deleted at the end::

    from limpet.compat.runs import Checkpoint, RunStore

    with RunStore("runs") as runs:
        runs.save(Checkpoint("nightly-1", iteration=3, messages=messages))
        messages = runs.load("nightly-1").messages     # after a crash: the same

`RunStore` is sync, `AsyncRunStore` its async twin; both take a folder, a URL or a store.
`GoRunStore` reads and writes the files of the Go store, shared with Go processes. `import_runs` and
`export_runs` convert between the two.

How the terms translate, so that other programs, above all `limpet.runs`, see what is saved:

| the Go store                     | Limpet                                                |
|----------------------------------|---------------------------------------------------------|
| `run_id`                         | session; the scope is `main`, of kind `run`             |
| the one checkpoint of a run      | the head, saved with `keep=False` and status `running`  |
| `messages`, `system_prompt`      | the state, together with unknown fields                 |
| `task_name`                      | the label `task_name`, unless it is empty               |
| `iteration`, the tokens          | metadata                                                |
| `created_at`                     | metadata, as it was written                             |

What other programs saved for a run loads as well: missing fields have their defaults, and values
that cannot be fields are in `extra["state"]`. A save replaces the head with its labels, metadata
and status, even if `limpet.runs` has a worker on that run, or the run was aborted. Use one of the
two for a run, or one after the other.

Where the Go store deviates from its documentation, or loses data, Limpet does not:

| the Go store                                              | Limpet                            |
|-----------------------------------------------------------|-----------------------------------|
| List reads and parses every file whole                    | at most 16 KB of what was saved   |
| List returns the system prompt                            | it is state: `load` returns it    |
| checkpoints of the same time are listed in any order      | last saved first, then by run_id  |
| concurrent saves of one run collide, and fail             | all succeed; the last one stays   |
| a save is lost if the power fails                         | it is synced first                |
| Load and Save again sort keys, round numbers, drop blocks | messages are kept exactly         |
| unknown fields are dropped                                | they are kept, in `extra`         |
| `../x` as run_id leads out of the folder                  | InvalidInput (in `GoRunStore`)    |
| all users can read the files                              | only the owner can                |
| a damaged file is left out of List, without a report      | `check` reports it                |
| and the next Save overwrites it                           | it is renamed first               |
| a file that holds `null` loads as an empty checkpoint     | Corrupt                           |
| HasCheckpoint is true for a folder                        | false                             |
| Delete removes an empty folder `<run_id>.json`            | it does not                       |
| the run_id inside a file counts, not the file name        | the file name counts              |
| Save keeps a zero `created_at`                            | an empty one becomes the time now |
"""

from limpet.compat.runs.checkpoint import Checkpoint
from limpet.compat.runs.go import GoRunStore
from limpet.compat.runs.store import AsyncRunStore, RunStore
from limpet.compat.runs.transfer import export_runs, import_runs
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
