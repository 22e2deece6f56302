"""Sessions of Genkit agents: its `SessionStore` on every engine, and its own files.

An agent keeps a snapshot of each turn; any process may read it, stop its run, or continue it::

    from limpet.compat.genkit import SessionStore

    async with limpet.open_async("sqlite:///agents.db") as store:
        sessions = SessionStore(store)
        id = await sessions.save_snapshot(None, lambda _: {"sessionId": "s", "state": state})
        latest = await sessions.get_snapshot(session_id="s")

`JsonFileSessionStore` has the same methods over the folder of the real package, shared with Node;
`import_sessions` imports such a folder into a store, and `export_sessions` writes one.

How the terms translate, so that other programs see what is saved here, and the reverse:

| Genkit                        | Limpet                                                       |
|-------------------------------|----------------------------------------------------------------|
| `sessionId`                   | session; the scope is `main`, of kind `agent`                  |
| the tenant, from the context  | a prefix of the session, `tenant/session`, each with `%` and   |
|                               | `/` inside escaped as in URLs                                  |
| a snapshot                    | a kept snapshot with its id; a new one becomes the head        |
| `status`, `parentId`, `state` | status, parent, state                                          |
| the other fields              | `metadata["genkit"]`, unchanged                                |

By its id a snapshot is found in any scope of kind `agent`, `main` first. A session without a
snapshot of ours shows the head that another program saved, also a draft. A session whose name has a
`/` belongs to a tenant; one in which `%` is not part of an escape is not visible: rename it.

Where the real package (npm, 1.42.0) deviates from its documentation, or loses data, this one does
not. `F` is about its files, and applies to `JsonFileSessionStore`:

|     | Genkit                                                  | Limpet                           |
|-----|---------------------------------------------------------|----------------------------------|
| 1   | F: its lock has no effect: 50 increments make 1         | every one counts, in any process |
| 2   | a detached run becomes its own parent, and its result   | it keeps its parent; in rows of  |
|     | is skipped, or the session has no latest                | Genkit the parent is unknown     |
| 3   | F: pruning after such a run never ends                  | it ends                          |
| 4   | a rewrite of such a row restores its old state          | it has the given state           |
| 5   | a rewrite of an earlier row changes later rows          | no other row changes             |
| 6   | `createdAt` changes when a run ends                     | it stays                         |
| 7   | F: watching `../alice/x` shows a snapshot of Alice      | nothing crosses tenants          |
| 8   | F: a tenant `../x` is outside the folder                | InvalidInput; here any name      |
| 9   | F: a refused save has been written already              | nothing is written               |
| 10  | F: one bad file breaks every session                    | it is skipped, and reported      |
| 11  | a callback that raises ends the process, or rejects the | it is logged                     |
|     | save that was stored                                    |                                  |
| 12  | one that unsubscribes hides a change from the next      | all are called                   |
| 13  | F: pruning a branch removes the root of others          | a branch keeps its root          |
| 14  | with branches refused, a turn that failed and was tried | a failed or aborted turn is no   |
|     | again blocks the session for ever                       | branch                           |
| 15  | which branch is the latest depends on the store         | the one created last; in files,  |
|     |                                                         | as in Genkit, the last new one   |
| 16  | times are compared as text, ties depend on the store    | as times; ties by the id         |
| 17  | a mutator that returns undefined or a promise destroys  | InvalidInput; a promise is       |
|     | the row; an existing id is silently overwritten         | awaited; AlreadyExists           |
| 18  | ended rows change status, and move to other sessions    | Conflict; InvalidInput           |
| 19  | a lost context leads to the sessions of all             | to those without a tenant        |
| 20  | F: reading creates folders; nothing is synced           | it does not; every save is       |
| 21  | nothing is listed, deleted, or read without its state   | `scope` and `get_metadata`       |
"""

from limpet.compat.genkit.node_files.store import JsonFileSessionStore
from limpet.compat.genkit.records import SessionSnapshot
from limpet.compat.genkit.store import SessionStore
from limpet.compat.genkit.transfer import export_sessions, import_sessions
from limpet.compat.wire import ABSENT, Transfer

__all__ = [
    "ABSENT",
    "JsonFileSessionStore",
    "SessionSnapshot",
    "SessionStore",
    "Transfer",
    "export_sessions",
    "import_sessions",
]
