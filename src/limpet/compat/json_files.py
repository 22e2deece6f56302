"""JSON files that are shared with other tools: their names, exact reading, indented writing."""

import json
import os
from collections.abc import Iterator, Sequence
from math import isfinite

import orjson

from limpet.api.integrations import Bucket, Listed, Stored, codec, finding, limits
from limpet.errors import Corrupt, InvalidInput
from limpet.model import JSON, Finding

# A file may be indented, so that it is larger than its state. Parsed it takes far more memory.
FILE_BYTES_MAX = 4 * limits.STATE_BYTES_MAX
PAGE = 1_000  # keys: what one request lists and deletes


def is_file_name(name: object, *, bytes_max: int) -> bool:
    """Return whether an id can be one file name, which leads to no other folder."""
    try:
        plain = limits.check_id("name", name)
    except InvalidInput:
        return False
    return (
        plain not in (".", "..")
        and "/" not in plain
        and "\\" not in plain
        and len(plain.encode()) <= bytes_max
    )


def check_size(size: int) -> None:
    if size > FILE_BYTES_MAX:
        raise Corrupt(f"the file is too large. bytes=`{size}` max=`{FILE_BYTES_MAX}`")


def listed(bucket: Bucket, prefix: str, *, after: str = "") -> Iterator[Listed]:
    while True:
        page = bucket.list(prefix, after=after, limit=PAGE)
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].key


def read_files(files: Bucket, keys: Sequence[str]) -> list[Stored | None]:
    """Return files; of one that is too large only its beginning, which `check_size` refuses."""
    return files.get(keys, first=FILE_BYTES_MAX)


def json_of(stored: Stored) -> JSON:
    check_size(stored.size)
    return codec.decode_foreign(stored.data)


def links_below(folder: str, prefix: str = "") -> Iterator[Finding]:
    """Name each link below a folder whose key begins with a prefix.

    Links are not followed: they may lead out of the folder.
    """
    for above, folders, files in os.walk(folder):
        for name in sorted([*folders, *files]):
            path = os.path.join(above, name)
            if os.path.islink(path) and os.path.relpath(path, folder).startswith(prefix):
                yield finding("error", "link_skipped", "a link is not followed", path=path)


def dump_indented(value: JSON, *, what: str) -> bytes:
    """Return JSON with an indent of two spaces; `1.0` stays `1.0`, integers may have any length.

    Raises:
        InvalidInput: a value is not JSON; the message has its path.
    """
    # The file of a snapshot has its metadata too, which may be as large as its state.
    bytes_max = 2 * limits.STATE_BYTES_MAX
    plain = codec.decode(codec.encode(value, what=what, bytes_max=bytes_max))
    try:
        return orjson.dumps(plain, option=orjson.OPT_INDENT_2)
    except TypeError:  # integers beyond 64 bits
        return json.dumps(plain, indent=2, ensure_ascii=False).encode()


def load_strict(data: str | bytes) -> JSON:
    """Return the value of JSON text, or raise ValueError, also for NaN and infinite numbers."""
    return json.loads(data, parse_constant=_refuse, parse_float=_finite)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise ValueError("a number is too large")
    return number
