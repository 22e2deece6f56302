"""The bytes of the Go store's files."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limpet import Corrupt, InvalidInput
from limpet.compat.runs import Checkpoint, GoRunStore, go
from limpet.compat.runs.records import without_state
from tests.cases import for_each
from tests.compat.runs.hands import HELLO, SESSIONS, large
from tests.present import present

moderate = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
WRITTEN_BY_GO = [HELLO, "adhoc-1772416501999", "nil-messages", "zero-time"]


@for_each("run_id", WRITTEN_BY_GO)
def test_what_go_wrote_is_written_again_byte_for_byte(run_id: str) -> None:
    data = (SESSIONS / f"{run_id}.json").read_bytes()
    assert go.encode(go.decode(data)) == data


def test_what_was_not_utf8_is_a_character_from_then_on() -> None:
    """Go writes an escape for a bad byte, and the character itself once it has read that."""
    data = (SESSIONS / "badutf8.json").read_bytes()
    assert b"\\ufffd" in data
    found = go.decode(data)
    assert found.system_prompt == "a\ufffdb"
    assert go.encode(found) == data.replace(b"\\ufffd", "\ufffd".encode())


def test_characters_are_escaped_as_go_does_it() -> None:
    text = '"\\/\b\f\n\r\t\0\x1f\x7f<>&\u2028\u2029\u00e9\U0001f600'
    written = go.encode(Checkpoint(text, created_at="0001-01-01T00:00:00Z")).decode()
    assert written.splitlines()[1] == (
        '  "run_id": "\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\x7f\\u003c\\u003e\\u0026'
        '\\u2028\\u2029é😀",'
    )


def test_fields_that_go_does_not_know_stand_behind_the_others() -> None:
    data = go.encode(Checkpoint("r", created_at="0001-01-01T00:00:00Z", extra={"x": [1]}))
    assert data.endswith(b'"created_at": "0001-01-01T00:00:00Z",\n  "x": [\n    1\n  ]\n}')


@for_each(
    ("data", "prompt"),
    [
        (b'"\xff\xe2\x82x"', "\ufffd\ufffd\ufffdx"),  # one for each byte
        (b'"\xed\xa0\x80"', "\ufffd\ufffd\ufffd"),
        (b'"\\ud800x\\uDC00"', "\ufffdx\ufffd"),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"\\\\ud800"', "\\ud800"),
    ],
)
def test_what_is_no_text_is_read_as_go_reads_it(data: bytes, prompt: str) -> None:
    assert go.decode(b'{"system_prompt":' + data + b"}").system_prompt == prompt


@for_each(
    "data",
    [
        b"",
        b" ",
        b"null",
        b"[]",
        b"1",
        b"{",
        b'{"run_id":"r"',
        b'{"run_id":"r"} x',
        b'\xef\xbb\xbf{"run_id":"r"}',
        b'{"run_id":1}',
        b'{"iteration":1.0}',
        b'{"iteration":"1"}',
        b'{"iteration":9223372036854775808}',
        b'{"messages":{}}',
        b'{"messages":[NaN]}',
        b'{"messages":[1e999]}',
        b'{"messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"created_at":""}',
        b'{"created_at":"2026-03-01"}',
        b'{"created_at":1}',
    ],
)
def test_what_is_no_checkpoint_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt, match="the file is no"):
        go.decode(data)


def test_null_and_missing_fields_are_zero() -> None:
    fields = dict.fromkeys(Checkpoint("r").to_json())
    zero = Checkpoint("", created_at="0001-01-01T00:00:00Z")
    assert go.decode(json.dumps(fields).encode()) == zero
    assert go.decode(b"{}") == zero


def test_a_time_of_more_than_nine_digits_is_cut() -> None:
    data = b'{"Created_At":"2026-03-01T20:54:15.1234567891-05:00"}'
    assert go.decode(data).created_at == "2026-03-01T20:54:15.123456789-05:00"


def test_what_is_not_json_is_refused_with_its_path() -> None:
    with pytest.raises(InvalidInput, match="path=`/messages/1/x`"):
        go.encode(Checkpoint("r", messages=[1, {"x": float("nan")}]))


LETTERS = st.text(st.sampled_from('{}[]",:\\\n\r\t \u2028<aß😀\0'), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(LETTERS, inner, max_size=3),
    max_leaves=8,
)
FIELDS = '\n  "input_tokens": 9,\n  "output_tokens": 9,\n  "created_at": "0001-01-01T00:00:00Z"\n}'
CHECKPOINTS = st.builds(
    Checkpoint,
    run_id=LETTERS,
    task_name=LETTERS,
    iteration=st.integers(-(2**63), 2**63 - 1),
    messages=st.none() | st.lists(VALUES | LETTERS | st.just(FIELDS), max_size=4),
    system_prompt=LETTERS | st.just(FIELDS),
    input_tokens=st.integers(-(2**63), 2**63 - 1),
    created_at=st.sampled_from(["0001-01-01T00:00:00Z", "2026-03-01T20:54:15.000000009+23:59"]),
    extra=st.dictionaries(LETTERS | st.just("x"), VALUES, max_size=2),
)


@moderate
@given(CHECKPOINTS)
def test_a_checkpoint_is_read_as_it_was_written(checkpoint: Checkpoint) -> None:
    data = go.encode(checkpoint)
    assert go.decode(data) == checkpoint
    assert json.loads(data) == checkpoint.to_json()


@moderate
@given(CHECKPOINTS, st.data())
def test_the_ends_tell_the_truth_or_nothing(checkpoint: Checkpoint, data: st.DataObject) -> None:
    """Whatever the messages hold, and wherever the file was cut short."""
    whole = go.encode(checkpoint)
    found = present(go.decode_ends(whole, whole))
    assert {**found.to_json(), "run_id": checkpoint.run_id} == without_state(checkpoint).to_json()
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert go.decode_ends(cut, cut) is None


def store_of(folder: Path, wire: dict[str, Any], **how: Any) -> GoRunStore:
    runs = GoRunStore(folder)
    (folder / "r.json").write_text(json.dumps(wire, **how))
    return runs


def test_a_large_file_in_another_layout_is_listed(tmp_path: Path) -> None:
    """It is read whole: to leave out what can be loaded would be worse."""
    saved = large("r")
    for how in ({}, {"indent": 4}, {"indent": 2, "sort_keys": True}):
        (found,) = store_of(tmp_path, saved.to_json(), **how).list()
        assert found == without_state(saved)


def test_a_large_file_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    runs = GoRunStore(tmp_path)
    runs.save(large("r"))
    os.truncate(tmp_path / "r.json", 100_000)
    assert runs.list() == []
    assert [each.code for each in runs.check()] == ["checkpoint_damaged"]
    runs.save(large("r"))
    assert (tmp_path / "r.json.corrupt-1").stat().st_size == 100_000


def test_foreign_files_are_no_reason_to_fail(tmp_path: Path) -> None:
    runs = GoRunStore(tmp_path)
    (tmp_path / ".json").write_bytes(b"{}")
    (tmp_path / "other.txt").write_bytes(b"")
    (tmp_path / "UPPER.JSON").write_bytes(b"{}")
    (tmp_path / "dead.json").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe.json")
    with open(os.fsencode(tmp_path) + b"/\xff.json", "wb"):
        pass
    assert runs.list() == []
    codes = ["link_skipped", "name_wrong", "name_wrong"]
    assert [each.code for each in runs.check()] == codes
