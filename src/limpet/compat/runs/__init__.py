"""Run checkpoints: the `session.Store` of a Go agent on every engine, and its own files.

One current checkpoint for each run, overwritten after each iteration and deleted at the end::

    from limpet.compat.runs import Checkpoint, RunStore

    with RunStore("runs") as runs:
        runs.save(Checkpoint("nightly-1", iteration=3, messages=messages))
        messages = runs.load("nightly-1").messages     # after a crash: the same

`RunStore` is synchronous and `AsyncRunStore` its twin; both take a folder, a URL or a store.
`GoRunStore` reads and writes the files of the Go store, beside a Go process. `import_runs` and
`export_runs` go between the two.

How the words translate, and where what is saved is seen by others, by `limpet.runs` above all:

| the Go store                     | Limpet                                                |
|----------------------------------|---------------------------------------------------------|
| `run_id`                         | session; the scope is `main`, of kind `run`             |
| the one checkpoint of a run      | the head, saved with `keep=False` and status `running`  |
| `messages`, `system_prompt`      | the state, with fields that are none of the eight       |
| `task_name`                      | the label `task_name`, unless it is empty               |
| `iteration`, the tokens          | metadata                                                |
| `created_at`                     | metadata, as it was written                             |

What others saved at that address loads as well: missing fields have their defaults, and what
cannot be a field stands in `extra["state"]`. A save replaces whatever is there, with its labels,
its metadata and its status: it does not ask whether `limpet.runs` has a worker on that run, or
had it aborted. Use one of the two for a run, or let one begin where the other has ended.

Where the Go store does something else than it documents, or loses data, we do the better thing:

| there                                                     | here                              |
|-----------------------------------------------------------|-----------------------------------|
| List reads and parses every file whole                    | at most 16 KB of what was saved   |
| List returns the system prompt                            | it is state: `load` it            |
| checkpoints of one moment are listed in any order         | last saved first, then by run_id  |
| savers of one run collide, and fail                       | all succeed; one of them stays    |
| a save is lost if the power fails                         | it is synced first                |
| Load and Save again sort keys, round numbers, drop blocks | messages are kept exactly         |
| unknown fields are dropped                                | they are kept, in `extra`         |
| `../x` as run_id leads out of the folder                  | InvalidInput (in `GoRunStore`)    |
| everybody can read the files                              | their owner can                   |
| a damaged file is left out of List, and nobody is told    | `check` tells                     |
| and the next Save overwrites it                           | it is set aside first             |
| a file that holds `null` loads as an empty checkpoint     | Corrupt                           |
| HasCheckpoint is true for a folder                        | it is not                         |
| Delete removes an empty folder `<run_id>.json`            | it leaves it alone                |
| the run_id inside a file counts, whatever its name        | the name, by which it is found    |
| Save keeps a zero `created_at`                            | an empty one becomes the present  |
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
