"""The head of a scope as a value and as bytes (`format`)."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import orjson

from limpet.backends.objects.format import (
    Address,
    Fact,
    Named,
    NamedPage,
    StoredNote,
    dump_fact,
    number,
    pack,
    parse_fact,
    parse_key,
    parse_named,
    parse_named_page,
    parsed,
    sum_of,
    take_notes,
    text,
    unpack,
)
from limpet.core.rows import Row
from limpet.errors import Corrupt
from limpet.model import ScopeKey
from limpet.storage import DAMAGED, ScopeRecord, TailRow


class Entry:
    """A snapshot of the tail, as it is in a head: its facts and its state, as bytes."""

    def __init__(self, line: bytes, stored: TailRow, checksum: str) -> None:
        self.seq, self.body, self.line = stored.seq, stored.body, line
        self.about = orjson.dumps((*stored[:3], len(line), len(stored.body), checksum))
        self._stored, self._sum = stored, checksum

    @classmethod
    def of(cls, fact: Fact, tail: TailRow) -> "Entry":
        made = cls(dump_fact(fact), TailRow(*tail[:4]), sum_of(tail.body))
        made.__dict__["fact"] = fact
        return made

    def with_fact(self, fact: Fact) -> "Entry":
        """Return it with other facts, and its state as it is, damaged or not."""
        return Entry(dump_fact(fact), self._stored, self._sum)

    def with_tail(self, tail: TailRow) -> "Entry":
        return Entry(self.line, TailRow(*tail[:4]), sum_of(tail.body))

    @cached_property
    def fact(self) -> Fact:
        found = parsed(lambda: parse_fact(self.line))
        if found.row.seq != self.seq:
            raise Corrupt(f"the facts of a snapshot are those of another. seq=`{self.seq}`")
        return found

    @property
    def row(self) -> Row:
        return self.fact.row

    @cached_property
    def tail(self) -> TailRow:
        is_whole = sum_of(self.body) == self._sum
        return self._stored if is_whole else self._stored._replace(encoding=DAMAGED)


class Head(NamedTuple):
    """The only authority of a scope, at one version.

    Attributes:
        record: None if the scope was deleted: nothing of it is there.
        w: the nonce of this write; segments and pages have that of the head they were to replace.
        entries: the tail, by seq, in ascending order.
        segments: oldest first. pages: of notes, in the order of their addresses.
        notes: those that are in the head itself, by address; a note is in one place only.
        ttl_us: how long the lease runs after its last write.
        pending: the address and the pk of a fork's source, until that was found alive.
        unswept: something that this head does not name is to be removed.
        over: the `w` of the head of the deleted scope that this one was begun over.
    """

    key: ScopeKey
    record: ScopeRecord | None
    w: str
    entries: Mapping[int, Entry] = {}
    segments: tuple[Named, ...] = ()
    pages: tuple[NamedPage, ...] = ()
    notes: Mapping[Address, StoredNote] = {}
    ttl_us: int = 0
    pending: tuple[ScopeKey, int] | None = None
    unswept: bool = False
    over: str = ""

    @property
    def parts(self) -> list[Named | NamedPage]:
        """The objects that it names."""
        return [*self.segments, *self.pages]

    @property
    def snapshots(self) -> int:
        return len(self.entries) + sum(each.snapshots for each in self.segments)

    @property
    def logical(self) -> int:
        tail = sum(entry.row.size for entry in self.entries.values())
        return tail + sum(each.logical for each in self.segments)


_NONCE_BYTES: Final = 8
_TEXTS = ("version", "trail", "epoch", "offsets")
_FIELDS = tuple(name for name in ScopeRecord._fields[1:] if name not in _TEXTS)
_TEXT_FIELDS: Final = ("floor", "fence", "owner")


def nonce_of(version: int) -> str:
    return version.to_bytes(_NONCE_BYTES, signed=True).hex()


def _version_of(nonce: str) -> int:
    found = bytes.fromhex(nonce)
    if len(found) != _NONCE_BYTES:
        raise ValueError("a nonce has another length")
    return int.from_bytes(found, signed=True)


def dump_head(head: Head) -> bytes:
    record, about = head.record, dict[str, Any](scope=tuple(head.key), w=head.w)
    if record is not None:
        facts = zip(ScopeRecord._fields, record, strict=True)
        about |= {name: value for name, value in facts if name in _FIELDS and value}
        about["trail"], about["epoch"] = record.trail.hex(), nonce_of(record.epoch)
        if record.offsets is not None:
            about["offsets"] = orjson.Fragment(record.offsets)
    if head.segments:
        about["segments"] = [tuple(each) for each in head.segments]
    if head.pages:
        about["pages"] = [tuple(each) for each in head.pages]
    if head.ttl_us:
        about["ttl_us"] = head.ttl_us
    if head.pending is not None:
        about["pending"] = tuple(head.pending[0]), head.pending[1]
    if head.unswept:
        about["unswept"] = True
    if head.over:
        about["over"] = head.over
    entries, notes = head.entries.values(), head.notes.values()
    if entries:
        about["states"] = [orjson.Fragment(each.about) for each in entries]
    if notes:
        about["noted"] = [orjson.Fragment(each.about) for each in notes]
    lines = [orjson.dumps(about), *(each.line for each in entries)]
    bodies = [each.body + b"\n" for each in entries] + [each.value + b"\n" for each in notes]
    return pack("head", lines, bodies)[0]


def parse_head(data: bytes) -> Head:
    """Read a head, or as much as its first bytes have: its facts, and no state.

    Raises:
        Corrupt, Unsupported: as `unpack`; or its facts fail their checksum.
    """
    unpacked = unpack("head", data)
    return parsed(lambda: _parse_head(unpacked.lines(), unpacked.rest()))


def _parse_head(lines: Sequence[bytes], bodies: bytes) -> Head:
    about = orjson.loads(lines[0])
    key, entries, at = parse_key(about["scope"]), dict[int, Entry](), 0
    for facts, line in zip(about.get("states", ()), lines[1:], strict=True):
        seq, base, encoding, _, size, checksum = facts
        end = at + number(size)
        base = base if base is None else number(base)
        entries[number(seq)] = Entry(line, TailRow(seq, base, encoding, bodies[at:end]), checksum)
        at = end + 1
    notes = {note.address: note for note in take_notes(about.get("noted", ()), bodies, at)}
    pending = about.get("pending")
    head = Head(
        key,
        _parse_record(key, about) if "pk" in about else None,
        nonce_of(_version_of(about["w"])),
        entries,
        tuple(map(parse_named, about.get("segments", ()))),
        tuple(map(parse_named_page, about.get("pages", ()))),
        notes,
        number(about.get("ttl_us", 0)),
        None if pending is None else _parse_pending(*pending),
        bool(about.get("unswept")),
        text(about.get("over", "")),
    )
    if head.record is None and (entries or notes or head.segments or head.pages):
        raise ValueError("a scope that was deleted holds something")
    return head


def _parse_pending(key: Any, pk: Any) -> tuple[ScopeKey, int]:
    return parse_key(key), number(pk)


def _parse_record(key: ScopeKey, about: Mapping[str, Any]) -> ScopeRecord:
    offsets = about.get("offsets")
    fields: dict[str, Any] = {
        name: (text if name in _TEXT_FIELDS else number)(about[name])
        for name in _FIELDS
        if name in about
    }
    return ScopeRecord(
        key,
        version=_version_of(about["w"]),
        trail=bytes.fromhex(about["trail"]),
        epoch=_version_of(about["epoch"]),
        offsets=None if offsets is None else b"%b" % orjson.dumps(offsets),
        **fields,
    )
