"""`ByteStorage` is a storage of Strands: bytes come back, keys are listed, and no more."""

import json
import subprocess
import sys
from typing import Any

import pytest
from strands.storage import InMemoryStorage
from strands.types.exceptions import StorageError

import limpet
from limpet import InvalidInput, Store, Unavailable
from limpet.compat.strands.python import ByteStorage
from tests.compat.strands_python.agents import FIXTURES, storage_on, wait

HERE = "session/s/scopes/agent/a/snapshots/"
LATEST = f"{HERE}snapshot_latest.json"
DATA: dict[str, Any] = {"messages": [], "state": {"größe": 1.0, "n": 2**70}, "other": None}
DOCUMENT = {
    "scope": "agent",
    "schema_version": "1.0",
    "created_at": "2026-11-15T00:10:27.206343Z",
    "data": DATA,
    "app_data": {"mine": [1, 2]},
}

SNAPSHOTS = sorted(FIXTURES.glob("py_snapshot/**/*.json"))


def history(id: str) -> str:
    return f"{HERE}immutable_history/snapshot_{id}.json"


def as_python(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode()


ANY_BYTES = {
    "as Python writes it": as_python(DOCUMENT),
    "as JavaScript writes it": json.dumps(DOCUMENT, separators=(",", ":")).encode(),
    "as people read it": json.dumps(DOCUMENT, indent=2, ensure_ascii=False).encode(),
    "with a field more": as_python({**DOCUMENT, "more": {"a": 1}}),
    "in another layout": json.dumps(DOCUMENT, indent=3).encode(),
    "with a number that is none": as_python({**DOCUMENT, "data": {"n": float("nan")}}),
    "with a number in other words": as_python(DOCUMENT).replace(b"1.0,", b"1e0,"),
    "far too deep": b'{"schema_version": "1.0", "data": {"a": %s1%s}}' % (b"[" * 900, b"]" * 900),
    "too deep": b'{"data": {"a": %s1%s}}' % (b"[" * 250, b"]" * 250),
    "without data": b'{"scope": "agent"}',
    "no object": b'["data"]',
    "text": "Grüße\0\n".encode(),
    "bytes": bytes(range(256)),
    "nothing": b"",
}
KEYS = [
    LATEST,
    history("019caf00-0000-7000-8000-000000000001"),
    history("x.y Z"),
    "session/S 1.X/scopes/agent/Bot A/snapshots/snapshot_latest.json",
    "session/s/scopes/multiAgent/team/snapshots/snapshot_latest.json",
    "session/s/scopes/tool/a/snapshots/snapshot_latest.json",
    "session/s/scopes/agent/a/snapshots/manifest.json",
    "session/s",
    "context/s/a/tu-1_0",
    "context/other/a/tu-1_0",
    "memory/notes/Über.md",
    "strands",
]


def test_strands_need_not_be_there() -> None:
    code = (
        "import asyncio, sys, limpet\n"
        "from limpet.compat.strands.python import ByteStorage\n"
        "bytes = ByteStorage(limpet.open('memory:'))\n"
        "asyncio.run(bytes.write('a', b'1'))\n"
        "assert asyncio.run(bytes.read('a')) == b'1'\n"
        "try: asyncio.run(bytes.read(''))\n"
        "except limpet.InvalidInput as error: assert type(error) is limpet.InvalidInput\n"
        "assert not any(name.startswith('strands') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_bytes_come_back_as_they_were(store: Store) -> None:
    storage, keys = storage_on(store), [LATEST, history("1"), "context/s/a/b"]
    for key in keys:
        for name, data in ANY_BYTES.items():
            wait(storage.write(key, data))
            assert wait(storage.read(key)) == data, (key, name)
    assert wait(storage.list("")) == sorted(keys)


def test_a_storage_of_strands_does_the_same(store: Store) -> None:
    ours, theirs = storage_on(store), InMemoryStorage()
    prefixes = sorted({key[:end] for key in KEYS for end in range(0, len(key) + 1, 3)})

    async def compare() -> None:
        for storage in (ours, theirs):
            for number, key in enumerate(KEYS):
                await storage.write(key, as_python({**DOCUMENT, "number": number}))
        for key in [*KEYS, f"{LATEST}x", history("missing"), "session/none/"[:-1], "context/s"]:
            assert await ours.read(key) == await theirs.read(key)
        for prefix in [*prefixes, "session/s/", "session/s/scopes/agent/a/", "context/", "none"]:
            assert await ours.list(prefix) == await theirs.list(prefix), prefix
        for key in KEYS:
            await ours.delete(key)
            await theirs.delete(key)
            await ours.delete(key)
            assert await ours.read(key) is None
            assert await ours.list("") == await theirs.list("")

    wait(compare())
    assert list(store.sessions()) == []


def test_a_snapshot_is_one_for_everybody(store: Store) -> None:
    """What stands where is told in the design, and other facades rely on it."""
    storage = storage_on(store)
    wait(storage.write(LATEST, as_python(DOCUMENT)))
    wait(storage.write(history("1"), as_python(DOCUMENT)))
    scope = store.scope("s", "a")
    head, kept = scope.load(), scope.load("1")
    assert head is not None
    assert kept is not None
    for each, is_kept in ((head, False), (kept, True)):
        assert each.state == DATA
        assert each.kept is is_kept
        envelope = {name: value for name, value in DOCUMENT.items() if name != "data"}
        assert each.metadata == {"strands": envelope, "form": "python"}
        assert each.created_at.isoformat() == "2026-11-15T00:10:27.206343+00:00"
    assert [info.id for info in scope.history()] == ["1"]

    scope.append("messages", [{"role": "user", "content": [{"text": "from us"}]}])
    read = json.loads(wait(storage.read(LATEST)) or b"")
    assert list(read) == ["scope", "schema_version", "created_at", "data", "app_data"]
    assert read["data"]["messages"][0]["content"] == [{"text": "from us"}]
    draft = scope.save({}, keep=False)
    assert wait(storage.read(history(draft.id))) is None


def test_names_that_no_key_can_have_are_not_listed(store: Store) -> None:
    store.scope("alice/chat", "a").save({})
    store.scope("chat", "a/b").save({})
    store.scope("chat", "a").save({}, id="x/y")
    store.scope("chat", "loose", "file").save({})
    store.scope("chat", "main", "run").save({})
    keys = wait(storage_on(store).list(""))
    assert keys == ["session/chat/scopes/agent/a/snapshots/snapshot_latest.json"]


def test_words_are_found(store: Store) -> None:
    storage = storage_on(store)
    wait(storage.write("memory/one.md", b"the harbour is closed"))
    wait(storage.write("memory/two.md", b"the bridge is open"))
    found = wait(storage.search("harbour"))
    assert [each.key for each in found] == ["memory/one.md"]


def test_errors_are_ours_and_theirs(store: Store) -> None:
    storage = storage_on(store)
    for key in ("", "x" * 600, 7):
        with pytest.raises(InvalidInput) as caught:
            wait(storage.write(key, b""))  # type: ignore[arg-type]
        assert isinstance(caught.value, StorageError)
    with pytest.raises(InvalidInput, match="data must be bytes"):
        wait(storage.write("a", "text"))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="expected a store"):
        ByteStorage("memory:")  # type: ignore[arg-type]


def test_an_outage_is_one_in_both_trees() -> None:
    store = limpet.open_async("postgresql://nobody@127.0.0.1:9/none", retry_s=0)
    with pytest.raises(Unavailable) as caught:
        wait(ByteStorage(store).read("a"))
    assert isinstance(caught.value, StorageError)
    assert caught.value.outcome_known


def test_a_listing_reads_no_state(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = storage_on(store)
    for key in KEYS:
        wait(storage.write(key, b"x"))
    monkeypatch.setattr(type(store.driver.opened.backend), "read_snapshots", None)
    assert wait(storage.list("")) == sorted(KEYS)
