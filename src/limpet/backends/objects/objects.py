"""The two objects of a scope, the head and the segment, as values and as bytes.

Both consist of a description and two or three frames of JSON lines:

| frame | head                                      | segment                              |
|-------|-------------------------------------------|--------------------------------------|
| 1     | the scope, then facts of its last         | facts of its snapshots, oldest first |
|       | snapshots, oldest first                   |                                      |
| 2     | a delta for each of them                  | a delta for each but the newest      |
| 3     | the base of the first delta; may be left  | the newest state                     |
|       | out if a segment has it                   |                                      |

A delta of a head builds on the snapshot before it, one of a segment on the snapshot after it. The
description has the sizes and checksums of the frames. In a plain object it is the first line; in a
compressed one it is a skippable frame of zstd, and the frames are frames of zstd, so that `zstd -d`
shows the lines.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import orjson
import xxhash
import zstandard

from limpet.backends.objects.chain import Chain
from limpet.core import codec, ids, times
from limpet.core.deltas import delta
from limpet.core.deltas.delta import Delta
from limpet.core.limits import STORED_BYTES_MAX
from limpet.core.rows import EMPTY, Row
from limpet.errors import Corrupt, Unsupported
from limpet.model import ScopeKey
from limpet.protocol import AppendOffsets

VERSION: Final = 2
TRAIL_MAX: Final = 16
_SKIPPABLE = (0x184D2A50).to_bytes(4, "little")
_LEVEL = 3
_LEVEL_LARGE = 1  # twice as fast, and a tenth larger
_LARGE_BYTES = 512 * 1024
_COMPRESSED_MIN = 4 * 1024  # a smaller object stays plain: it would gain little


class Fact(NamedTuple):
    """A snapshot without its state.

    `born` is the nonce of its first write. `own`: its id was given by the caller. `pointers` has
    for each of its labels the stamp of the index pointer that covers it (`index`).
    """

    row: Row
    born: str
    own: bool = False
    pointers: tuple[int, ...] = ()

    @property
    def labels(self) -> dict[str, str]:
        return {} if self.row.labels == EMPTY else orjson.loads(self.row.labels)


class Entry(NamedTuple):
    """A snapshot in the tail of a head. Without a delta its state is the base."""

    fact: Fact
    delta: Delta | None

    @property
    def row(self) -> Row:
        return self.fact.row


class Named(NamedTuple):
    """A segment as a head names it, with the first and the last `seq` in it.

    `size` is that of the object; its first `facts_bytes` have all facts. `chain_bytes` is the size
    of its deltas, `logical` that of its states.
    """

    name: str
    first: int
    last: int
    snapshots: int
    size: int
    facts_bytes: int
    chain_bytes: int
    logical: int


class HeadLease(NamedTuple):
    """The lease of a scope: `at` is its writer's time, `w` the nonce of its last write."""

    key: str
    owner: str
    ttl_us: int
    at: int
    w: str


class Frame(NamedTuple):
    """The stored bytes of a frame, and their checksum."""

    stored: bytes
    sum: str

    @property
    def is_compressed(self) -> bool:
        return self.stored.startswith(zstandard.FRAME_HEADER)


@dataclass(frozen=True, slots=True)
class Head:
    """The only authority of a scope.

    Attributes:
        line: is drawn when the head is created, so that a scope that was deleted is not mistaken
            for its successor.
        w: the nonce of this write, "" before the first; `trail` has those of the writes before.
        last: the greatest place that any write was given; `floor` the greatest id minted.
        shown: the id and `seq` of the snapshot that is the head.
        pending: the line of the fork's source, until that was found alive.
        ended: the scope was deleted, and maybe not all of its notes yet: the revision that it
            showed, when, and how many snapshots it had.
        paid: bytes sent since the last segment was written.
        segments: oldest first.
        offsets: where the lists of the shown state end, if known.
        is_rooted: the base is the first of the entries; otherwise the newest of the last segment.
        entries: the tail, oldest first. A draft is the last of them, whatever its `seq`.
        base: the base, unless it has to be read from the last segment.
        base_frame: the base as it was stored.
    """

    scope: ScopeKey
    line: str
    w: str
    trail: tuple[str, ...] = ()
    last: int = 0
    floor: str = ""
    shown: tuple[str, int] | None = None
    lease: HeadLease | None = None
    pending: str | None = None
    ended: tuple[str, int, int] | None = None
    paid: int = 0
    segments: tuple[Named, ...] = ()
    offsets: AppendOffsets | None = None
    is_rooted: bool = False
    entries: tuple[Entry, ...] = ()
    base: bytes | None = None
    base_frame: Frame | None = None

    @property
    def fence(self) -> str | None:
        return None if self.lease is None else self.lease.key

    @property
    def nonces(self) -> tuple[str, ...]:
        return (self.w, *self.trail)

    @property
    def draft(self) -> Entry | None:
        return self.entries[-1] if self.entries and not self.entries[-1].row.kept else None

    @property
    def kept(self) -> tuple[Entry, ...]:
        """The kept snapshots of the tail."""
        return self.entries if self.draft is None else self.entries[:-1]

    @property
    def count(self) -> int:
        return len(self.entries) + sum(each.snapshots for each in self.segments)

    @property
    def logical(self) -> int:
        tail = sum(each.row.size for each in self.entries)
        return tail + sum(each.logical for each in self.segments)

    def rewritten(self, nonce: str, **changes: Any) -> "Head":
        """Return the head that replaces this one."""
        trail = (self.w, *self.trail)[:TRAIL_MAX] if self.w else ()
        return replace(self, w=nonce, trail=trail, pending=None, ended=None, **changes)


