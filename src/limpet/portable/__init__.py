"""Export a store as lines of JSON, import them, and copy between any two engines.

    with limpet.open("sqlite:///agents.db") as store, open("agents.jsonl", "wb") as file:
        file.writelines(portable.export_lines(store))

    with limpet.open("postgresql://…") as store, open("agents.jsonl", "rb") as file:
        portable.import_lines(store, file)

    portable.copy(store, other)

The lines do not depend on the engine: they have no revisions, sizes or paths, and are ordered by
session, kind, scope and commit, so that stores with the same content give the same bytes.
docs/format.md specifies the format. Everything streams: memory does not grow with history.
Synchronous; from async code `await store.run(lambda store: …)`.
"""

from limpet.portable.backups import backup, restore
from limpet.portable.copying import Carried, copy, import_lines
from limpet.portable.reading import Progress, export_lines
from limpet.portable.records import VERSION

__all__ = [
    "VERSION",
    "Carried",
    "Progress",
    "backup",
    "copy",
    "export_lines",
    "import_lines",
    "restore",
]
