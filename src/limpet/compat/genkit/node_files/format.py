"""The files of Genkit's own store: bytes from snapshots and back, and the names that they may have.

A file is what `JSON.stringify(snapshot, null, 2)` gives, with the fields in the order of the
record; a pointer names the latest snapshot of a session.
"""

import json
import re
from dataclasses import replace
from math import isfinite

import orjson

from limpet.backends.buckets.directory.folders import TEMPORARY
from limpet.compat.genkit import rules
from limpet.compat.genkit.records import SessionSnapshot
from limpet.compat.genkit.rules import Row
from limpet.compat.wire import ABSENT, shown
from limpet.core import codec, limits
from limpet.errors import Corrupt, InvalidInput
from limpet.model import JSON

ENDING = ".json"
POINTERS = ".pointers"
GLOBAL = "global"  # the folder of those who have no tenants

# Of 255. Node writes under a temporary name that has up to 54 more, and is not to be refused.
NAME_BYTES_MAX = 200
_PREFIX_PARTS_MAX = 16

_WIDE = re.compile(rb"[0-9]{19}")  # integers that orjson would read as floats


def is_name(id: object) -> bool:
    """Tell whether an id is one plain name of a file, which leads nowhere else."""
    try:
        plain = limits.check_id("id", id)
    except InvalidInput:
        return False
    return (
        plain not in (".", "..")
        and not plain.startswith(TEMPORARY)
        and "/" not in plain
        and "\\" not in plain
        and len(plain.encode()) <= NAME_BYTES_MAX
    )


def check_name(name: str, id: object) -> str:
    """Return an id that can be the name of a file, or raise InvalidInput."""
    if not isinstance(id, str) or not is_name(id) or not id.strip():
        raise InvalidInput(f"{name} must be one plain name of a file. {name}=`{shown(id)}`")
    return str.__str__(id)  # a member of an enum would show another name


def check_prefix(prefix: object) -> str:
    """Return the folder of a tenant, or raise InvalidInput.

    It is one name, or several with `/` between. None of them leads out of the store's folder, or is
    what stands in the folder of a tenant beside its snapshots.
    """
    parts = prefix.split("/") if isinstance(prefix, str) else []
    fits = parts and len(parts) <= _PREFIX_PARTS_MAX and all(map(_is_folder, parts))
    if not isinstance(prefix, str) or not fits:
        raise InvalidInput(f"the prefix must be names of folders. prefix=`{shown(prefix)}`")
    return prefix


def _is_folder(name: str) -> bool:
    return is_name(name) and bool(name.strip()) and name != POINTERS and not name.endswith(ENDING)


def encode(row: Row) -> bytes:
    """Return the file of a snapshot: what Node writes for the same values.

    Numbers are exact: `1.0` stays so, and integers have as many digits as they need.

    Raises:
        InvalidInput: something in it is not JSON; the message has its path.
    """
    return _indented(row.to_json(), what="snapshot")


def encode_pointer(snapshot_id: str, updated_at: str) -> bytes:
    """Return the file that names the latest snapshot of a session."""
    return _indented({"currentSnapshotId": snapshot_id, "updatedAt": updated_at}, what="pointer")


def _indented(value: JSON, *, what: str) -> bytes:
    plain = codec.decode(codec.encode(value, what=what))
    try:
        return orjson.dumps(plain, option=orjson.OPT_INDENT_2)
    except TypeError:  # integers beyond 64 bits
        return json.dumps(plain, indent=2, ensure_ascii=False).encode()


def decode(data: bytes) -> Row:
    """Return the snapshot in a file, with the id that stands inside, which is not the one to go by.

    Raises:
        Corrupt: it is no snapshot: empty, cut short, no object, or a value of another type.
    """
    value = _value(data)
    if not isinstance(value, dict):
        raise Corrupt("the file is no snapshot: its JSON is no object")
    try:
        return SessionSnapshot.from_json(value)
    except InvalidInput as cause:
        raise Corrupt(f"the file is no snapshot: {cause}") from cause


def decode_pointer(data: bytes) -> str | None:
    """Return the snapshot that a pointer names; None if it names none that there could be."""
    try:
        value = _value(data)
    except Corrupt:
        return None
    named = value.get("currentSnapshotId") if isinstance(value, dict) else None
    return named if isinstance(named, str) and is_name(named) else None


def bare(id: str, row: Row) -> Row:
    """Return what tells where the snapshot of an id stands, without what it holds."""
    session_id = rules.session_of(row)
    known = replace(row, snapshot_id=id, session_id=session_id, state=ABSENT, error=None, extra={})
    return rules.repaired(known)


def _value(data: bytes) -> JSON:
    try:
        if _WIDE.search(data) is None:
            try:
                return orjson.loads(data)
            except ValueError:  # it refuses halves of surrogate pairs, which Node writes
                pass
        return json.loads(data.decode(), parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as cause:
        raise Corrupt("the file is no JSON") from cause


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise ValueError("a number is too large")
    return number
