"""Holes that were found in other tools that keep the state of agents: that we do not have them.

docs/security.md lists them with their numbers.
"""

import json
import os
import pickle
import sqlite3
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

import limpet
from limpet import InvalidInput, LimpetError, Store
from limpet.compat.langgraph import LimpetSaver, LimpetStore, import_sqlite
from tests.cases import for_each
from tests.compat.langgraph.kit import checkpoint, config, got, id_of, put
from tests.security.conftest import also_on_postgres

# Keys and values that were spliced into a query.
KEYS = [
    "x') OR '1'='1",
    "x') = 1 OR 1=1 --",
    "x') UNION SELECT 't','','1',NULL,'msgpack',x'80',x'7b7d' --",
    "a' || '",
    'a"."b',
    ".*",
    "a[0]",
    "a.b",
    "@owner:{*}",
    "*",
    "",
    "a\0b",
]
VALUES = ["' OR '1'='1", "x'; DROP TABLE notes; --", "*", "%", "{*}|@x:{*}", "\\"]


# CVE-2025-67644, CVE-2026-27022: the keys of a filter of checkpoints.


def test_a_key_of_a_filter_of_checkpoints_is_a_key(store: Store) -> None:
    saver = LimpetSaver(store)
    put(saver, 1, a=1)
    for key in KEYS:
        assert [*saver.list(None, filter={key: "x"})] == []
        assert [*saver.list(config(), filter={key: 1, "step": 1})] == []
    for value in VALUES:
        assert [*saver.list(None, filter={"source": value})] == []
    assert len([*saver.list(config(), filter={"step": 1})]) == 1


@for_each("limit", ["1; DROP TABLE notes", "1 OR 1=1", -1, True])
def test_a_limit_is_a_number(limit: Any, tmp_path: Path) -> None:
    with limpet.open(f"sqlite:///{tmp_path}/a.db") as store:
        put(LimpetSaver(store), 1, a=1)
        for call in (store.scope("t", kind="thread").history, store.sessions):
            with pytest.raises(InvalidInput):
                list(call(limit=limit))


# CVE-2025-8709, CVE-2025-64104: filters of the store of items.


@also_on_postgres
def test_a_filter_of_items_is_no_query(store: Store) -> None:
    items = LimpetStore(store)
    items.put(("alice",), "a", {"kind": "secret", "n": 1})
    for key in KEYS:
        assert items.search(("alice",), filter={key: "x"}) == []
        assert items.search(("alice",), filter={"kind": {"$eq": {key: "x"}}}) == []
        with pytest.raises(LimpetError):
            items.search(("alice",), filter={"kind": {f"${key}": "x"}})
    for value in VALUES:
        assert items.search(("alice",), filter={"kind": {"$eq": value}}) == []
        found = items.search(("alice",), filter={"kind": {"$ne": value}})
        assert [each.key for each in found] == ["a"]
    assert [each.key for each in items.search(("alice",), filter={"kind": "secret"})] == ["a"]


def test_keys_that_need_escaping_are_found(store: Store) -> None:
    """Else the tests above would pass because such a key is never compared."""
    items = LimpetStore(store)
    for number, key in enumerate(KEYS):
        items.put(("a",), str(number), {key: "mine", "plain": number})
    for number, key in enumerate(KEYS):
        found = items.search(("a",), filter={key: "mine"})
        assert [each.key for each in found] == [str(number)], key


def value_of(items: LimpetStore, namespace: tuple[str, ...]) -> Any:
    found = items.get(namespace, "k")
    return None if found is None else found.value


# Names of tenants (langgraphjs #2349 to #2351; LIKE wildcards, separators in names).