class Segment(NamedTuple):
    """Part of the history: facts oldest first, and the chain of their states newest first."""

    scope: ScopeKey
    line: str
    facts: tuple[Fact, ...]
    chain: Chain


# Frames


def squeeze(lines: bytes, *, compress: bool) -> Frame:
    stored = lines
    if compress:
        level = _LEVEL if len(lines) < _LARGE_BYTES else _LEVEL_LARGE
        stored = zstandard.ZstdCompressor(level=level, write_checksum=True).compress(lines)
    return Frame(stored, _sum(stored))


def _sum(stored: bytes) -> str:
    return xxhash.xxh3_64_hexdigest(stored)


def _pack(kind: str, more: Mapping[str, Any], frames: Sequence[Frame], *, compress: bool) -> bytes:
    about = {
        "limpet": kind,
        "v": VERSION,
        **more,
        "frames": [len(each.stored) for each in frames],
        "sums": [each.sum for each in frames],
    }
    text = orjson.dumps(about) + b"\n"
    if compress:
        text = _SKIPPABLE + len(text).to_bytes(4, "little") + text
    return text + b"".join(each.stored for each in frames)


class Unpacked(NamedTuple):
    """An object, or its first bytes, with its frames not verified yet."""

    about: dict[str, Any]
    frames: list[bytes]

    def frame(self, number: int) -> Frame:
        """Return a frame, or raise Corrupt if it fails its checksum."""
        try:
            stored, size = self.frames[number], self.about["frames"][number]
            if len(stored) == size and _sum(stored) == self.about["sums"][number]:
                return Frame(stored, self.about["sums"][number])
        except (IndexError, TypeError, KeyError):
            pass
        raise Corrupt(f"a {self.about['limpet']} fails its checksum")

    def lines(self, number: int) -> list[bytes]:
        return self.text(number).split(b"\n")[:-1]

    def text(self, number: int) -> bytes:
        frame = self.frame(number)
        return codec.decompress(frame.stored, what="frame") if frame.is_compressed else frame.stored


def _described(data: bytes) -> tuple[Any, int]:
    """Return the description of an object, and where it ends."""
    if data.startswith(_SKIPPABLE):
        begin, end = 8, 8 + int.from_bytes(data[4:8], "little")
    else:
        begin, end = 0, data.index(b"\n") + 1
    return orjson.loads(data[begin:end]), end


def facts_end(data: bytes) -> int:
    """Return where the facts of a head or a segment end; of what is neither, its own end."""
    try:
        about, end = _described(data)
        return min(end + int(about["frames"][0]), len(data))
    except (KeyError, IndexError, TypeError, ValueError):
        return len(data)


def unpack(kind: str, data: bytes) -> Unpacked:
    """Read the description of an object.

    Raises:
        Corrupt: it is not an object of this kind.
        Unsupported: it was written by a newer version.
    """
    try:
        about, begin = _described(data)
        if about["limpet"] != kind:
            raise ValueError
        version, sizes = about["v"], about.get("frames", [])
        if type(version) is not int or not all(type(each) is int for each in sizes):
            raise ValueError
    except (KeyError, TypeError, ValueError) as cause:
        raise Corrupt(f"an object is not a {kind}. bytes=`{len(data)}`") from cause
    if version != VERSION:
        raise Unsupported(f"a {kind} has a format that is not known. version=`{version}`")
    frames = []
    for size in sizes:
        frames.append(data[begin : begin + size])
        begin += size
    return Unpacked(about, frames)


def parsed(parse: Callable[[], Any]) -> Any:
    """Return what `parse` does; whatever is wrong with the form of what it reads is Corrupt."""
    try:
        return parse()
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as cause:
        raise Corrupt(f"an object has an unknown form. {cause!a}") from cause


