"""Sessions of Genkit agents: its `SessionStore` on every engine.

An agent keeps a snapshot of each turn; any process may read it, stop its run, or continue it::

    from limpet.compat.genkit import SessionStore

    async with limpet.open_async("sqlite:///agents.db") as store:
        sessions = SessionStore(store)
        id = await sessions.save_snapshot(None, lambda _: {"sessionId": "s", "state": state})
        latest = await sessions.get_snapshot(session_id="s")

`python.LimpetGenkitStore` is the same for agents of Genkit's package for Python, with its own
snapshots. `import_sessions` imports the folder of a package's own file store, and `export_sessions`
writes one.

`docs/guides/genkit.md` lists where each thing is stored, so that other programs see it.
"""

from limpet.compat.genkit.records import SessionSnapshot
from limpet.compat.genkit.store import SessionStore
from limpet.compat.genkit.transfer import export_sessions, import_sessions
from limpet.compat.wire import ABSENT, Transfer

__all__ = [
    "ABSENT",
    "SessionSnapshot",
    "SessionStore",
    "Transfer",
    "export_sessions",
    "import_sessions",
]
