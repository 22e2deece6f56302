"""Documents that another tool wrote: what they say, in the words of our own header.

They have no line, so they count in whatever life of the scope; no place, so they stand in history
by their own time; no revision, so that is the hash of their bytes.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from zlib import crc32

from limpet.core import codec, ids, times
from limpet.core.document import FACADE, Document, Header
from limpet.errors import InvalidInput
from limpet.model import JSON

STATUS = "completed"  # what a save says by default


def header_of(document: Document, *, id: str | None, digest: str, modified: int) -> Header:
    """Return the header that a foreign document would have; `id` is None for a head.

    `digest` is 16 hexadecimal digits of a hash of its bytes, `modified` when it was stored.
    """
    created = created_us(document.envelope)
    created = modified if created is None else created
    named = f"latest-{digest}" if id is None else id
    seq = ids.place(_moment(created, named), 0, crc32(named.encode()))
    return Header(
        id=named,
        line=None,
        seq=seq,
        rev=0,
        nonce=digest,
        born=digest,
        w=digest,
        created_at=created,
        updated_at=created,
        at=ids.place_us(seq) // 1000,
        size=len(document.body),
        last=seq,
        kept=id is not None,
        status=STATUS,
        metadata=codec.encode({FACADE: document.envelope}),
    )


def created_us(envelope: Mapping[str, JSON]) -> int | None:
    """Return when a document says that it was made: the two SDKs spell it differently."""
    text = envelope.get("createdAt", envelope.get("created_at"))
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
        aware = moment if moment.utcoffset() is not None else moment.replace(tzinfo=UTC)
        return times.to_us("createdAt", aware)
    except (ValueError, OverflowError, InvalidInput):  # whatever it may be, it is not a time
        return None


def _moment(created: int, id: str) -> int:
    """Return when it takes its place in history.

    They bear milliseconds, in which many may be made. A UUIDv7 says which came first; others are
    kept apart.
    """
    if created % 1000:
        return created
    part = crc32(id.encode()) >> 20 if ids.time_ms_of(id) is None else int(id[15:18], 16)
    return created + part * 1000 // 4096