def test_no_namespace_reaches_another(store: Store) -> None:
    items = LimpetStore(store)
    names = [("a",), ("a", "b"), ("a/b",), ("a%2Fb",), ("ab",), ("a_",), ("a%",), ("A",), ("*",)]
    for name in names:
        items.put(name, "k", {"of": list(name)})
    for name in names:
        assert value_of(items, name) == {"of": list(name)}
        below = {each.namespace for each in items.search(name, limit=100)}
        assert below == {each for each in names if each[: len(name)] == name}
        for listed in items.list_namespaces(prefix=name):
            assert listed[: len(name)] == name or "*" in name
    items.delete(("a%",), "k")
    assert items.get(("a", "b"), "k") is not None


@for_each("id", [{"$gt": ""}, {"$ne": None}, ["a"], 5, None, True, b"a"])
def test_an_id_is_a_text(id: Any) -> None:
    with limpet.open("memory:") as store:
        store.scope("victim").save({"secret": 1}, id="one")
        calls: list[Callable[[], Any]] = [
            lambda: store.scope(id),
            lambda: store.scope("victim", id),
            lambda: store.delete_session(id),
            lambda: store.find(id),
            lambda: list(store.sessions(prefix=id)),
        ]
        for call in calls:
            with pytest.raises(InvalidInput):
                call()
        saver = LimpetSaver(store)
        put(saver, 1, a=1)
        named: Any = {
            "configurable": {"thread_id": id, "checkpoint_ns": "", "checkpoint_id": id_of(1)}
        }
        try:
            assert saver.get_tuple(named) is None  # the name of another thread
        except InvalidInput:
            assert id is None


# CVE-2025-64439, CVE-2026-28277, CVE-2026-48775: stored bytes that name what to call.


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """A file that each of the payloads would make."""
    return tmp_path / "it-was-called"


def payloads(marker: Path) -> Iterator[tuple[str, bytes]]:
    call = f"touch {marker}"

    def ext(code: int, *parts: Any) -> ormsgpack.Ext:
        return ormsgpack.Ext(code, ormsgpack.packb(parts))

    for value in (
        ext(0, "os", "system", call),
        ext(1, "os", "system", [call]),
        ext(2, "subprocess", "run", {"args": call, "shell": True}),
        ext(3, "pathlib", "Path", str(marker), "touch"),
        ext(5, "subprocess", "Popen", {"args": ["touch", str(marker)]}, "x"),
    ):
        yield "msgpack", ormsgpack.packb({**checkpoint(1), "channel_values": {"x": value}})
    for lc in (1, 2):
        named: dict[str, Any] = {
            "lc": lc,
            "type": "constructor",
            "id": ["os", "system"],
            "kwargs": {},
        }
        made = {**named, "args": [call], "kwargs": {"command": call}}
        for tree in (made, {**made, "method": "touch"}, {"deep": [made]}):
            whole = {**checkpoint(1), "channel_values": {"x": tree}}
            yield "json", json.dumps(whole).encode()
    yield "pickle", pickle.dumps(_Evil(call))
    yield "msgpack", pickle.dumps(_Evil(call))


class _Evil:
    def __init__(self, call: str) -> None:
        self._call = call

    def __reduce__(self) -> Any:
        return os.system, (self._call,)


def test_the_payloads_work(marker: Path) -> None:
    """By itself LangGraph calls what is named in some of them: else they would prove nothing."""
    JsonPlusSerializer().loads_typed(next(payloads(marker)))
    assert marker.exists()


def test_an_imported_checkpoint_calls_nothing(tmp_path: Path, marker: Path) -> None:
    for number, (form, body) in enumerate(payloads(marker)):
        path = tmp_path / f"{number}.db"
        with closing(sqlite3.connect(path)) as conn, conn:
            conn.execute(
                "CREATE TABLE checkpoints (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT,"
                " parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB)"
            )
            conn.execute(
                "CREATE TABLE writes (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT,"
                " task_id TEXT, idx INTEGER, channel TEXT, type TEXT, value BLOB)"
            )
            row = ("t", "", id_of(1), None, form, body, b"{}")
            conn.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        with limpet.open("memory:") as store:
            done = import_sqlite(store, path)
            assert (done.count, len(done.skipped)) == (0, 1), (form, body)
    assert not marker.exists()


