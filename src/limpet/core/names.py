"""Ids as names in the keys of a bucket or a directory, and back.

A name in a key is an escaped id: `+` and two hex digits for every UTF-8 byte outside `[a-z0-9_-]`.
So no name holds a capital (file systems that ignore case cannot confuse two), a `/` or a `.` (none
leads elsewhere, and `.` can separate names), a `=` (it separates a label and its value) or a `~`.
`~` marks a name that was clipped because it is too long: it is preceded by the beginning of the id,
in whole characters, and followed by half of the id's sha256.

The id cannot be recovered from a clipped name: the object has it in full.
"""

import re
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple, TypeAlias

# A key has at most 1,024 bytes on S3, and a file name 255. With these numbers the longest key of
# each sort still fits.
NAME_BYTES_MAX = 200
INDEX_NAME_BYTES_MAX = 48  # up to five names are in one file name

_UNSAFE = re.compile(rb"[^a-z0-9_-]")
_BYTE = re.compile(rb"\+([0-9a-f]{2})")
_DIGEST_CHARS = 32
_MARK_BYTES = 1 + _DIGEST_CHARS


class Clipped(NamedTuple):
    """What a clipped name has of its id: the beginning, and a digest."""

    start: str
    digest: str


Name: TypeAlias = str | Clipped
"""An id as a key has it: in full, or clipped."""


def escape(id: str) -> str:
    """Escape an id for a key. Different ids stay different, and a prefix stays a prefix."""
    return _UNSAFE.sub(lambda found: b"+%02x" % found[0][0], id.encode()).decode()


def unescape(name: str, bytes_max: int = NAME_BYTES_MAX) -> Name | None:
    """Return the id of a name in a key, `Clipped` if it was clipped, None if it is not valid.

    Each id has exactly one valid name, so that no id is listed twice: another spelling of the same
    bytes, or a name that should have been clipped, is not valid.
    """
    start, mark, digest = name.partition("~")
    try:
        id = _BYTE.sub(lambda found: bytes.fromhex(found[1].decode()), start.encode()).decode()
    except UnicodeError:
        return None
    if not id or len(name) > bytes_max or escape(id) != start:
        return None
    if not mark:
        return id
    return Clipped(id, digest) if re.fullmatch("[0-9a-f]{32}", digest) else None


@lru_cache(maxsize=4096)
def name_of(id: str, bytes_max: int = NAME_BYTES_MAX) -> str:
    """Return the name of an id in a key: escaped, and clipped if it is too long."""
    escaped = escape(id)
    if len(escaped) <= bytes_max:
        return escaped
    return f"{cut(id, bytes_max)}~{_digest(id)}"


def cut(id: str, bytes_max: int) -> str:
    """Return the escaped beginning of an id, in whole characters, that a clipped name has."""
    kept = ""
    for character in id:
        longer = kept + escape(character)
        if len(longer) > bytes_max - _MARK_BYTES:
            break
        kept = longer
    return kept


def start_of(prefix: str) -> str:
    """Return what all names of ids that begin with a text have in common.

    If the text is long, other names begin with it too: compare the ids as well.
    """
    escaped = escape(prefix)
    return escaped if len(escaped) <= NAME_BYTES_MAX - _MARK_BYTES else cut(prefix, NAME_BYTES_MAX)


def _digest(id: str) -> str:
    return sha256(id.encode()).hexdigest()[:_DIGEST_CHARS]
