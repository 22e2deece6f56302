"""Threads of LangGraph's own savers come over as they are, and graphs go on with them."""

import hashlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.types import Command

import limpet
from limpet import NotFound, Store, Unavailable, Unsupported
from limpet.compat.langgraph import LimpetSaver, import_postgres, import_sqlite
from tests.cases import for_each
from tests.compat.langgraph.graphs import approving, nested
from tests.compat.langgraph.kit import Cipher, Places, checkpoint, config, id_of
from tests.compat.langgraph.origins import (
    Origin,
    everything,
    fill,
    make_origin,
    on,
    sqlite_origin,
    threads_of,
    with_deltas,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # deltas are a beta of LangGraph's

THREADS = ["alice/asks", "alice/done", "bob/deltas", "bob/failed", "bob/nested"]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def origin(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Origin]:
    """Each of LangGraph's savers, filled."""
    with make_origin(request.param, request, tmp_path) as origin:
        fill(origin.saver)
        yield origin


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Origin]:
    """Each of LangGraph's savers, empty."""
    with make_origin(request.param, request, tmp_path) as origin:
        yield origin


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Origin]:
    """An empty `SqliteSaver`."""
    with sqlite_origin(tmp_path / "langgraph.db") as origin:
        yield origin


@pytest.fixture
def target(places: Places) -> Iterator[Store]:
    """An empty store."""
    with places.open("sqlite") as store:
        yield store


def values(saver: Any, graph: Any, thread_id: str) -> list[Any]:
    return [each.values for each in graph(saver).get_state_history(on(thread_id))]


def test_both_savers_say_the_same_of_every_thread(origin: Origin, target: Store) -> None:
    done = origin.import_into(target)
    assert done.skipped == ()
    assert threads_of(target) == THREADS
    ours, theirs = LimpetSaver(target), origin.saver
    for thread_id in THREADS:
        assert everything(ours, thread_id) == everything(theirs, thread_id)
    assert done.count == len(list(theirs.list(None)))
    # Channels that keep deltas are made of what all ancestors hold.
    assert values(ours, with_deltas, "bob/deltas") == values(theirs, with_deltas, "bob/deltas")
    assert len(values(ours, with_deltas, "bob/deltas")[0]["log"]) == 12


def test_a_graph_goes_on_where_it_was_left(origin: Origin, target: Store) -> None:
    origin.import_into(target)
    for graph, thread_id in ((approving, "alice/asks"), (nested, "bob/nested")):
        answers = []
        for saver in (LimpetSaver(target), origin.saver):
            last = graph(saver).invoke(Command(resume="yes"), on(thread_id))
            answers.append([last, values(saver, graph, thread_id)])
        assert answers[0] == answers[1]


def test_it_may_be_repeated_and_taken_up_again(origin: Origin, target: Store) -> None:
    """What came over stays as it is; what was done on either side meanwhile is kept."""

    def theirs() -> list[Any]:
        return list(origin.saver.list(None))

    assert origin.import_into(target, prefix="bob/").count > 0
    assert threads_of(target) == THREADS[2:]
    first = [info.revision for info in target.history()]
    done = origin.import_into(target)
    assert (done.count + done.unchanged, done.unchanged) == (len(theirs()), len(first))
    assert first == [info.revision for info in target.history(prefix="bob/")]
    before = [info.revision for info in target.history()]
    approving(LimpetSaver(target)).invoke(Command(resume="ours"), on("alice/asks"))
    ours = everything(LimpetSaver(target), "alice/asks")
    nested(origin.saver).invoke(Command(resume="theirs"), on("bob/nested"))
    done = origin.import_into(target)
    after = {info.revision for info in target.history()}
    assert after > set(before)
    assert (done.count + done.unchanged, done.unchanged) == (len(theirs()), len(before))
    assert origin.import_into(target).count == 0
    assert everything(LimpetSaver(target), "alice/asks") == ours
    nested_there = everything(origin.saver, "bob/nested")
    assert everything(LimpetSaver(target), "bob/nested") == nested_there


@pytest.mark.parametrize("engine", ["memory", "directory"])
async def test_any_engine_and_api_will_do(engine: str, one: Origin, places: Places) -> None:
    fill(one.saver)
    async with limpet.open_async(places.url(engine)) as store:
        done = await store.run(one.import_into)
        saver = LimpetSaver(store)
        assert done.count == len([each async for each in saver.alist(None)])
        assert everything(LimpetSaver(store.sync), "alice/done") == everything(
            one.saver, "alice/done"
        )


def test_a_file_without_paths_is_read_and_not_changed(tmp_path: Path, target: Store) -> None:
    path = tmp_path / "langgraph.db"
    with sqlite_origin(path) as origin:
        fill(origin.saver)
        origin.saver.conn.execute("ALTER TABLE writes DROP COLUMN task_path")
        origin.saver.conn.commit()
    before = hashlib.sha256(path.read_bytes()).digest()
    done = import_sqlite(target, path)
    assert hashlib.sha256(path.read_bytes()).digest() == before
    assert done.skipped == ()
    with sqlite_origin(path) as origin:
        for thread_id in THREADS:
            theirs = everything(origin.saver, thread_id)
            assert everything(LimpetSaver(target), thread_id) == theirs


