"""The document of a note: exact both ways, and proved byte by byte."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limpet.core import codec, notes
from limpet.core.notes import NoteFile, NoteRow
from limpet.errors import Corrupt
from limpet.model import JSON

UNHURRIED = settings(deadline=None)  # a busy machine is no failure

NONCE = "0123456789abcdef"
SMALL = NoteFile(NoteRow("", "n", 0, NONCE, 0, b"null"))
FULL = NoteFile(
    NoteRow(
        'snap},"value":É',
        '},"value":',
        7,
        NONCE,
        -1,
        codec.encode({"},": 2**70, '},"value":': ['"', "\\", "\0é"]}),
    ),
    ("a" * 16, "b" * 16),
    "s" * 300,
    '},"value":1}' * 30,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
STRANGE = TEXT | st.sampled_from(['},"value":', '"},"value":{}}', '\\},\\"value\\":', "{", "\0"])
VALUES: st.SearchStrategy[JSON] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | STRANGE,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STRANGE, inner, max_size=4),
    max_leaves=12,
)
FILES = st.builds(
    NoteFile,
    st.builds(
        NoteRow,
        STRANGE,
        STRANGE,
        st.integers(0, 2**53),
        TEXT,
        st.integers(-(2**55), 2**55),
        VALUES.map(codec.encode),
    ),
    st.lists(TEXT, max_size=16).map(tuple),
    st.none() | STRANGE,
    st.none() | STRANGE,
)


def test_the_bytes_of_a_note_never_change() -> None:
    """What was written by any version must be read by the next: the format is pinned."""
    file = NoteFile(NoteRow("a", "review", 1, NONCE, 1_767_225_601_234_567, b'{"stars":5}'), ("x",))
    assert notes.write(file) == (
        b'{"limpet":{"sum":"92dab5f39c7cd3ba","name":"review","on":"a","rev":1,'
        b'"nonce":"0123456789abcdef","updated_at":1767225601234567,"trail":["x"]},'
        b'"value":{"stars":5}}'
    )
    assert notes.write(SMALL) == (
        b'{"limpet":{"sum":"fd4900562ad77cf0","name":"n","rev":0,'
        b'"nonce":"0123456789abcdef","updated_at":0},"value":null}'
    )


@UNHURRIED
@given(file=FILES)
def test_round_trip(file: NoteFile) -> None:
    stored = notes.write(file)
    assert notes.read(stored) == file
    found = json.loads(stored)
    assert list(found) == ["limpet", "value"]
    assert found["value"] == codec.decode(file.row.value)
    assert found["limpet"]["name"] == file.row.name


@pytest.mark.parametrize("value", [2**64, -(2**70), [1.0, 1], {"a": {"wide": 10**30}}, "", {}])
def test_values_are_exact(value: Any) -> None:
    row = SMALL.row._replace(value=codec.encode(value))
    found = codec.decode(notes.read(notes.write(NoteFile(row))).row.value)
    assert repr(found) == repr(value)


@pytest.mark.parametrize("file", [SMALL, FULL])
def test_no_flipped_bit_goes_unnoticed(file: NoteFile) -> None:
    stored = notes.write(file)
    for at in range(len(stored)):
        for bit in range(8):
            damaged = bytearray(stored)
            damaged[at] ^= 1 << bit
            with pytest.raises(Corrupt):
                notes.read(bytes(damaged))


@pytest.mark.parametrize("file", [SMALL, FULL])
def test_a_note_cut_short_or_run_on_is_corrupt(file: NoteFile) -> None:
    stored = notes.write(file)
    cuts = [stored[:at] for at in range(len(stored))]
    for other in [*cuts, stored + b"\n", b" " + stored, b"\xef\xbb\xbf" + stored, stored * 2]:
        with pytest.raises(Corrupt):
            notes.read(other)


def test_a_note_that_another_tool_wrote_is_corrupt() -> None:
    """Nobody else knows notes, so there is no foreign one. `manifest.json` is no such document."""
    for other in (b"{}", b'{"value":1}', b"null", json.dumps(json.loads(notes.write(FULL)))):
        with pytest.raises(Corrupt):
            notes.read(other if isinstance(other, bytes) else other.encode())


def test_a_note_of_a_later_version() -> None:
    """Fields that are not known are ignored; a known one that is missing is Corrupt."""
    stored = notes.write(FULL)
    assert notes.read(proved(stored.replace(b'"rev":', b'"new":[1],"rev":'))) == FULL
    for field in (b'"rev":', b'"nonce":', b'"name":', b'"updated_at":'):
        with pytest.raises(Corrupt):
            notes.read(proved(stored.replace(field, b'"other":', 1)))
    with pytest.raises(Corrupt):
        notes.read(proved(notes.write(SMALL).replace(b'"rev":0', b'"rev":')))


def proved(stored: bytes) -> bytes:
    """Return a note with its sum made right again."""
    start = stored.index(b'"sum":"') + 7
    rest = stored[start + 16 :]
    return b"%s%016x%s" % (stored[:start], codec.checksum_of(rest) % 2**64, rest)
