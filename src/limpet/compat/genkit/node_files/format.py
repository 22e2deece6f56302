"""The file format of Genkit's own store: encoding, decoding, and valid file names.

A file is `JSON.stringify(snapshot, null, 2)`, with the fields in the order of the record; a pointer
names the latest snapshot of a session.
"""

import re
from dataclasses import replace

import orjson

from limpet.backends.buckets import TEMPORARY
from limpet.compat.genkit import rules
from limpet.compat.genkit.records import SessionSnapshot
from limpet.compat.genkit.rules import Row
from limpet.compat.json_files import dump_indented, is_file_name, load_strict
from limpet.compat.wire import ABSENT, shown
from limpet.errors import Corrupt, InvalidInput
from limpet.model import JSON

ENDING = ".json"
POINTERS = ".pointers"
GLOBAL = "global"  # the folder without a tenant

# Of 255: the temporary names of Node have up to 54 bytes more.
NAME_BYTES_MAX = 200
_PREFIX_PARTS_MAX = 16

_WIDE = re.compile(rb"[0-9]{19}")  # integers that orjson would read as floats


def is_name(id: object) -> bool:
    """Return whether an id can be a file name that no temporary file has."""
    return is_file_name(id, bytes_max=NAME_BYTES_MAX) and not str(id).startswith(TEMPORARY)


def check_name(name: str, id: object) -> str:
    if not isinstance(id, str) or not is_name(id) or not id.strip():
        raise InvalidInput(f"{name} must be usable as a file name. {name}=`{shown(id)}`")
    return str.__str__(id)  # a member of an enum would be formatted otherwise


def check_prefix(prefix: object) -> str:
    """Return the folder of a tenant: one name, or several with `/` between.

    No name may lead out of the store's folder, or be one that tenant folders use themselves.
    """
    parts = prefix.split("/") if isinstance(prefix, str) else []
    fits = parts and len(parts) <= _PREFIX_PARTS_MAX and all(map(_is_folder, parts))
    if not isinstance(prefix, str) or not fits:
        raise InvalidInput(f"the prefix must be names of folders. prefix=`{shown(prefix)}`")
    return prefix


def _is_folder(name: str) -> bool:
    return is_name(name) and bool(name.strip()) and name != POINTERS and not name.endswith(ENDING)


def encode(row: Row) -> bytes:
    """Return the file of a snapshot, as Node writes it."""
    return dump_indented(row.to_json(), what="snapshot")


def encode_pointer(snapshot_id: str, updated_at: str) -> bytes:
    value = {"currentSnapshotId": snapshot_id, "updatedAt": updated_at}
    return dump_indented(value, what="pointer")


def decode(data: bytes) -> Row:
    """Return the snapshot in a file, with the id found inside. The file name is what counts.

    Raises:
        Corrupt: it is not a snapshot: empty, cut short, not an object, or a value of another type.
    """
    value = _value(data)
    if not isinstance(value, dict):
        raise Corrupt("the file is not a snapshot: its JSON is not an object")
    try:
        return SessionSnapshot.from_json(value)
    except InvalidInput as cause:
        raise Corrupt(f"the file is not a snapshot: {cause}") from cause


def decode_pointer(data: bytes) -> str | None:
    """Return the snapshot that a pointer names; None if the pointer is not valid."""
    try:
        value = _value(data)
    except Corrupt:
        return None
    named = value.get("currentSnapshotId") if isinstance(value, dict) else None
    return named if isinstance(named, str) and is_name(named) else None


def bare(id: str, row: Row) -> Row:
    """Return a row without its state, error and unknown fields."""
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
        return load_strict(data.decode())
    except (ValueError, RecursionError) as cause:
        raise Corrupt("the file is not JSON") from cause
