"""Sessions from the folder of Genkit's own file store, and back into such a folder.

Synchronous, for either face of a store; from async code `await store.run(lambda store: …)`. What is
there already is replaced, so that both may be repeated. What cannot be carried over is told, and
does not stop the rest. One state is in memory at a time.

| below the folder           | session          | written by                                      |
|----------------------------|------------------|-------------------------------------------------|
| `global/<snapshot>.json`   | `session`        | JavaScript and Go, where there are no tenants   |
| `<tenant>/<snapshot>.json` | `tenant/session` | JavaScript and Go; folders may be in each other |
| `<snapshot>.json`          | `session`        | Python                                          |
"""

import os

from limpet.aio import AsyncStore
from limpet.compat.genkit.exporting import Export
from limpet.compat.genkit.importing import Import
from limpet.compat.place import folder_of
from limpet.compat.transfer import Transfer
from limpet.errors import InvalidInput, NotFound
from limpet.steps import check_prefix
from limpet.store import Store


def import_sessions(
    store: Store | AsyncStore, dir: str | os.PathLike[str], *, prefix: str = ""
) -> Transfer:
    """Bring the sessions whose names begin with `prefix` into a store; count the snapshots.

    The names are those that they get: `alice/` are all of a tenant. Every row comes with its id,
    parent, status and time, and its other fields in `metadata["genkit"]`; history is in the order
    in which they were made, and the latest of a session becomes its head. So `SessionStore` answers
    as `JsonFileSessionStore` does over the folder, except that a row always has a session and a
    status, and that of several branches the latest is the one made last, wherever a pointer leads:
    that is told (`latest_differs`). A row of no session cannot be kept, and is told as well.

    Nothing in the folder changes. It may be in use: what is written meanwhile may be missed.

    Raises:
        NotFound: there is no such folder.
    """
    target, folder = _sync(store), folder_of(dir)
    check_prefix(prefix)
    if not os.path.isdir(folder):
        raise NotFound(f"there is no such folder. path=`{folder}`")
    return Import(target, prefix).folder(folder)


def export_sessions(
    store: Store | AsyncStore, to: str | os.PathLike[str], *, prefix: str = ""
) -> Transfer:
    """Write the sessions whose names begin with `prefix` as files of Genkit; count the snapshots.

    They are the very files that the real package writes, each under its id, with a pointer to the
    latest of every session; the folder may be new. What Genkit knows is the scope `main` of kind
    `agent` and what is kept in it: other scopes, drafts, and names that no file can have are left
    out, and told.
    """
    origin, folder = _sync(store), folder_of(to)
    return Export(folder).sessions(origin, prefix)


def _sync(store: object) -> Store:
    if not isinstance(store, Store | AsyncStore):
        raise InvalidInput(f"sessions need a store. type=`{type(store).__name__}`")
    return store.sync
