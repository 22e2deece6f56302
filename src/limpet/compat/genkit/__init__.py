"""Sessions of Genkit agents: its `SessionStore` on every engine, and its own files.

An agent keeps a snapshot of each turn; any process may read it, stop its run, or continue it::

    from limpet.compat.genkit import SessionStore

    async with limpet.open_async("sqlite:///agents.db") as store:
        sessions = SessionStore(store)
        id = await sessions.save_snapshot(None, lambda _: {"sessionId": "s", "state": state})
        latest = await sessions.get_snapshot(session_id="s")

`python.LimpetGenkitStore` is the same for agents of Genkit's package for Python, with its own
snapshots. `JsonFileSessionStore` has the methods of `SessionStore` over the folder of the package
for JavaScript, shared with Node; `import_sessions` imports such a folder into a store, and
`export_sessions` writes one.

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

`docs/guides/genkit.md` lists where it differs from the original.
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
