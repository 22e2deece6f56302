"""`import_sqlite` and `import_postgres`: threads from LangGraph's own savers.

Synchronous, for a `Store` or an `AsyncStore`; from async code `await store.run(lambda store: …)`.
Every checkpoint is imported with its id, parent, metadata, values, versions and pending writes, in
all namespaces: a graph continues where it stopped. An import may be repeated, also after it was
interrupted. What cannot be imported is reported, and does not stop the rest.

The tables are only read and may be in use: each thread is read in one transaction.
"""

import os

from langgraph.checkpoint.serde.base import SerializerProtocol

from limpet.api.store import AsyncStore, Store
from limpet.api.verbs import check_prefix
from limpet.compat.langgraph.allowed import Allow, items_of
from limpet.compat.langgraph.migrate import sqlite
from limpet.compat.langgraph.migrate.checked_serde import checked
from limpet.compat.langgraph.migrate.importing import SaverTables, TableImport
from limpet.compat.langgraph.saver import LimpetSaver
from limpet.compat.wire import Transfer, folder_of
from limpet.errors import Unsupported


def import_sqlite(
    store: Store | AsyncStore,
    path: str | os.PathLike[str],
    *,
    prefix: str = "",
    allow: Allow = (),
    serde: SerializerProtocol | None = None,
) -> Transfer:
    """Bring the threads whose ids begin with `prefix` into a store; count the checkpoints.

    `path` is the file of a `SqliteSaver` or an `AsyncSqliteSaver`, of any version that has a table
    of writes. As with `LimpetSaver`, your own classes must be listed in `allow`: no other class
    that the file names is imported or called. `serde` is the serializer that the values were saved
    with, such as one that encrypts; they are stored through it again.

    A checkpoint with a value that is refused is skipped and reported (`snapshot_skipped`). If a
    write of a task is refused, all of that task are (`writes_skipped`): LangGraph runs it again.

    Raises:
        NotFound: the file does not exist, or a table is missing.
        InvalidInput: the file is not a SQLite database.
        Unsupported: the tables have another layout.
    """
    check_prefix(prefix)
    listed = items_of(allow)
    with sqlite.opened(folder_of(path)) as tables:
        return _imported(store, tables, prefix, listed, serde)


def import_postgres(
    store: Store | AsyncStore,
    url: str,
    *,
    prefix: str = "",
    allow: Allow = (),
    serde: SerializerProtocol | None = None,
) -> Transfer:
    """Do what `import_sqlite` does, for the tables of a `PostgresSaver`.

    `url` is `postgresql://user@host/database`, or another connection string of libpq. The store may
    be in the same database. The transactions are read-only, and SELECT is all the role needs.

    Raises:
        NotFound: a table is missing, or not on the search path.
        InvalidInput: the URL is not valid.
        Unavailable: the server did not answer.
        Unsupported: the tables have another layout, or psycopg is not installed.
    """
    check_prefix(prefix)
    listed = items_of(allow)
    try:
        from limpet.compat.langgraph.migrate import postgres
    except ImportError:
        raise Unsupported("PostgreSQL needs an extra: pip install 'limpet[postgres]'") from None
    with postgres.opened(url) as tables:
        return _imported(store, tables, prefix, listed, serde)


def _imported(
    store: Store | AsyncStore,
    tables: SaverTables,
    prefix: str,
    allow: Allow,
    serde: SerializerProtocol | None,
) -> Transfer:
    saver = LimpetSaver(store, serde=serde, allow=allow)
    return TableImport(tables, saver, checked(serde, allow)).threads(prefix)
