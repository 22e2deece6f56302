"""A folder of the Strands SDK is no store: it is refused by name, and the way out is said."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import limpet
from limpet import Store, Unsupported
from limpet.compat.strands import import_sessions
from limpet.core.foreign import layout_of, recognise
from tests.buckets.counting import CountingBucket
from tests.buckets.opened import store_on

FIXTURES = Path(__file__).parents[2] / "interop" / "fixtures"
LAYOUTS = {
    "ts_filestorage": "classic",
    "ts_raw_storage": "classic",
    "ts_unified_localfile": "unified",
    "py_snapshot": "unified",
    "py_legacy_file": "messages",
}
VERBS: dict[str, Callable[[Store], object]] = {
    "sessions": lambda store: list(store.sessions()),
    "scopes": lambda store: list(store.scopes("demo-invocation")),
    "load": lambda store: store.scope("chat").load(),
    "save": lambda store: store.scope("chat").save({}),
    "append": lambda store: store.scope("chat").append("messages", []),
    "check": lambda store: list(store.check()),
    "repair": lambda store: list(store.repair()),
    "stats": lambda store: store.stats(),
}


def test_each_layout_is_refused_by_name(tmp_path: Path) -> None:
    for name, layout in LAYOUTS.items():
        folder = tmp_path / name
        shutil.copytree(FIXTURES / name, folder)
        before = sorted(folder.rglob("*"))
        with limpet.open(str(folder)) as store:
            for verb in VERBS.values():
                with pytest.raises(Unsupported, match="limpet import strands") as refused:
                    verb(store)
                said = f"sessions of the Strands SDK (layout {layout})"
                assert said in str(refused.value), name
        assert sorted(folder.rglob("*")) == before


def test_below_a_folder_of_the_name_of_ours(tmp_path: Path) -> None:
    """Also what the first format of our own wrote. The command that is said works."""
    shutil.copytree(FIXTURES / "ts_filestorage", tmp_path / "in" / "sessions")
    with (
        limpet.open(str(tmp_path / "in")) as store,
        pytest.raises(Unsupported, match="<this folder or URL>/sessions "),
    ):
        list(store.sessions())
    with limpet.open("memory:") as store:
        assert import_sessions(store, tmp_path / "in/sessions").count == 7


def test_a_store_of_the_first_format_is_refused() -> None:
    bucket = CountingBucket()
    bucket.put(".limpet/index/order/chat/agent/main/ff.id.1", b"", expect=None)
    with pytest.raises(Unsupported, match="a store of an early version"):
        list(store_on(bucket).sessions())


def test_a_store_is_asked_once_and_only_if_it_seems_empty() -> None:
    """Each LIST is followed by another one, which verifies its end."""
    bucket = CountingBucket()
    store = store_on(bucket)
    assert list(store.sessions()) == []
    assert bucket.take() == {"LIST": 4}
    assert list(store.sessions()) == []
    assert store.scope("chat").load() is None
    assert bucket.take() == {"LIST": 4, "GET": 1}
    store.scope("chat").save({})
    store = store_on(bucket)
    bucket.take()
    assert store.scope("chat").load() is not None
    assert bucket.take() == {"GET": 1}
    assert store.scope("other").load() is None
    assert bucket.take() == {"LIST": 2, "GET": 1}


def test_what_stands_beside_a_store_is_left_alone(tmp_path: Path) -> None:
    with limpet.open(str(tmp_path)) as store:
        store.scope("chat").save({"n": 1})
    shutil.copytree(FIXTURES / "ts_filestorage", tmp_path, dirs_exist_ok=True)
    with limpet.open(str(tmp_path)) as store:
        assert list(store.sessions()) == ["chat"]
        assert store.scope("other").load() is None


def test_keys_of_each_layout() -> None:
    for key, layout in (
        ("s/scopes/agent/a/snapshots/snapshot_latest.json", "classic"),
        ("session/scopes/agent/a/snapshots/manifest.json", "classic"),
        ("session_x/scopes/agent/a/snapshots/manifest.json", "classic"),
        ("session/scopes/scopes/agent/a/snapshots/manifest.json", "unified"),
        ("session/S 1.X/scopes/agent/é/snapshots/immutable_history/snapshot_1.json", "unified"),
        ("session_x/session.json", "messages"),
        ("session_x/multi_agents/multi_agent_y/multi_agent.json", "messages"),
        ("a/s/scopes/agent/a/snapshots/snapshot_latest.json", None),
        ("s/scopes/agent/a/snapshots/head", None),
        ("readme.md", None),
    ):
        assert layout_of(key) == layout, key
        assert (recognise(["readme.md", key]) is None) == (layout is None), key
