"""The objects of a scope as values and as bytes: its head, its segments, and its pages of notes.

Each is a line of JSON, the description, and two frames; all numbers are in docs/format.md.

| object  | first frame                                    | second frame              |
|---------|------------------------------------------------|---------------------------|
| head    | the record of the scope, then the facts of its | their states, then the    |
|         | newest snapshots, one line each                | values of its last notes  |
| segment | the facts of its snapshots, oldest first       | as `core.segments` has it |
| notes   | the facts of its notes, in order               | their values              |

The description has the sizes of the frames and the checksum of the first one. Each state and each
value has a checksum of its own, so that a damaged one does not hide the others.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import orjson
import xxhash

from limpet.backends.objects import keys
from limpet.core import codec, ids, times
from limpet.core.limits import STORED_BYTES_MAX
from limpet.core.notes import NoteRow
from limpet.core.rows import EMPTY, Row
from limpet.errors import Corrupt, Unsupported
from limpet.model import ScopeKey
from limpet.storage import ScopeRecord

T = TypeVar("T")
Address: TypeAlias = tuple[str, str]
"""Of a note: the snapshot that it is on, or "", and its name."""

VERSION: Final = 3
_LEVEL: Final = 3
_LINE_BYTES_MIN: Final = 16  # few bytes unpack to millions of shorter lines


class Fact(NamedTuple):
    """A snapshot without its state.

    `own`: its id was given by the caller. `pointers` has for each of its labels the stamp of the
    index pointer that covers it (`index`).
    """

    row: Row
    own: bool = False
    pointers: tuple[int, ...] = ()

    @property
    def labels(self) -> dict[str, str]:
        return {} if self.row.labels == EMPTY else orjson.loads(self.row.labels)

    @property
    def stamps(self) -> Iterable[tuple[tuple[str, str], int]]:
        """Its labels, each with the stamp of its pointer."""
        return zip(self.labels.items(), self.pointers, strict=True) if self.pointers else ()


class Named(NamedTuple):
    """A segment as a head names it: the first and the last seq whose state it may hold.

    `size` is that of the object, whose first `facts_bytes` have all facts; `logical` that of its
    states.
    """

    name: str
    first: int
    last: int
    snapshots: int
    size: int
    facts_bytes: int
    logical: int


class NamedPage(NamedTuple):
    """A page of notes as a head names it, with the addresses of its first and its last note."""

    name: str
    first: Address
    last: Address
    notes: int
    size: int

    @classmethod
    def of(cls, name: str, notes: Sequence["StoredNote"], size: int) -> "NamedPage":
        return cls(name, notes[0].address, notes[-1].address, len(notes), size)


# Objects


class Unpacked(NamedTuple):
    """An object, or its first bytes: its description, and where its second frame begins."""

    about: dict[str, Any]
    data: bytes
    end: int

    def lines(self) -> list[bytes]:
        """Return the lines of the first frame, or raise Corrupt if it fails its checksum."""
        size = self.about["frames"][0]
        begin, stored = self.end - size, self.data[self.end - size : self.end]
        if self.data[:begin] != describe(self.about, stored):
            raise Corrupt(f"a {self.about['limpet']} fails its checksum")
        if self.about.get("zstd"):
            stored = codec.decompress(stored, what="frame")
            if stored.count(b"\n") * _LINE_BYTES_MIN > len(stored):
                raise Corrupt(f"a {self.about['limpet']} has lines that are too short")
        return stored.split(b"\n")[:-1]

    def rest(self) -> bytes:
        """Return the second frame, not verified, or as much of it as there is."""
        return self.data[self.end :][: self.about["frames"][1]]


def sum_of(stored: bytes) -> str:
    return xxhash.xxh3_64_hexdigest(stored)


def pack(
    kind: str, lines: Sequence[bytes], rest: Iterable[bytes], *, compress: bool = False, **more: Any
) -> tuple[bytes, int]:
    """Return an object, and where its facts end."""
    first, second = b"\n".join((*lines, b"")), b"".join(rest)
    if compress:
        first, more = codec.compress(first, _LEVEL), {**more, "zstd": True}
    about = {"limpet": kind, "v": VERSION, **more, "frames": [len(first), len(second)]}
    described = describe(about, first)
    return b"%b%b%b" % (described, first, second), len(described) + len(first)


def describe(about: Mapping[str, Any], first: bytes) -> bytes:
    """Return the line that describes an object; at its end a checksum of it and of a frame."""
    text = orjson.dumps({name: value for name, value in about.items() if name != "sum"})[:-1]
    return b'%b,"sum":"%b"}\n' % (text, sum_of(text + first).encode())


def unpack(kind: str, data: bytes) -> Unpacked:
    """Read the description of an object.

    Raises:
        Corrupt: it is not an object of this kind.
        Unsupported: it was written by another version.
    """
    try:
        begin = data.find(b"\n") + 1
        about = orjson.loads(data[:begin])
        if about["limpet"] != kind:
            raise ValueError
        version = about["v"]
        if type(version) is not int:
            raise ValueError
        if version == VERSION:
            first, second = about["frames"]
            number(second)
            return Unpacked(about, data, begin + number(first))
    except (KeyError, IndexError, TypeError, ValueError) as cause:
        raise Corrupt(f"an object is not a {kind}. bytes=`{len(data)}`") from cause
    raise Unsupported(
        f"a {kind} has the format of another version: read it with that one, and export it. "
        f"version=`{version}` known=`{VERSION}`"
    )


def facts_end(data: bytes) -> int:
    """Return where the facts of an object end; of what is none, its own end."""
    try:
        begin = data.index(b"\n") + 1
        end = begin + int(orjson.loads(data[:begin])["frames"][0])
        return end if begin <= end <= len(data) else len(data)
    except (KeyError, IndexError, TypeError, ValueError):
        return len(data)


def parsed(parse: Callable[[], T]) -> T:
    """Return what `parse` does; whatever is wrong with the form of what it reads is Corrupt."""
    try:
        return parse()
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as cause:
        raise Corrupt(f"an object has an unknown form. {cause!a}") from cause


# Anybody who may write to a bucket chooses what is in an object. Each of these returns a value of
# JSON as what it has to be, or raises TypeError or ValueError.


def number(value: Any) -> int:
    if type(value) is int and 0 <= value <= ids.SEQ_MAX:
        return value
    raise TypeError("a number has another type, or is too large")


def text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise TypeError("a text has another type")


def _time_us(value: Any) -> int:
    if type(value) is int:
        times.from_us(value)
        return value
    raise TypeError("a time is no number")


def _address(value: Any) -> Address:
    on, name = map(text, value)
    return on, name


def _part_name(value: Any) -> str:
    if keys.is_part(value):
        return text(value)
    raise ValueError("the name of a part is none")


def parse_key(value: Any) -> ScopeKey:
    return ScopeKey(*map(text, value))


def parse_named(value: Any) -> Named:
    name, *numbers = value
    return Named(_part_name(name), *map(number, numbers))


def parse_named_page(value: Any) -> NamedPage:
    name, first, last, *numbers = value
    return NamedPage(_part_name(name), _address(first), _address(last), *map(number, numbers))


# Facts


def dump_fact(fact: Fact) -> bytes:
    row, at = fact.row, ids.place_us(fact.row.seq)
    facts: dict[str, Any] = {"id": row.id, "seq": f"{row.seq:x}", "nonce": row.nonce}
    facts["size"] = row.size
    if row.rev:
        facts["rev"] = row.rev
    if fact.own:
        facts["own"] = True
    if not row.kept:
        facts["kept"] = False
    if row.parent_id is not None:
        facts["parent"] = row.parent_id
    if row.forked_from is not None:
        facts["forked_from"] = orjson.Fragment(row.forked_from)
    if row.status:
        facts["status"] = row.status
    if row.labels != EMPTY:
        facts["labels"] = orjson.Fragment(row.labels)
        if any(each != row.seq for each in fact.pointers):
            facts["pointers"] = [f"{each:x}" for each in fact.pointers]
    if row.metadata != EMPTY:
        # Integers beyond 64 bits need the exact text.
        is_wide = row.metadata.startswith(b" ")
        facts["metadata"] = row.metadata.decode() if is_wide else orjson.Fragment(row.metadata)
    if row.created_at != at:
        facts["created_at"] = row.created_at
    if row.updated_at != row.created_at:
        facts["updated_at"] = row.updated_at
    return orjson.dumps(facts)


def parse_fact(line: bytes) -> Fact:
    facts = orjson.loads(line)
    seq = number(int(facts["seq"], 16))
    at = ids.place_us(seq)
    created_at = _time_us(facts.get("created_at", at))
    parent_id = facts.get("parent")
    metadata, forked_from = facts.get("metadata"), facts.get("forked_from")
    if not isinstance(metadata, dict | str | None):
        raise TypeError("metadata is no object")
    labels = facts.get("labels", {})
    row = Row(
        seq=seq,
        id=text(facts["id"]),
        rev=number(facts.get("rev", 0)),
        nonce=text(facts["nonce"]),
        kept=facts.get("kept", True),
        parent_id=None if parent_id is None else text(parent_id),
        forked_from=None if forked_from is None else orjson.dumps(forked_from),
        status=text(facts.get("status", "")),
        labels=orjson.dumps(labels) if labels else EMPTY,
        metadata=EMPTY
        if metadata is None
        else metadata.encode()
        if isinstance(metadata, str)
        else orjson.dumps(metadata),
        created_at=created_at,
        updated_at=_time_us(facts.get("updated_at", created_at)),
        saved_at=at,
        size=number(facts["size"]),
    )
    if row.size > STORED_BYTES_MAX:
        raise ValueError("a state is too large")
    for value in labels.values():
        text(value)
    if not labels or not row.kept:
        return Fact(row, bool(facts.get("own")))
    stamps = facts.get("pointers", [facts["seq"]] * len(labels))
    pointers = tuple(int(stamp, 16) for _, stamp in zip(labels, stamps, strict=True))
    return Fact(row, bool(facts.get("own")), pointers)


# Notes


class StoredNote(NamedTuple):
    """A note in a head or in a page, as bytes."""

    on: str
    name: str
    about: bytes
    value: bytes

    @property
    def address(self) -> Address:
        return self.on, self.name

    @classmethod
    def of(cls, row: NoteRow) -> "StoredNote":
        facts = (*row[:-1], len(row.value), sum_of(row.value))
        return cls(row.on, row.name, orjson.dumps(facts), row.value)

    def row(self) -> NoteRow:
        """Return it, or raise Corrupt if it fails its checksum."""
        on, name, rev, nonce, updated_at, _, checksum = orjson.loads(self.about)
        if sum_of(self.value) != checksum:
            raise Corrupt(f"a note fails its checksum. name=`{name}`")
        return NoteRow(on, name, rev, nonce, updated_at, self.value)


def parse_note(facts: Sequence[Any], value: bytes) -> StoredNote:
    on, name, rev, nonce, updated_at, *rest = facts
    about = (text(on), text(name), number(rev), text(nonce), _time_us(updated_at), *rest)
    return StoredNote(on, name, orjson.dumps(about), value)


def take_notes(facts: Iterable[Any], values: bytes, at: int = 0) -> Iterator[StoredNote]:
    """Yield notes of their facts, and of their values one after the other, from a place on."""
    for each in facts:
        end = at + number(each[5])
        yield parse_note(each, values[at:end])
        at = end + 1


# Segments and pages


def line_of(pk: int) -> str:
    """Return the name of the line of a scope: until it is deleted, and begun again."""
    return f"{pk:016x}"


def dump_segment(
    record: ScopeRecord,
    name: str,
    ends: tuple[int, int],
    facts: Sequence[Fact],
    blob: tuple[bytes, str],
    *,
    compress: bool,
) -> tuple[bytes, Named]:
    """Return the bytes of a segment, and how a head names it.

    `ends` are its first and last seq, `blob` its states and their checksum.
    """
    lines = [dump_fact(fact) for fact in facts]
    more = {"scope": tuple(record.key), "line": line_of(record.pk), "name": name, "ends": ends}
    more["states"] = blob[1]
    data, end = pack("segment", lines, [blob[0]], compress=compress, **more)
    logical = sum(fact.row.size for fact in facts)
    return data, Named(name, *ends, len(facts), len(data), end, logical)


class StoredSegment:
    """A segment as it was read, or its first bytes; it raises Corrupt where it is damaged."""

    def __init__(self, name: str, data: bytes) -> None:
        self._unpacked = unpack("segment", data)
        if self._unpacked.about.get("name") != name:
            raise Corrupt(f"a segment is stored under the key of another. name=`{name}`")
        self.cost = 2 * len(data)

    @cached_property
    def facts(self) -> tuple[Fact, ...]:
        """The facts of its snapshots, oldest first."""
        return parsed(lambda: tuple(map(parse_fact, self._unpacked.lines())))

    @cached_property
    def by_id(self) -> dict[str, Fact]:
        return {fact.row.id: fact for fact in self.facts}

    @property
    def is_whole(self) -> bool:
        """Whether all of it was read, not only its facts."""
        size: int = self._unpacked.end + self._unpacked.about["frames"][1]
        return len(self._unpacked.data) == size

    @property
    def scope(self) -> ScopeKey:
        return parsed(lambda: parse_key(self._unpacked.about["scope"]))

    @property
    def line(self) -> str:
        found = self._unpacked.about.get("line")
        if not isinstance(found, str) or not re.fullmatch("[0-9a-f]{16}", found):
            raise Corrupt("a segment has no line")
        return found

    def named(self, name: str) -> Named:
        """Return how a head names it."""
        unpacked = self._unpacked
        logical = sum(fact.row.size for fact in self.facts)
        sums = len(self.facts), len(unpacked.data), unpacked.end, logical
        return parsed(lambda: parse_named((name, *unpacked.about["ends"], *sums)))

    @property
    def blob(self) -> tuple[bytes, str]:
        """Its states, and what their checksum should be."""
        return self._unpacked.rest(), str(self._unpacked.about.get("states"))

    @cached_property
    def states(self) -> bytes:
        """Its states, or b"" if they fail their checksum."""
        blob, checksum = self.blob
        return blob if sum_of(blob) == checksum else b""


def dump_page(
    key: ScopeKey, name: str, notes: Sequence[StoredNote], *, compress: bool
) -> tuple[bytes, NamedPage]:
    lines = [each.about for each in notes]
    more = {"scope": tuple(key), "name": name}
    values = [each.value + b"\n" for each in notes]
    if compress:
        values = [codec.compress(b"".join(values), _LEVEL)]
    data, _ = pack("notes", lines, values, compress=compress, **more)
    return data, NamedPage.of(name, notes, len(data))


def parse_page(name: str, data: bytes) -> list[StoredNote]:
    """Return the notes of a page, in order, or raise Corrupt."""
    unpacked = unpack("notes", data)
    if unpacked.about.get("name") != name:
        raise Corrupt(f"a page of notes is stored under the key of another. name=`{name}`")

    def parse() -> list[StoredNote]:
        values = unpacked.rest()
        if unpacked.about.get("zstd"):
            values = codec.decompress(values, what="page of notes")
        found = [*take_notes(map(orjson.loads, unpacked.lines()), values)]
        if not found:
            raise ValueError("a page has no notes")
        return found

    return parsed(parse)
