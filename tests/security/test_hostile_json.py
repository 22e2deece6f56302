"""Stored and received JSON that no writer of ours makes: one error of ours, and no crash."""

import asyncio
import json
from pathlib import Path

import pytest

import limpet
from limpet import Corrupt, InvalidInput, LimpetError
from limpet.backends.objects import format, heads
from limpet.core import codec, prepare
from limpet.core.limits import INTEGER_DIGITS_MAX
from limpet.portable.records import LineReader
from limpet.protocol import Commit
from limpet.server.access import Access
from limpet.server.app import App
from tests.cases import for_each
from tests.cli.conftest import Command, command  # noqa: F401
from tests.server.asgi import ask

DEEP = 100_000
HOSTILE = {
    "lists": b"[" * DEEP + b"]" * DEEP,
    "lists, wide": b" " + b"[" * DEEP + b"]" * DEEP,
    "objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "not closed": b"[" * DEEP,
    "a huge integer": b" " + b"9" * 1_000_000,
    "a huge number": b" 1e999999",
    "not a number": b" NaN",
    "half a character": rb'"\ud800"',
    "no text": b"\xff\xfe",
    "nothing": b"",
}


@for_each("text", HOSTILE.values())
def test_what_is_stored_is_corrupt(text: bytes) -> None:
    with pytest.raises(Corrupt):
        codec.decode(text)
    with pytest.raises(Corrupt):
        codec.decode_foreign(text)
    with pytest.raises(Corrupt):
        heads.parse_head(b'{"limpet":"head","v":%d,"x":%b}\n' % (format.VERSION, text))
    fact = b'{"id":"a","seq":"1","nonce":"n","size":1,"labels":%b}' % text
    head, _ = format.pack("head", [b'{"scope":["s"],"x":%b}' % text], [])
    page, _ = format.pack("notes", [b'["","n",0,%b]' % text], [], name="n")
    segment, _ = format.pack("segment", [fact], [], name="n")
    for parse in (
        lambda: heads.parse_head(head),
        lambda: format.parse_page("n", page),
        lambda: format.StoredSegment("n", segment).facts,
    ):
        with pytest.raises(Corrupt):
            parse()


@for_each("text", HOSTILE.values())
def test_a_line_of_an_export_is_refused(text: bytes) -> None:
    lines = [b'{"type":"limpet","version":1}\n', b'{"type":"snapshot","state":%b}\n' % text]
    with pytest.raises(LimpetError):
        list(LineReader(lines, state_bytes_max=2**26))
    with pytest.raises(LimpetError):
        list(LineReader([text + b"\n"] if text else [], state_bytes_max=2**26))


def test_of_a_key_that_occurs_twice_the_last_counts() -> None:
    """As every parser has it that people use; two of ours never differ."""
    assert codec.decode(b'{"a":1,"a":2}') == codec.decode(b' {"a":1,"a":2}') == {"a": 2}


def committed(store: limpet.Store, body: bytes) -> None:
    """Save a body that was not encoded by us, as a hostile writer can."""
    plain = prepare.save(
        store.scope("deep").key,
        {},
        stamp=store.driver.tools.draw(),
        state_bytes_max=2**20,
    )
    commit: Commit = plain._replace(body=body, append_offsets=None)
    store.driver.run(lambda backend: backend.commit(commit))


@pytest.mark.parametrize("depth", [900, pytest.param(DEEP, marks=pytest.mark.slow)])
def test_a_state_that_is_too_deep_stops_nobody(
    tmp_path: Path,
    command: Command,  # noqa: F811
    depth: int,
) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    with limpet.open(url) as store:
        store.scope("deep").save({"messages": []})
        committed(store, b'{"messages":' + b"[" * depth + b"]" * depth + b"}")
        store.scope("good").save({"n": 1})
        assert len(list(store.sessions())) == 2
    for arguments in (
        ("show", "deep"),
        ("show", "deep", "--json"),
        ("show", "deep", "--full"),
        ("diff", "deep~1", "deep"),
        ("grep", "x"),
        ("stats",),
        ("export", str(tmp_path / "out.jsonl")),
    ):
        done = command(*arguments, LIMPET_URL=url)
        assert done.returncode in (0, 1, 5), (arguments, done.stderr)
        assert "bug" not in done.stderr
        assert len(done.stderr) < 2_000


@for_each("depth", [150, 900, DEEP])
def test_a_body_of_a_request_is_refused(depth: int, caplog: pytest.LogCaptureFixture) -> None:
    deep = "[" * depth + "]" * depth
    bodies = [
        ("/v1/scope/save", '{"state":%s}'),
        ("/v1/scope/save", '{"state":{},"metadata":{"x":%s}}'),
        ("/v1/notes/find", '{"scope_id":"main","kind":"items","under":"","where":%s,"limit":1}'),
    ]

    async def run() -> list[int]:
        async with limpet.open_async("memory:") as store:
            app, query = App(store, Access()), {"session_id": "deep"}
            sent = [(path, query if "save" in path else {}, body % deep) for path, body in bodies]
            answers = [await ask(app, "POST", *each[:2], each[2].encode()) for each in sent]
            return [each.status for each in answers]

    assert {*asyncio.run(run())} <= {200, 201, 400, 404, 422}
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


def test_an_integer_that_takes_long_to_read_is_refused_by_its_length() -> None:
    with pytest.raises(InvalidInput):
        codec.encode(10 ** (INTEGER_DIGITS_MAX + 1))
    assert json.loads(codec.encode(10**4299)) == 10**4299


@pytest.mark.slow
@pytest.mark.parametrize(
    "store", ["memory", "sqlite", "directory", "postgres", "s3"], indirect=True
)
def test_every_engine_contains_a_hostile_state(store: limpet.Store) -> None:
    store.scope("good").save({"n": 1})
    for text in HOSTILE.values():
        if text.isascii() and text:  # objects hold text
            committed(store, text)
            with pytest.raises(Corrupt):
                store.scope("deep").load()
    good = store.scope("good").load()
    assert good is not None
    assert good.state == {"n": 1}
