"""The document that directories and object stores keep: a Strands snapshot with our header in it.

    {"scope":<kind>,"schemaVersion":"1.0","createdAt":<text>,
     "appData":{"limpet":{"n":<n>,"sum":<hex>,"data_sum":<hex>,<header>}},"data":<state>}

without white space. The first `n` bytes are all but `"data":<state>}`, so that a listing reads only
the beginning of a document. `sum` covers those bytes except itself, `data_sum` the ones after them:
a header can be verified alone. Header fields at their default are left out; unknown fields are
ignored.

The envelope that the Strands interface was given is in the metadata of the header, and that copy
counts. It is repeated where the Strands tools expect it: the version and the time at the top, the
entries of `appData` after `limpet`, all other fields after `appData`.

An encoded value that begins with a space holds integers beyond 64 bits (see `codec`). A state keeps
that space after `"data":`; a header with such metadata gets one before its own brace.

A live document is never shorter than `LIVE_BYTES_MIN`, and a tombstone never longer than
`TOMBSTONE_BYTES_MAX`: the sizes in a listing distinguish them.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from zlib import crc32

import orjson

from limpet.core import codec, ids, times
from limpet.errors import Corrupt, InvalidInput
from limpet.model import JSON

LIVE_BYTES_MIN: Final = 128
TOMBSTONE_BYTES_MAX: Final = 120
FACADE: Final = "strands"  # the key of the metadata that holds the envelope of the state
OPENING_BYTES_MAX: Final = 256  # enough to know how long the header is
WHOLE_BYTES: Final = 2**63 - 1  # the whole document is needed

_DATA = b'"data":'
_NAMED = b'"%s"' % FACADE.encode()
_SUMS = rb'"n":([1-9]\d{0,11}),"sum":"([0-9a-f]{16})","data_sum":"([0-9a-f]{16})",'
_OPENING = re.compile(
    rb'\{"scope":"([a-zA-Z0-9_-]{1,64})","schemaVersion":"[0-9a-z.-]{1,16}",'
    rb'"createdAt":"[0-9T:.-]{23}Z",'
    rb'"appData":\{"limpet":( ?)\{' + _SUMS
)
_OURS = re.compile(_SUMS)
_VERSION = re.compile(r"[0-9a-z.-]{1,16}")
_CREATED = re.compile(r"[0-9T:.-]{23}Z")
_IN_PLACE = ("scope", "schemaVersion", "createdAt", "appData", "data")
_MAYBE_WIDE = re.compile(rb"\d{19}")
_HEX = re.compile(r"[0-9a-f]{1,16}\Z")
_DELETED = b'{"limpet":"deleted",'


@dataclass(frozen=True, slots=True)
class Header:
    """Everything about a snapshot except its state, and what the commit protocol needs.

    `labels`, `metadata` and `forked_from` are encoded, as in `rows.Row`. `created_at` and
    `updated_at` are microseconds; `at` is the logical commit time in milliseconds. `nonce` is that
    of the revision, `w` that of this write, `trail` has those of the writes before. `last` is the
    greatest `seq` assigned in the line. `pending` is the line that `forked_from` must still have.
    `mixed`: the scope may hold copies of an earlier line. `foreign`: it may hold copies of other
    tools, which the index does not have. `session_id` and `scope_id` are set if the key has them
    clipped. `void`: the document shows no snapshot.
    """

    id: str
    line: str | None
    seq: int
    rev: int
    nonce: str
    born: str
    w: str
    created_at: int
    updated_at: int
    at: int
    size: int
    last: int = 0
    kept: bool = True
    void: bool = False
    mixed: bool = False
    foreign: bool = False
    trail: tuple[str, ...] = ()
    floor: str = ""
    fence: str | None = None
    pending: str | None = None
    session_id: str | None = None
    scope_id: str | None = None
    parent: str | None = None
    forked_from: bytes | None = None
    status: str = ""
    labels: bytes = b"{}"
    metadata: bytes = b"{}"

    @property
    def revision(self) -> str:
        return ids.revision(self.seq, self.rev, self.nonce)


_FIELDS = tuple((each.name, each.default) for each in fields(Header))
_ENCODED = ("forked_from", "labels", "metadata")
_TEXT, _MAYBE = (str,), (str, type(None))
_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("id", "nonce", "born", "w", "floor", "status"), _TEXT),
    **dict.fromkeys(("line", "fence", "pending", "session_id", "scope_id", "parent"), _MAYBE),
    **dict.fromkeys(("seq", "rev", "created_at", "updated_at", "at", "size", "last"), (int,)),
    **dict.fromkeys(("kept", "void", "mixed", "foreign"), (bool,)),
}
_PLACES = ("seq", "last")  # in hexadecimal: not every tool keeps integers beyond 2^53


@dataclass(frozen=True, slots=True)
class Document:
    """A document as it was read.

    `body` is the encoded state. A foreign document, written by another tool, has no header;
    `envelope` is then everything in it but the state, and empty otherwise.
    """

    kind: str
    body: bytes
    header: Header | None
    envelope: dict[str, JSON] = field(default_factory=dict)


class Tombstone(NamedTuple):
    """Replaces a deleted copy, so that a delayed writer does not bring it back."""

    line: str | None
    seq: int
    born: str


def write(header: Header, kind: str, body: bytes) -> bytes:
    """Return the document of a snapshot: always the same bytes for the same arguments.

    `body` is an encoded state; `read` returns it byte for byte.
    """
    data = b"".join((_DATA, body, b"}"))
    facts, wide = _encode(header), header.metadata.startswith(b" ")
    shown = _shown(header)
    before = (
        f'{{"scope":"{kind}","schemaVersion":"{shown.version}","createdAt":"{shown.created}",'
        f'"appData":{{"limpet":{" " if wide else ""}{{"n":'
    ).encode()
    between = b',"sum":"'
    after = b'","data_sum":"%s",%s%s}%s,' % (_sum(data), facts[1:], shown.app_data, shown.others)
    n = _counted(len(before) + len(between) + len(_sum()) + len(after))
    before = b"%s%d%s" % (before, n, between)
    return b"".join((before, _sum(before, after), after, data))


class _Shown(NamedTuple):
    """What other tools see. The last two are further members of an object, encoded."""

    version: str
    created: str
    app_data: bytes = b""
    others: bytes = b""


def _shown(header: Header) -> _Shown:
    created = times.from_us(header.created_at).replace(tzinfo=None).isoformat("T", "milliseconds")
    default = _Shown("1.0", f"{created}Z")
    envelope = codec.decode(header.metadata).get(FACADE) if _NAMED in header.metadata else None
    if not isinstance(envelope, dict):
        return default
    version, made = envelope.get("schemaVersion"), envelope.get("createdAt")
    return _Shown(
        version if isinstance(version, str) and _VERSION.fullmatch(version) else default.version,
        made if isinstance(made, str) and _CREATED.fullmatch(made) else default.created,
        _members(envelope.get("appData"), but=("limpet",)),
        _members(envelope, but=_IN_PLACE),
    )


def _members(found: JSON, *, but: Collection[str]) -> bytes:
    """Encode members of an object, to follow others in it."""
    if not isinstance(found, dict):
        return b""
    rest = {name: value for name, value in found.items() if name not in but}
    return b"," + codec.encode(rest).strip()[1:-1] if rest else b""


def _counted(others: int) -> int:
    """Return the length of a text that has `others` characters and its own length in digits."""
    total = others + 1
    while total != others + len(str(total)):
        total += 1
    return total


def _sum(*parts: bytes) -> bytes:
    return b"%016x" % (codec.checksum_of(*parts) % 2**64)


def _encode(header: Header) -> bytes:
    facts: dict[str, Any] = {}
    for name, default in _FIELDS:
        value = getattr(header, name)
        if default is MISSING or value != default:
            if name in _PLACES:
                value = f"{value:x}"
            facts[name] = orjson.Fragment(value) if isinstance(value, bytes) else value
    return orjson.dumps(facts)


def read(stored: bytes) -> Document:
    """Parse a whole document.

    Raises:
        Corrupt: the bytes are not those that were written, or not a document at all: empty, cut
            short, not JSON, not an object, without `data`, a tombstone.
    """
    opening = _OPENING.match(stored)
    if opening is None:
        return _read_foreign(stored)
    n = int(opening[3])
    header = _read_header(stored, opening)
    data = stored[n:]
    if _sum(data) != opening[5]:
        raise Corrupt(f"a document fails its checksum. bytes=`{len(stored)}`")
    return Document(opening[1].decode(), data[len(_DATA) : -1], header)


def read_header(first: bytes) -> Header | int:
    """Return the header from the first bytes of a document, or how many bytes it needs.

    The state is neither needed nor checked. `WHOLE_BYTES`: the document was not written by Limpet;
    a caller that has no more bytes passes them to `read`.

    Raises:
        Corrupt: the header is not the one that was written.
    """
    opening = _OPENING.match(first)
    if opening is None:
        return OPENING_BYTES_MAX if len(first) < OPENING_BYTES_MAX else WHOLE_BYTES
    n = int(opening[3])
    return n if len(first) < n else _read_header(first, opening)


def _read_header(first: bytes, opening: re.Match[bytes]) -> Header:
    n, (start, end) = int(opening[3]), opening.span(4)
    if _sum(first[:start], first[end:n]) != opening[4]:
        raise Corrupt(f"the header of a document fails its checksum. bytes=`{len(first)}`")
    # The checksum holds, so `write` made it: only a later version can have another header.
    try:
        frame = codec.decode(b"%s%s}" % (opening[2], first[: n - 1]))
        return _header_of(frame["appData"]["limpet"])
    except (KeyError, TypeError, ValueError, AttributeError, InvalidInput) as cause:
        raise Corrupt("the header of a document has an unknown form: a newer limpet?") from cause


def _header_of(found: dict[str, JSON]) -> Header:
    facts = {name: found[name] for name, _ in _FIELDS if name in found}
    for name in _ENCODED:
        if name in facts:
            facts[name] = codec.encode(facts[name])
    for name in _PLACES:
        if name in facts:
            facts[name] = int(facts[name], 16)
    facts["trail"] = tuple(facts.get("trail", ()))
    header = Header(**facts)
    _check(header)
    return header


def _check(header: Header) -> None:
    """Raise TypeError unless every field has its type: any tool can write a valid checksum."""
    for name, kinds in _KINDS.items():
        if type(getattr(header, name)) not in kinds:
            raise TypeError(name)
    if not all(type(nonce) is str for nonce in header.trail):
        raise TypeError("trail")
    labels, metadata = codec.decode(header.labels), codec.decode(header.metadata)
    if not all(type(value) is str for value in labels.values()) or type(metadata) is not dict:
        raise TypeError


def decode_foreign(encoded: bytes) -> JSON:
    """Return a value from JSON of other tools, which do not mark integers beyond 64 bits.

    Raises:
        Corrupt: it is not JSON.
    """
    # The fast parser would round such integers.
    return codec.decode(b" " + encoded if _MAYBE_WIDE.search(encoded) else encoded)


def _read_foreign(stored: bytes) -> Document:
    try:
        envelope = decode_foreign(stored)
        if not isinstance(envelope, dict) or "data" not in envelope:
            raise Corrupt(f"the document is not a snapshot. bytes=`{len(stored)}`")
        body = codec.encode(envelope.pop("data"))
    except (InvalidInput, RecursionError) as cause:
        raise Corrupt(f"a foreign document is not valid JSON. bytes=`{len(stored)}`") from cause
    # A damaged document of ours must not pass for a foreign one, which has no checksum. No single
    # damage hides both the key of the header and its first fields.
    app_data = envelope.get("appData")
    named = isinstance(app_data, dict) and "limpet" in app_data
    if named and isinstance(app_data, dict):
        respaced = _respaced(envelope, app_data["limpet"], body)
        if respaced is not None:
            return respaced
    if named or _OURS.search(stored, 0, OPENING_BYTES_MAX):
        raise Corrupt(f"a document was changed after it was written. bytes=`{len(stored)}`")
    kind = envelope.get("scope")
    return Document(kind if isinstance(kind, str) else "", body, None, envelope)


def _respaced(envelope: dict[str, JSON], found: JSON, body: bytes) -> Document | None:
    """Return a document of ours in which another tool changed white space and nothing else.

    Tools that copy sessions do that. If all but the state is as `write` makes it, including both
    checksums, nothing else can have changed.
    """
    kind = envelope.get("scope")
    if not isinstance(kind, str) or not isinstance(found, dict):
        return None
    try:
        header = _header_of(found)
        written = write(header, kind, body)
        expected = decode_foreign(written)
        expected.pop("data")
        same = codec.encode(expected) == codec.encode(envelope)
    except (Corrupt, InvalidInput, TypeError, KeyError, ValueError, AttributeError):
        return None
    return Document(kind, body, header) if same else None


def write_tombstone(tombstone: Tombstone) -> bytes:
    """Return the bytes of a tombstone: at most 120, so that it cannot pass for a live document.

    Raises:
        InvalidInput: the line is longer than a UUID.
    """
    facts = {**tombstone._asdict(), "seq": f"{tombstone.seq:x}"}
    stored = orjson.dumps({"limpet": "deleted", **facts})
    if len(stored) > TOMBSTONE_BYTES_MAX:
        raise InvalidInput(f"a tombstone is too long. line=`{tombstone.line}`")
    return stored


def is_tombstone_size(size: int) -> bool:
    """Return whether a listed size is one that a tombstone of ours has."""
    return size in _TOMBSTONE_SIZES


def read_tombstone(stored: bytes) -> Tombstone | None:
    if len(stored) > TOMBSTONE_BYTES_MAX or not stored.startswith(_DELETED):
        return None
    try:
        found = codec.decode(stored)
    except Corrupt:
        return None
    match found:
        case {"line": str() | None as line, "seq": str(seq), "born": str(born)} if _HEX.match(seq):
            return Tombstone(line, int(seq, 16), born)
    return None


_TOMBSTONE_SIZES = frozenset(
    len(write_tombstone(Tombstone(line, seq, born)))
    for line in (None, "0" * 36)
    for seq, born in ((0, ""), (1 << 59, "0" * 16), (1 << 60, "0" * 16))
)


# Foreign documents get a header too. They have no line, so they belong to every life of the scope;
# no `seq`, so they are ordered by their own time; no revision, so it is the hash of their bytes.


def header_of(document: Document, *, id: str | None, digest: str, modified: int) -> Header:
    """Return a header for a foreign document; `id` is None for a head.

    `digest` is 16 hexadecimal digits of a hash of its bytes, `modified` the time it was stored.
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
        metadata=codec.encode({FACADE: document.envelope}),
    )


def created_us(envelope: Mapping[str, JSON]) -> int | None:
    """Return the creation time in an envelope, which the two SDKs spell differently."""
    text = envelope.get("createdAt", envelope.get("created_at"))
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
        aware = moment if moment.utcoffset() is not None else moment.replace(tzinfo=UTC)
        return times.to_us("createdAt", aware)
    except (ValueError, OverflowError, InvalidInput):
        return None


def _moment(created: int, id: str) -> int:
    """Return the time by which a foreign document is ordered in history.

    They have milliseconds only, and several may share one. A UUIDv7 shows which came first; others
    get different microseconds.
    """
    if created % 1000:
        return created
    part = crc32(id.encode()) >> 20 if ids.time_ms_of(id) is None else int(id[15:18], 16)
    return created + part * 1000 // 4096
