"""Everything a store holds as lines of JSON, and from any engine to any other.

    with limpet.open("sqlite:///agents.db") as store, open("agents.jsonl", "wb") as file:
        file.writelines(portable.export_lines(store))

    with limpet.open("postgresql://…") as store, open("agents.jsonl", "rb") as file:
        portable.import_lines(store, file)

    portable.copy(store, other)

The lines hold nothing of the engine: no places, revisions, sizes or paths. They come by session,
kind, scope and the order of commits, so that two stores that hold the same give the same bytes. The
format is in docs/format.md. All of it streams: memory does not grow with history. Synchronous; from
async code `await store.run(lambda store: …)`.
"""

from limpet.portable.copying import Carried, copy, import_lines
from limpet.portable.reading import Progress, export_lines
from limpet.portable.records import VERSION

__all__ = ["VERSION", "Carried", "Progress", "copy", "export_lines", "import_lines"]
