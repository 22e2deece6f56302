"""The object document: exact both ways, listed by its beginning, and proved byte by byte."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from datetime import datetime
from itertools import cycle
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limpet.core import codec, document
from limpet.core.document import (
    OPENING_BYTES_MAX,
    WHOLE_BYTES,
    Document,
    Header,
    Tombstone,
    read,
    read_header,
    read_tombstone,
    write,
    write_tombstone,
)
from limpet.core.rows import pack_ref
from limpet.errors import Corrupt, InvalidInput
from limpet.model import JSON, ScopeKey, SnapshotRef

UNHURRIED = settings(deadline=None)  # a busy machine is no failure

NONCE = "0123456789abcdef"
LINE = "01a1dc8a-81ea-75e0-a6d1-b642f715f554"
SMALL = Header(
    id="a",
    line=None,
    seq=0,
    rev=0,
    nonce="",
    born="",
    w="",
    created_at=0,
    updated_at=0,
    at=0,
    size=2,
)
FULL = Header(
    id="snap/É",
    line=LINE,
    seq=7,
    rev=2,
    nonce=NONCE,
    born="b" * 16,
    w="c" * 16,
    created_at=1_767_225_601_234_567,
    updated_at=1_767_225_602_000_000,
    at=1_767_225_601_234,
    size=17,
    last=9,
    kept=False,
    void=True,
    mixed=True,
    foreign=True,
    trail=("c" * 16, NONCE),
    floor=LINE,
    fence="lease",
    pending=LINE,
    session_id="s" * 300,
    scope_id="t" * 300,
    parent="root",
    forked_from=pack_ref(SnapshotRef(ScopeKey("x", "y", "graph"), "z")),
    status="completed",
    labels=b'{"run_id":"r"}',
    metadata=codec.encode({"tokens": 2**70, "\0é": [1.0, None, {}]}),
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES: st.SearchStrategy[JSON] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
BODIES = VALUES.map(codec.encode)
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=4).map(codec.encode)
ENVELOPES = st.builds(
    lambda others, made, app_data: codec.encode(
        {"strands": {**others, "createdAt": made, "schemaVersion": made, "appData": app_data}}
    ),
    st.dictionaries(TEXT, VALUES, max_size=3),
    VALUES | st.just("2026-01-01T00:00:01.234Z"),
    VALUES | st.dictionaries(TEXT | st.just("limpet"), VALUES, max_size=3),
)
LABELS = st.dictionaries(TEXT, TEXT, max_size=3).map(codec.encode)
COUNTS = st.integers(0, 2**63 - 1)
TIMES = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
MAYBE = st.none() | TEXT
HEADERS = st.builds(
    Header,
    id=TEXT,
    line=MAYBE,
    seq=COUNTS,
    rev=COUNTS,
    nonce=TEXT,
    born=TEXT,
    w=TEXT,
    created_at=TIMES,
    updated_at=TIMES,
    at=COUNTS,
    size=COUNTS,
    last=COUNTS,
    kept=st.booleans(),
    void=st.booleans(),
    mixed=st.booleans(),
    foreign=st.booleans(),
    trail=st.lists(TEXT, max_size=16).map(tuple),
    floor=TEXT,
    fence=MAYBE,
    pending=MAYBE,
    session_id=MAYBE,
    scope_id=MAYBE,
    parent=MAYBE,
    forked_from=st.none()
    | st.builds(SnapshotRef, st.builds(ScopeKey, TEXT, TEXT, TEXT), TEXT).map(pack_ref),
    status=TEXT,
    labels=LABELS,
    metadata=OBJECTS | ENVELOPES,
)
KINDS = st.sampled_from(["agent", "multiAgent", "a", "k" * 64])


def test_a_document_is_a_strands_snapshot() -> None:
    stored = write(FULL, "agent", b'{"messages":[]}')
    found = json.loads(stored)
    assert list(found) == ["scope", "schemaVersion", "createdAt", "appData", "data"]
    assert found["scope"] == "agent"
    assert found["schemaVersion"] == "1.0"
    assert found["createdAt"] == "2026-01-01T00:00:01.234Z"
    assert datetime.fromisoformat(found["createdAt"]).utcoffset() is not None
    assert found["data"] == {"messages": []}
    ours = found["appData"]["limpet"]
    assert list(ours)[:3] == ["n", "sum", "data_sum"]
    assert stored.index(b'"data":{"messages"') == ours["n"]
    assert ours["metadata"] == json.loads(FULL.metadata)
    assert set(ours) == {"n", "sum", "data_sum"} | {each.name for each in fields(Header)}


def test_what_stood_around_a_state_is_shown_to_other_tools() -> None:
    envelope: dict[str, JSON] = {
        "scope": "agent",
        "schemaVersion": "2.0",
        "createdAt": "2026-03-01T12:00:00.250Z",
        "appData": {"limpet": "theirs", "k": 2**70},
        "created_at": "2026-03-01T12:00:00.250123Z",
        "data": "not the state",
    }
    stored = write(replace(SMALL, metadata=codec.encode({"strands": envelope})), "agent", b"[1]")
    found = json.loads(stored)
    shown = ["scope", "schemaVersion", "createdAt", "appData", "created_at", "data"]
    assert list(found) == shown
    assert [found[name] for name in shown if name != "appData"] == [
        "agent",
        "2.0",
        "2026-03-01T12:00:00.250Z",
        "2026-03-01T12:00:00.250123Z",
        [1],
    ]
    assert found["appData"]["k"] == 2**70
    assert list(found["appData"]) == ["limpet", "k"]
    again = read(stored).header
    assert again is not None
    assert codec.decode(again.metadata) == {"strands": envelope}


@pytest.mark.parametrize("odd", [None, 7, "yesterday", '2026-03-01T12:00:00.25"Z', ""])
def test_what_others_could_not_read_is_not_shown(odd: JSON) -> None:
    envelope = {"schemaVersion": odd, "createdAt": odd, "appData": odd}
    header = replace(SMALL, metadata=codec.encode({"strands": envelope}))
    found = json.loads(write(header, "agent", b"{}"))
    assert found["createdAt"] == "1970-01-01T00:00:00.000Z"
    assert list(found["appData"]) == ["limpet"]


def test_the_bytes_of_a_document_never_change() -> None:
    """What was written by any version must be read by the next: the format is pinned."""
    header = replace(SMALL, line=LINE, nonce=NONCE, born=NONCE, w=NONCE, status="completed")
    assert write(replace(header, seq=2**60 + 1, last=2**63 - 1), "agent", b'{"x":1}') == (
        b'{"scope":"agent","schemaVersion":"1.0","createdAt":"1970-01-01T00:00:00.000Z",'
        b'"appData":{"limpet":{"n":421,"sum":"c096f00a2c6c58a2","data_sum":"14f9246c1801db4b",'
        b'"id":"a","line":"01a1dc8a-81ea-75e0-a6d1-b642f715f554","seq":"1000000000000001","rev":0,'
        b'"nonce":"0123456789abcdef","born":"0123456789abcdef","w":"0123456789abcdef",'
        b'"created_at":0,"updated_at":0,"at":0,"size":2,"last":"7fffffffffffffff",'
        b'"status":"completed"}},"data":{"x":1}}'
    )


def test_the_revision_is_that_of_the_save_not_of_the_write() -> None:
    assert FULL.revision == f"7.2.{NONCE}"
    assert replace(FULL, w="other").revision == FULL.revision


def test_the_smallest_document_is_no_tombstone_by_size() -> None:
    stored = write(SMALL, "a", b"0")
    assert len(stored) >= document.LIVE_BYTES_MIN
    assert read(stored) == Document("a", b"0", SMALL)
    assert read_tombstone(stored) is None


@pytest.mark.parametrize("state", [None, [], "text", 0, 1.0, 2**64, {"big": -(2**90)}, "\0"])
def test_data_is_the_state_whatever_its_type(state: JSON) -> None:
    body = codec.encode(state)
    found = read(write(FULL, "thread", body))
    assert found.body == body
    assert codec.decode(found.body) == state


def test_n_is_exact_where_its_own_digits_grow() -> None:
    """A header of 999 bytes and one of 1,000 differ by two: the byte, and its digit."""
    lengths = set()
    for extra in range(1200):
        header = replace(SMALL, status="x" * extra)
        stored = write(header, "agent", b"{}")
        n = orjson.loads(stored)["appData"]["limpet"]["n"]
        assert stored[n:] == b'"data":{}}'
        assert read_header(stored[:n]) == header
        lengths.add(n)
    assert {998, 999, 1001} <= lengths


@UNHURRIED
@given(header=HEADERS, kind=KINDS, body=BODIES)
def test_round_trip(header: Header, kind: str, body: bytes) -> None:
    stored = write(header, kind, body)
    assert stored == write(header, kind, body)
    assert read(stored) == Document(kind, body, header)
    orjson.loads(stored)
    n = json.loads(stored)["appData"]["limpet"]["n"]
    assert stored[n:] == b'"data":' + body + b"}"


@UNHURRIED
@given(header=HEADERS, kind=KINDS, body=BODIES, data=st.data())
def test_the_beginning_lists_a_document(
    header: Header, kind: str, body: bytes, data: st.DataObject
) -> None:
    stored = write(header, kind, body)
    n = json.loads(stored)["appData"]["limpet"]["n"]
    size = data.draw(st.integers(0, len(stored)))
    found = read_header(stored[:size])
    if size >= n:
        assert found == header
    else:
        assert found in (n, OPENING_BYTES_MAX)
        assert isinstance(found, int)
        assert found > size or found == OPENING_BYTES_MAX > len(stored)
    assert size < OPENING_BYTES_MAX or found in (n, header)
    assert read_header(stored[:n] + b"\xff not looked at") == header


@UNHURRIED
@given(header=HEADERS, kind=KINDS, body=BODIES, data=st.data())
def test_no_changed_byte_goes_unnoticed(
    header: Header, kind: str, body: bytes, data: st.DataObject
) -> None:
    stored = bytearray(write(header, kind, body))
    at = data.draw(st.integers(0, len(stored) - 1))
    was = stored[at]
    stored[at] ^= data.draw(st.integers(1, 255))
    if {was, stored[at]} <= set(b" \t\r\n"):
        return  # that is for the test of white space
    with pytest.raises(Corrupt):
        read(bytes(stored))


@pytest.mark.parametrize("header", [SMALL, FULL])
def test_no_flipped_bit_goes_unnoticed(header: Header) -> None:
    stored = write(header, "agent", b'{"data":{"n":1}}')
    n = json.loads(stored)["appData"]["limpet"]["n"]
    for at in range(len(stored)):
        for bit in range(8):
            damaged = bytearray(stored)
            damaged[at] ^= 1 << bit
            with pytest.raises(Corrupt):
                read(bytes(damaged))
            if at < n:
                assert listed(bytes(damaged[:n])) is None


def listed(first: bytes) -> Header | None:
    """Return what a listing would show of the first bytes, if anything."""
    try:
        found = read_header(first)
    except Corrupt:
        return None
    return found if isinstance(found, Header) else None


@UNHURRIED
@given(header=HEADERS, body=BODIES, data=st.data())
def test_a_document_cut_short_or_run_on_is_corrupt(
    header: Header, body: bytes, data: st.DataObject
) -> None:
    stored = write(header, "agent", body)
    for other in (
        stored[: data.draw(st.integers(0, len(stored) - 1))],
        stored + data.draw(st.binary(min_size=1, max_size=3)),
        stored + b"\n",
    ):
        with pytest.raises(Corrupt):
            read(other)


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b" ",
        b"null",
        b"[]",
        b'"text"',
        b"{}",
        b'{"scope":"agent"}',
        b'{"data":',
        b'\xef\xbb\xbf{"data":{}}',
        b'{"data":NaN}',
        b'{"data":{"x":9999999999999999999,"y":NaN}}',
        b'{"data":"\\ud800"}',
        b'{"data":"\xff"}',
        b'{"data":' + b"[" * 300 + b"]" * 300 + b"}",
        b'{"data":[9999999999999999999,' + b"[" * 1000 + b"]" * 1000 + b"]}",
        b'{"data":' + b"9" * 5000 + b"}",
    ],
)
def test_what_is_no_document_is_corrupt(stored: bytes) -> None:
    with pytest.raises(Corrupt):
        read(stored)
    assert read_header(stored) in (OPENING_BYTES_MAX, WHOLE_BYTES)


def test_places_survive_tools_that_round_integers() -> None:
    """Of a place not one bit may go: JavaScript keeps 53 of them, so it is text."""
    header = replace(SMALL, seq=2**62 + 1, last=2**63 - 1)
    stored = write(header, "agent", b"{}")
    rounded = json.dumps(json.loads(stored, parse_int=float), separators=(",", ":"))
    found = json.loads(rounded)["appData"]["limpet"]
    assert (int(found["seq"], 16), int(found["last"], 16)) == (header.seq, header.last)
    assert read(stored).header == header
    for places in ('"seq":5', '"seq":"x"', '"seq":null'):
        with pytest.raises(Corrupt):
            read(_rewritten(stored, b'"seq":"4000000000000001"', places.encode()))


SPACES = st.sampled_from(["", " ", "\n", "\t", "\r\n  "])


def respaced(stored: bytes, spaces: Iterator[str]) -> bytes:
    """Return a document with white space between its tokens, and not one inside a text."""
    pieces = re.split(r'("(?:[^"\\]|\\.)*"|[{}\[\],:])', stored.decode())
    return "".join(f"{piece.strip()}{next(spaces)}" for piece in pieces).encode()


@settings(deadline=None, max_examples=40)
@given(HEADERS, KINDS, BODIES, st.lists(SPACES.filter(bool), min_size=1, max_size=5))
def test_ours_with_other_white_space_is_ours(
    header: Header, kind: str, body: bytes, spaces: list[str]
) -> None:
    """Tools that copy sessions write them so. Both sums still prove all of it."""
    other = respaced(write(header, kind, body), cycle(spaces))
    assert read(other) == Document(kind, body, header)


@pytest.mark.parametrize("indent", [None, 0, 2])
@pytest.mark.parametrize("header", [SMALL, FULL])
def test_ours_written_by_another_tool_is_ours(header: Header, indent: int | None) -> None:
    body = codec.encode({"text": 'a "data": b', "é": [1.0, None, {}]})
    other = json.dumps(json.loads(write(header, "agent", body)), indent=indent, ensure_ascii=False)
    assert read(other.encode()) == Document("agent", body, header)
    first = other.encode()[:OPENING_BYTES_MAX]
    assert read_header(first) == WHOLE_BYTES  # its beginning does not tell


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "the state": lambda found: found["data"].update(text="other"),
    "the order of its keys": lambda found: found.update(data={"b": 1, "a": 1.0}),
    "an integer that was a float": lambda found: found["data"].update(a=1),
    "the kind": lambda found: found.update(scope="graph"),
    "the time": lambda found: found.update(createdAt="2026-01-01T00:00:01.235Z"),
    "the version": lambda found: found.update(schemaVersion="1.1"),
    "a key more": lambda found: found.update(x=1),
    "a key less": lambda found: found.pop("createdAt"),
    "a key more beside ours": lambda found: found["appData"].update(mine=1),
    "a field": lambda found: found["appData"]["limpet"].update(status="other"),
    "a field more": lambda found: found["appData"]["limpet"].update(extra=1),
    "a field less": lambda found: found["appData"]["limpet"].pop("status"),
    "a field we need": lambda found: found["appData"]["limpet"].pop("id"),
    "a place that is none": lambda found: found["appData"]["limpet"].update(seq=7),
    "the length": lambda found: found["appData"]["limpet"].update(n=1),
    "a sum": lambda found: found["appData"]["limpet"].update(sum="0" * 16),
    "the other sum": lambda found: found["appData"]["limpet"].update(data_sum="0" * 16),
    "no header": lambda found: found["appData"].update(limpet=None),
}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("change", CHANGES)
def test_ours_changed_by_another_tool_is_corrupt_not_foreign(
    change: str, indent: int | None
) -> None:
    found = json.loads(write(FULL, "agent", codec.encode({"a": 1.0, "b": 1, "text": "x"})))
    CHANGES[change](found)
    with pytest.raises(Corrupt):
        read(json.dumps(found, indent=indent).encode())


def test_a_header_of_a_later_version() -> None:
    """Fields that are not known are ignored; a known one that is missing is Corrupt."""
    stored = write(SMALL, "agent", b"{}")
    assert read(_rewritten(stored, b'"id":', b'"new":[1],"id":')).header == SMALL
    with pytest.raises(Corrupt):
        read(_rewritten(stored, b'"seq":', b'"place":'))
    # As `tip` was, which is written no more.
    assert read(_rewritten(stored, b'"id":', b'"tip":"x","id":')).header == SMALL


def _rewritten(stored: bytes, old: bytes, new: bytes) -> bytes:
    """Return the document with a header changed and its length and sum made right again."""
    was = orjson.loads(stored)["appData"]["limpet"]["n"]
    n = was + len(new) - len(old)
    header, data = stored[:was].replace(old, new, 1), stored[was:]
    before, _, after = header.partition(b'"n":')
    sums = after.partition(b'"sum":"')[2]
    before = b'%s"n":%d,"sum":"' % (before, n)
    proof = b"%016x" % (codec.checksum_of(before, sums[16:]) % 2**64)
    return before + proof + sums[16:] + data


FOREIGN = {
    "scope": "agent",
    "schemaVersion": "1.0",
    "createdAt": "2026-01-01T00:00:01.000Z",
    "data": {"messages": [], "state": {"i": 1, "big": 10**20, "f": 1.0}},
    "appData": {"mine": {"n": 5}},
}


@pytest.mark.parametrize("indent", [None, 2])
def test_foreign_documents_are_read_as_they_are(indent: int | None) -> None:
    stored = json.dumps(FOREIGN, indent=indent).encode()
    found = read(stored)
    assert found.header is None
    assert found.kind == "agent"
    assert found.body == codec.encode(FOREIGN["data"])
    assert found.envelope == {k: v for k, v in FOREIGN.items() if k != "data"}
    assert read_header(stored) in (OPENING_BYTES_MAX, WHOLE_BYTES)
    assert read_header(stored.ljust(OPENING_BYTES_MAX)) == WHOLE_BYTES


def test_foreign_documents_of_other_shapes() -> None:
    snake = read(b'{"scope": 5, "created_at": "x", "data": null, "appData": null}')
    assert snake == Document("", b"null", None, {"scope": 5, "created_at": "x", "appData": None})


def test_tombstones() -> None:
    longest = Tombstone(LINE, 2**63 - 1, NONCE)
    stored = write_tombstone(longest)
    assert stored == (
        b'{"limpet":"deleted","line":"%s","seq":"7fffffffffffffff","born":"%s"}'
        % (LINE.encode(), NONCE.encode())
    )
    assert len(stored) <= document.TOMBSTONE_BYTES_MAX < document.LIVE_BYTES_MIN
    for tombstone in (longest, Tombstone(None, 0, "")):
        assert read_tombstone(write_tombstone(tombstone)) == tombstone
        with pytest.raises(Corrupt):
            read(write_tombstone(tombstone))
    with pytest.raises(InvalidInput):
        write_tombstone(Tombstone(LINE * 2, 1, NONCE))


def test_a_damaged_tombstone_revives_nothing() -> None:
    stored = write_tombstone(Tombstone(LINE, 12, NONCE))
    for at in range(len(stored)):
        damaged = bytearray(stored)
        damaged[at] ^= 1
        with pytest.raises(Corrupt):
            read(bytes(damaged))
    for other in (b"", stored[:-1], stored + b" " * 100, b'{"limpet":"deleted","line":1}'):
        assert read_tombstone(other) is None
    for seq in (b"12", b'""', b'"0x1"', b'"-1"', b'"1_0"', b'"C"', b'"%s"' % (b"1" * 17), b"null"):
        assert read_tombstone(stored.replace(b'"c"', seq)) is None
