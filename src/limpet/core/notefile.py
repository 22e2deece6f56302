r"""The document of a note on directories and object stores.

    {"limpet":{"sum":<hex>,"name":…,"rev":…,"nonce":…,"updated_at":…,…},"value":<value>}

`sum` covers everything behind it. A value with integers beyond 64 bits keeps the space that marks
it (see `codec`). `trail` holds the nonces of the last writes, as in a snapshot's document; the ids
are there where the key has them clipped.
"""

from typing import Any, NamedTuple

import orjson

from limpet.core import codec, times
from limpet.core.notes import NoteRow
from limpet.errors import Corrupt

_OPENING = b'{"limpet":{"sum":"'
_SPLIT = b'},"value":'


class NoteFile(NamedTuple):
    """A note with what its document adds: the last nonces, and ids that the key has clipped."""

    row: NoteRow
    trail: tuple[str, ...] = ()
    session_id: str | None = None
    scope_id: str | None = None


def write(file: NoteFile) -> bytes:
    """Return the document of a note."""
    row = file.row
    facts: dict[str, Any] = {
        "name": row.name,
        "on": row.on or None,
        "rev": row.rev,
        "nonce": row.nonce,
        "updated_at": row.updated_at,
        "trail": file.trail or None,
        "session_id": file.session_id,
        "scope_id": file.scope_id,
    }
    given = orjson.dumps({key: value for key, value in facts.items() if value is not None})
    rest = b'",%s%s%s}' % (given[1:-1], _SPLIT, row.value)
    return b"%s%s%s" % (_OPENING, _sum(rest), rest)


def read(stored: bytes) -> NoteFile:
    """Return the note, or raise Corrupt if the bytes are not those that were written."""
    behind = stored[len(_OPENING) + 16 :]
    if not stored.startswith(_OPENING) or _sum(behind) != stored[len(_OPENING) :][:16]:
        raise Corrupt(f"a note fails its checksum. bytes=`{len(stored)}`")
    # Inside a text the quotes of the split would be escaped, so the first one is the one written.
    given, _, value = behind[2:-1].partition(_SPLIT)
    try:
        facts = orjson.loads(b"{%s}" % given)
        row = NoteRow(
            facts.get("on") or "",
            facts["name"],
            facts["rev"],
            facts["nonce"],
            facts["updated_at"],
            value,
        )
        texts = (row.on, row.name, row.nonce, *facts.get("trail", ()))
        if not all(isinstance(text, str) for text in texts) or type(row.rev) is not int:
            raise TypeError
        times.from_us(row.updated_at)
        codec.decode(value)
    except (KeyError, TypeError, orjson.JSONDecodeError) as cause:
        raise Corrupt(f"a note is not one that is known. bytes=`{len(stored)}`") from cause
    trail = tuple(facts.get("trail", ()))
    return NoteFile(row, trail, facts.get("session_id"), facts.get("scope_id"))


def _sum(rest: bytes) -> bytes:
    return b"%016x" % (codec.checksum_of(rest) % 2**64)