# Facts


def dump_fact(fact: Fact) -> bytes:
    row, at = fact.row, ids.place_us(fact.row.seq)
    facts: dict[str, Any] = {"id": row.id, "seq": f"{row.seq:x}", "nonce": row.nonce}
    metadata: Any = None
    if row.metadata != EMPTY:
        # Integers beyond 64 bits need the exact text.
        is_wide = row.metadata.startswith(b" ")
        metadata = row.metadata.decode() if is_wide else orjson.loads(row.metadata)
    more = {
        "size": row.size,
        "rev": row.rev or None,
        "born": fact.born if fact.born != row.nonce else None,
        "own": fact.own or None,
        "kept": None if row.kept else False,
        "parent": row.parent_id,
        "forked_from": None if row.forked_from is None else orjson.loads(row.forked_from),
        "status": row.status or None,
        "labels": fact.labels or None,
        "pointers": [f"{each:x}" for each in fact.pointers]
        if any(each != row.seq for each in fact.pointers)
        else None,
        "metadata": metadata,
        "created_at": row.created_at if row.created_at != at else None,
        "updated_at": row.updated_at if row.updated_at != row.created_at else None,
    }
    facts |= {name: value for name, value in more.items() if value is not None}
    return orjson.dumps(facts) + b"\n"


def parse_fact(line: bytes) -> Fact:
    facts = orjson.loads(line)
    seq = int(facts["seq"], 16)
    created_at = facts.get("created_at", ids.place_us(seq))
    metadata, forked_from = facts.get("metadata"), facts.get("forked_from")
    labels = facts.get("labels", {})
    row = Row(
        seq=seq,
        id=facts["id"],
        rev=facts.get("rev", 0),
        nonce=facts["nonce"],
        kept=facts.get("kept", True),
        parent_id=facts.get("parent"),
        forked_from=None if forked_from is None else orjson.dumps(forked_from),
        status=facts.get("status", ""),
        labels=orjson.dumps(labels) if labels else EMPTY,
        metadata=EMPTY
        if metadata is None
        else metadata.encode()
        if isinstance(metadata, str)
        else orjson.dumps(metadata),
        created_at=created_at,
        updated_at=facts.get("updated_at", created_at),
        saved_at=seq,
        size=facts["size"],
    )
    if not (type(row.rev) is type(row.size) is int and isinstance(row.id, str)):
        raise TypeError("a fact has another type")
    if not 0 <= row.size <= STORED_BYTES_MAX:
        raise ValueError("a state is too large")
    times.from_us(row.created_at)
    times.from_us(row.updated_at)
    stamps = facts.get("pointers", [facts["seq"]] * len(labels))
    pointers = tuple(int(each, 16) for each in stamps) if row.kept else ()
    return Fact(row, facts.get("born", row.nonce), facts.get("own", False), pointers)


def _dump_delta(row: Row, each: Delta) -> bytes:
    return orjson.dumps({"of": row.id, "steps": each.ops, "new": each.literal.decode()}) + b"\n"


def _parse_delta(line: bytes, row: Row) -> Delta:
    given = orjson.loads(line)
    found = Delta(given["steps"], given["new"].encode())
    if given["of"] != row.id or not delta.is_valid(found) or delta.size_of(found) != row.size:
        raise ValueError("a delta is not that of its snapshot")
    return found


# Heads


def dump_head(head: Head, *, compress: bool) -> tuple[bytes, Head]:
    """Return the bytes of a head, and the head with its stored base."""
    about = {
        "scope": list(head.scope),
        "line": head.line,
        "w": head.w,
        "trail": head.trail,
        "last": f"{head.last:x}",
        "floor": head.floor,
        "shown": None if head.shown is None else [head.shown[0], f"{head.shown[1]:x}"],
        "lease": None if head.lease is None else head.lease._asdict(),
        "pending": head.pending,
        "ended": head.ended,
        "paid": head.paid,
        "segments": [
            (each.name, f"{each.first:x}", f"{each.last:x}", *each[3:]) for each in head.segments
        ],
        "root": head.is_rooted or None,
        "offsets": head.offsets,
    }
    lines = [orjson.dumps({k: v for k, v in about.items() if v is not None}) + b"\n"]
    lines += [dump_fact(each.fact) for each in head.entries]
    deltas = [_dump_delta(e.row, e.delta) for e in head.entries if e.delta is not None]
    texts = [b"".join(lines), b"".join(deltas)]
    size = sum(map(len, texts)) + len(head.base or b"")
    compress = compress and size >= _COMPRESSED_MIN
    frames = [squeeze(each, compress=compress) for each in texts]
    if head.base is not None:
        frame = head.base_frame
        if frame is None or frame.is_compressed != compress:
            frame = squeeze(head.base + b"\n", compress=compress)
        head = replace(head, base_frame=frame)
        frames.append(frame)
    return _pack("head", {}, frames, compress=compress), head