def test_what_was_sealed_stays_sealed(tmp_path: Path, target: Store) -> None:
    serde = EncryptedSerializer(Cipher())
    with sqlite_origin(tmp_path / "langgraph.db", serde=serde) as origin:
        fill(origin.saver)
        assert origin.import_into(target).count == 0
        assert origin.import_into(target, serde=serde).skipped == ()
        theirs = everything(origin.saver, "alice/done")
    assert everything(LimpetSaver(target, serde=serde), "alice/done") == theirs
    with pytest.raises(limpet.InvalidInput):
        everything(LimpetSaver(target), "alice/done")


def test_places_of_writes_are_those_they_had(empty: Origin, target: Store) -> None:
    """Also of those that wait on a checkpoint that never came."""
    writes = [("a", 1), ("__error__", "x"), ("b", 2)]
    empty.saver.put_writes(config(number=1), writes, "task", "~path")
    empty.saver.put_writes(config(number=1), [("c", 3)], "task", "~path")  # the first result stays
    empty.saver.put_writes(config(number=1), [("__interrupt__", [1])], "task", "~path")
    assert empty.import_into(target).count == 0
    scope = target.scope("t", kind="thread")
    (note,) = scope.notes(on=id_of(1))
    stored = [[-3, "__interrupt__", [1]], [-1, "__error__", "x"], [0, "a", 1], [2, "b", 2]]
    assert note.value == {"task_path": "~path", "writes": stored}
    empty.saver.put_writes(config(number=1), [("__interrupt__", [2])], "task", "~path")
    empty.import_into(target)
    (note,) = scope.notes(on=id_of(1))
    assert stored[0] not in note.value["writes"]
    assert [-3, "__interrupt__", [2]] in note.value["writes"]


def test_what_an_old_checkpoint_sends_comes_with_it(empty: Origin, target: Store) -> None:
    """Before the fourth version that stood among the writes of its parent."""
    old = {**checkpoint(1, a=1), "v": 3}
    empty.saver.put(config(), old, {}, {})
    empty.saver.put_writes(config(number=1), [("__pregel_tasks", ["send"])], "task")
    empty.saver.put(config(number=1), {**checkpoint(2, a=2), "v": 3}, {}, {})
    assert empty.import_into(target).skipped == ()
    found = LimpetSaver(target).get_tuple(config(number=2))
    assert found is not None
    assert found.checkpoint["channel_values"] == {"a": 2, "__pregel_tasks": [["send"]]}
    assert found.checkpoint["channel_versions"].keys() == {"a", "__pregel_tasks"}
    if isinstance(empty.saver, PostgresSaver):  # the other one leaves that out
        assert everything(LimpetSaver(target), "t") == everything(empty.saver, "t")


def test_values_are_those_of_their_versions(empty: Origin, target: Store) -> None:
    """Numbers as versions, a channel that comes and goes, one that is None, one without a value."""
    numbers: Any = [
        ({"a": [1], "n": None, "t": "text"}, {"a": 1, "n": 1, "t": 1, "gone": 1}),
        ({"a": [1], "b": {"x": 1.5}, "t": "more"}, {"a": 1, "b": 2, "t": 2}),
        ({"a": [1, 2], "b": {"x": 1.5}, "y": b"\0", "s": {1}}, {"a": 3, "b": 2, "y": 3, "s": 3}),
    ]
    for number, (values, versions) in enumerate(numbers, 1):
        whole = {**checkpoint(number, **values), "channel_versions": versions}
        empty.saver.put(config(number=number - 1 or None), whole, {"step": number}, versions)
        inner = {**whole, "id": id_of(number + 10)}
        empty.saver.put(config(namespace="sub|x:1"), inner, {"step": number}, versions)
    assert empty.import_into(target).skipped == ()
    assert everything(LimpetSaver(target), "t") == everything(empty.saver, "t")
    found = LimpetSaver(target).get_tuple(config(number=3))
    assert found is not None
    assert found.checkpoint["channel_values"] == numbers[2][0]


# What is no saver's


def test_what_is_missing_is_reported(tmp_path: Path, target: Store) -> None:
    with pytest.raises(NotFound, match="does not exist"):
        import_sqlite(target, tmp_path / "none.db")
    (tmp_path / "text.db").write_text("no database" * 100)
    with pytest.raises(limpet.InvalidInput, match="not a SQLite database"):
        import_sqlite(target, tmp_path / "text.db")
    with sqlite3.connect(tmp_path / "empty ?.db") as conn:
        with pytest.raises(NotFound, match="no tables"):
            import_sqlite(target, tmp_path / "empty ?.db")
        for name in ("checkpoints", "writes"):
            conn.execute(f"CREATE TABLE {name} (thread_id TEXT)")
    conn.close()
    with pytest.raises(Unsupported, match="another layout"):
        import_sqlite(target, tmp_path / "empty ?.db")


@for_each(
    "url",
    [
        "postgresql://me:geheim@127.0.0.1:1/agents",
        "postgresql://me:geheim@[::1/agents",
        "postgresql://me:geheim@localhost/agents?no=option",
        "password=geheim no",
    ],
)
def test_no_password_is_repeated(url: str, target: Store) -> None:
    with pytest.raises((Unavailable, limpet.InvalidInput)) as caught:
        import_postgres(target, url)
    cause: BaseException | None = caught.value
    while cause is not None:
        assert "geheim" not in str(cause)
        cause = cause.__cause__


@pytest.mark.slow
def test_a_database_without_the_tables(schemas: Any, target: Store) -> None:
    with pytest.raises(NotFound, match="no tables"):
        import_postgres(target, schemas.server_url)