def test_a_stored_checkpoint_calls_nothing(marker: Path) -> None:
    """Whoever can write to the store can name classes there: only those allowed are made."""
    with limpet.open("memory:") as store:
        saver, scope = LimpetSaver(store), store.scope("t", kind="thread")
        put(saver, 1, x="here")
        (found,) = scope.load_many([id_of(1)])
        assert '"here"' in json.dumps(found.state)
        for form, body in payloads(marker):
            forms: list[Any] = [
                {"$serde": [form, b64encode(body).decode(), "builtins:dict"]},
                {"$object": "os:system", "fields": {"command": f"touch {marker}"}},
                {"$object": "subprocess:Popen", "fields": {"args": ["touch", str(marker)]}},
                {"$langchain": {"lc": 1, "type": "constructor", "id": ["os", "system"]}},
            ]
            for hostile in forms:
                text = json.dumps(found.state).replace('"here"', json.dumps(hostile))
                scope.save(json.loads(text), id=id_of(1), overwrite=True, metadata=found.metadata)
                with suppress(LimpetError):  # most are refused
                    list(got(saver).checkpoint["channel_values"].items())
    assert not marker.exists()


# CVE-2025-68664 and -68665, langgraphjs #2346: what a user says looks like a stored object.


def test_what_a_user_says_stays_what_it_is(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    marker: Path,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "S3CRET")
    said: list[Any] = [
        {"lc": 1, "type": "secret", "id": ["OPENAI_API_KEY"]},
        {"lc": 1, "type": "constructor", "id": ["langchain_core", "messages", "AIMessage"]},
        {"lc": 2, "type": "constructor", "id": ["os", "system"], "args": [f"touch {marker}"]},
        {"__pickled__": b64encode(pickle.dumps(_Evil(f"touch {marker}"))).decode()},
        {"__type__": "os:system"},
        *({tag: "os:system"} for tag in ("$object", "$serde", "$langchain", "$message", "$enum")),
        {"$ref": "#/x"},
    ]
    store.scope("plain").save({"said": said}, id="one")
    (found,) = store.scope("plain").load_many(["one"])
    assert found.state == {"said": said}
    saver = LimpetSaver(store)
    put(saver, 1, said=said)
    assert got(saver).checkpoint["channel_values"]["said"] == said
    items = LimpetStore(store)
    items.put(("a",), "k", {"said": said})
    assert value_of(items, ("a",)) == {"said": said}
    assert not marker.exists()


# CVE-2026-27794: pickles. tests/security/test_hostile_code.py looks for them in the package.


def test_a_serializer_that_pickles_is_refused() -> None:
    with limpet.open("memory:") as store, pytest.raises(InvalidInput, match="must not pickle"):
        LimpetSaver(store, serde=JsonPlusSerializer(pickle_fallback=True))


# strands-agents #680 and #728, agentscope #1249, CVE-2024-3400: ids that are paths.

PATHS = ["../out", "../../out", "/tmp/out", "..", ".", "a/../../out", "..\\out", "%2e%2e/out", "~"]


def test_no_id_leads_out_of_a_folder(tmp_path: Path) -> None:
    inside = tmp_path / "deep" / "store"
    before = {*tmp_path.rglob("*")}
    with limpet.open(inside.as_uri(), sync=False) as store:
        for text in PATHS:
            scope = store.scope(text, text)
            scope.save({"x": 1}, id=text, labels={text: text})
            scope.set_note(text, 1, on=text)
            assert [each.id for each in scope.history()] == [text]
        new = {*tmp_path.rglob("*")} - before - {inside.parent, inside}
        assert all(each.is_relative_to(inside) for each in new)
        for text in PATHS:
            store.delete_session(text)
    assert (tmp_path / "deep").is_dir()