class StoredHead(NamedTuple):
    """A head as it was read: its facts verified, its states not yet."""

    facts_only: Head
    unpacked: Unpacked

    def whole(self) -> Head:
        """Return the head with its states, or raise Corrupt."""
        return parsed(self._whole)  # type: ignore[no-any-return]

    def _whole(self) -> Head:
        head, unpacked = self.facts_only, self.unpacked
        lines = iter(unpacked.lines(1))
        entries = tuple(
            each
            if head.is_rooted and at == 0
            else Entry(each.fact, _parse_delta(next(lines), each.row))
            for at, each in enumerate(head.entries)
        )
        head = replace(head, entries=entries)
        if len(unpacked.frames) > 2:
            text = unpacked.text(2)[:-1]
            if head.is_rooted and len(text) != head.entries[0].row.size:
                raise ValueError("the base is not that of its snapshot")
            head = replace(head, base=text, base_frame=unpacked.frame(2))
        elif head.is_rooted:
            raise ValueError("the base is missing")
        return head


def parse_head(data: bytes) -> StoredHead:
    unpacked = unpack("head", data)
    head: Head = parsed(lambda: _parse_facts(unpacked.lines(0)))
    return StoredHead(head, unpacked)


def _parse_facts(lines: Sequence[bytes]) -> Head:
    about = orjson.loads(lines[0])
    shown, lease, offsets = about.get("shown"), about.get("lease"), about.get("offsets")
    ended = about.get("ended")
    return Head(
        scope=ScopeKey(*about["scope"]),
        line=about["line"],
        w=about["w"],
        trail=tuple(about["trail"]),
        last=int(about["last"], 16),
        floor=about["floor"],
        shown=None if shown is None else (shown[0], int(shown[1], 16)),
        lease=None if lease is None else HeadLease(**lease),
        pending=about.get("pending"),
        ended=None if ended is None else (ended[0], ended[1], ended[2]),
        paid=about["paid"],
        segments=tuple(
            Named(name, int(first, 16), int(last, 16), *numbers)
            for name, first, last, *numbers in about["segments"]
        ),
        offsets=None
        if offsets is None
        else {key: None if each is None else (each[0], each[1]) for key, each in offsets.items()},
        is_rooted=about.get("root", False),
        entries=tuple(Entry(parse_fact(line), None) for line in lines[1:]),
    )


# Segments


def dump_segment(name: str, segment: Segment, *, compress: bool) -> tuple[bytes, Named, Frame]:
    """Return the bytes of a segment, how a head names it, and the frame of its newest state."""
    rows = [fact.row for fact in segment.facts]
    facts = squeeze(b"".join(map(dump_fact, segment.facts)), compress=compress)
    pairs = zip(reversed(rows[:-1]), segment.chain.deltas, strict=True)
    deltas = squeeze(b"".join(_dump_delta(row, each) for row, each in pairs), compress=compress)
    state = squeeze(segment.chain.first + b"\n", compress=compress)
    about = {"scope": list(segment.scope), "line": segment.line, "name": name}
    data = _pack("segment", about, [facts, deltas, state], compress=compress)
    logical = sum(row.size for row in rows)
    facts_bytes = len(data) - len(deltas.stored) - len(state.stored)
    weights = (len(data), facts_bytes, len(deltas.stored), logical)
    return data, Named(name, rows[0].seq, rows[-1].seq, len(rows), *weights), state


def parse_segment_facts(unpacked: Unpacked) -> tuple[Fact, ...]:
    facts: tuple[Fact, ...] = parsed(lambda: tuple(map(parse_fact, unpacked.lines(0))))
    return facts


def parse_segment(unpacked: Unpacked) -> Segment:
    facts = parse_segment_facts(unpacked)

    def parse() -> Segment:
        rows = [fact.row for fact in reversed(facts)]
        first = unpacked.text(2)[:-1]
        lines = unpacked.lines(1)
        if len(first) != rows[0].size:
            raise ValueError("the newest state is not that of its snapshot")
        pairs = zip(lines, rows[1:], strict=True)
        chain = Chain(first, tuple(_parse_delta(line, row) for line, row in pairs))
        return Segment(ScopeKey(*unpacked.about["scope"]), unpacked.about["line"], facts, chain)

    segment: Segment = parsed(parse)
    return segment
