"""Threads from the tables of LangGraph's own savers: `SqliteSaver` and `PostgresSaver`.

Synchronous, for either face of a store; from async code `await store.run(lambda store: …)`. Every
checkpoint comes with its id, parent, metadata, values and versions, and with what tasks wrote, in
all namespaces: `LimpetSaver` then answers as the other saver does, and a graph goes on where it
was left. What is there already is replaced by the same, so that an import may be repeated, or taken
up again after it was stopped. What cannot be carried over is told, and does not stop the rest.

Nothing is changed in the tables, which may be in use: each thread is read as it is at one moment.
One checkpoint is in memory at a time.
"""

import os
from collections.abc import Iterable

from langgraph.checkpoint.serde.base import SerializerProtocol

from limpet.api.store import AsyncStore, Store
from limpet.api.verbs import check_prefix
from limpet.compat.langgraph.allowed import Allow
from limpet.compat.langgraph.migrate import sqlite
from limpet.compat.langgraph.migrate.importing import Import, Tables
from limpet.compat.langgraph.migrate.strict import strict
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
    of writes. As with `LimpetSaver`, classes of your own must be listed in `allow`: what the
    file names is never imported or called otherwise. `serde` is the serializer that the values
    were saved with, as one that encrypts; they are stored through it again.

    A checkpoint that holds something refused is skipped, and told (`snapshot_skipped`), and so is
    all that a task wrote if a part of it is refused (`writes_skipped`): LangGraph runs it again.

    Raises:
        NotFound: there is no such file, or none of the tables is in it.
        InvalidInput: it is no database of SQLite.
        Unsupported: the tables are those of another saver.
    """
    check_prefix(prefix)
    listed = list(allow)
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

    `url` is what that saver was given: `postgresql://user@host/database`, or what else libpq takes.
    The store may be in the same database. The transactions cannot write, and the role need not.

    Raises:
        NotFound: none of the tables is in the database, or not on the search path.
        InvalidInput: the URL is not understood.
        Unavailable: the server did not answer.
        Unsupported: the tables are those of another saver, or psycopg is not installed.
    """
    check_prefix(prefix)
    listed = list(allow)
    try:
        from limpet.compat.langgraph.migrate import postgres
    except ImportError as cause:
        raise Unsupported("PostgreSQL needs an extra: pip install 'limpet[postgres]'") from cause
    with postgres.opened(url) as tables:
        return _imported(store, tables, prefix, listed, serde)


def _imported(
    store: Store | AsyncStore,
    tables: Tables,
    prefix: str,
    allow: Iterable[type | tuple[str, ...]],
    serde: SerializerProtocol | None,
) -> Transfer:
    saver = LimpetSaver(store, serde=serde, allow=allow)
    return Import(tables, saver, strict(serde, allow)).threads(prefix)
