"""Sessions of Genkit agents: its `SessionStore` on every engine, and its own files.

An agent keeps a snapshot of each turn, and everybody may look at one, stop its run, or go on::

    from limpet.compat.genkit import SessionStore

    async with limpet.open_async("sqlite:///agents.db") as store:
        sessions = SessionStore(store)
        id = await sessions.save_snapshot(None, lambda _: {"sessionId": "s", "state": state})
        latest = await sessions.get_snapshot(session_id="s")

`JsonFileSessionStore` has the same verbs over the folder of the real package, beside Node;
`import_sessions` brings what is in such a folder into a store, and `export_sessions` back.

How the words translate, so that what is saved here is seen by others, and theirs here:

| Genkit                        | Limpet                                                       |
|-------------------------------|----------------------------------------------------------------|
| `sessionId`                   | session; the scope is `main`, of kind `agent`                  |
| the tenant, from the context  | a prefix of the session, `tenant/session`, each with `%` and   |
|                               | `/` inside escaped as in URLs                                  |
| a snapshot                    | a kept snapshot with its id; a new one becomes the head        |
| `status`, `parentId`, `state` | status, parent, state                                          |
| everything else in it         | `metadata["genkit"]`, word for word                            |

By its id a snapshot is found in whatever scope of kind `agent`, `main` first. A session without a
snapshot of ours has that which others show there, also a draft. A session whose name holds a `/` is
a tenant's, and one in which `%` is not part of an escape is nobody's: rename it to see it here.

Where the real package (npm, 1.42.0) does something else than it documents, or loses data, we do the
better thing. `F` is about its files, and holds for `JsonFileSessionStore`:

|     | there                                                   | here                             |
|-----|---------------------------------------------------------|----------------------------------|
| 1   | F: its lock does not lock: 50 increments make 1         | every one counts, in any process |
| 2   | a detached run becomes its own parent, and its result   | it keeps its parent; in rows of  |
|     | is passed over, or the session has no latest            | theirs the parent is unknown     |
| 3   | F: pruning behind such a run never ends                 | it does                          |
| 4   | a rewrite of such a row brings its old state back       | it has the state it was given    |
| 5   | a rewrite of an earlier row changes what follows        | no other row changes             |
| 6   | `createdAt` changes when a run ends                     | it stays                         |
| 7   | F: watching `../alice/x` shows what is Alice's          | nothing crosses tenants          |
| 8   | F: a tenant `../x` is outside the folder                | InvalidInput; here any name      |
| 9   | F: what is refused is written before                    | it leaves nothing                |
| 10  | F: one bad file breaks every session                    | it is passed over, and reported  |
| 11  | a callback that raises ends the process, or rejects the | it is logged                     |
|     | save that was stored                                    |                                  |
| 12  | one that unsubscribes hides a change from the next      | all are called                   |
| 13  | F: pruning a line takes what other branches stand on    | a branch keeps its root          |
| 14  | with branches refused, a turn that failed and was tried | what failed or was aborted is no |
|     | again refuses the session for good                      | branch                           |
| 15  | which branch is the latest depends on the store         | the one made last; in its files, |
|     |                                                         | as there, the last new one       |
| 16  | times are compared as text, ties go by the store        | as times; ties by the id         |
| 17  | a mutator that returns undefined or a promise destroys  | InvalidInput; a promise is       |
|     | the row; a taken id is overwritten unseen               | awaited; AlreadyExists           |
| 18  | ended rows go on, and move to other sessions            | Conflict; InvalidInput           |
| 19  | a context that is lost leads to what all share          | to what nobody owns              |
| 20  | F: reading makes folders; nothing is synced             | it does not; every save is       |
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
