"""What the conformance suite does not look at."""

import inspect
import math
import threading
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, cast

import numpy as np
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP, BaseCheckpointSaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

import limpet
from limpet import InvalidInput, Store
from limpet.compat.langgraph import LimpetSaver
from tests.cases import for_each
from tests.compat.langgraph.kit import (
    Cipher,
    Places,
    checkpoint,
    config,
    got,
    id_of,
    ids,
    opened,
    put,
)


class Colour(Enum):
    RED = 1


@dataclass
class Point:
    x: float
    tags: tuple[str, ...] = ()


def test_metadata_comes_back_exactly_and_is_found(saver: LimpetSaver) -> None:
    metadata: Any = {"source": "input", "step": -1, "odd": (1, "a\0b"), "run_id": "r" * 300}
    saver.put(config(), checkpoint(1), metadata, {})
    assert got(saver).metadata == metadata
    assert ids(saver.list(None, filter={"run_id": "r" * 300, "odd": (1, "a\0b")})) == [1]
    assert ids(saver.list(config(), filter={"odd": [1, "a\0b"]})) == []
    assert ids(saver.list(config(), filter={"absent": None})) == []
    assert ids(saver.list(config(), filter={"odd": (np.arange(2), "x")})) == []
    saver.delete_for_runs(["r" * 300])
    assert saver.get_tuple(config()) is None


def test_a_channel_that_was_not_written_is_left_alone(memory: LimpetSaver) -> None:
    """As in PostgresSaver: only what a node returns is stored, not what it changed in place."""
    documents = {"a": "b" * 100}
    first, second = checkpoint(1, docs=documents, n=1), checkpoint(2, docs=documents, n=2)
    second["channel_versions"]["docs"] = first["channel_versions"]["docs"]
    metadata: Any = {"source": "loop", "step": 1, "parents": {}}
    memory.put(config(), first, metadata, {})
    documents["a"] = "changed"
    memory.put(config(number=1), second, metadata, {})
    assert got(memory).checkpoint["channel_values"] == {"docs": {"a": "b" * 100}, "n": 2}


def test_put_replaces_and_never_refuses(saver: LimpetSaver) -> None:
    put(saver, 1, a=1)
    put(saver, 2, 1, a=2)
    put(saver, 2, None, a=3)
    put(saver, 1, a=[4])
    assert [got(saver, n).checkpoint["channel_values"] for n in (1, 2)] == [{"a": [4]}, {"a": 3}]
    assert got(saver, 2).parent_config is None
    assert ids(saver.list(config())) == [2, 1]


def test_the_latest_is_the_one_with_the_greatest_id(saver: LimpetSaver) -> None:
    for number in (2, 1, 5, 4, 3):
        put(saver, number, n=number)
    other = LimpetSaver(saver._sync)
    assert ids([got(saver), got(other)]) == [5, 5]
    put(other, 6)
    put(saver, 7)
    assert ids([got(saver), got(other)]) == [7, 7]
    assert ids(saver.list(config())) == [7, 6, 5, 4, 3, 2, 1]
    assert ids(saver.list(config(), before=config(number=5), limit=2)) == [4, 3]
    assert ids(saver.list(config(), before=config(number=9))) == [7, 6, 5, 4, 3, 2, 1]
    assert ids(saver.list(config(number=4))) == [4]
    assert ids(saver.list(config(), limit=0)) == []
    assert ids(saver.list(config(), limit=-1)) == [7, 6, 5, 4, 3, 2, 1]


def test_two_stores_take_turns_on_one_thread(places: Places) -> None:
    """Each goes on where the other one was, and two checkpoints of one parent both stay."""
    url = places.url("sqlite")
    with opened(url, url) as stores:
        savers = [LimpetSaver(store) for store in stores]
        messages: list[Any] = []
        for number in range(1, 7):
            messages = [*messages, HumanMessage(str(number), id=str(number))]
            put(savers[number % 2], number, number - 1 or None, messages=messages)
            for saver in savers:
                assert got(saver).checkpoint["channel_values"] == {"messages": messages}
        for number, saver in enumerate(savers, 7):
            put(saver, number, 6, messages=messages[:number])
        for saver in savers:
            assert ids(saver.list(config())) == [8, 7, 6, 5, 4, 3, 2, 1]
            assert [got(saver, n).parent_config for n in (7, 8)] == [config(number=6)] * 2


def test_many_threads_at_once(saver: LimpetSaver) -> None:
    savers = [saver, LimpetSaver(saver._sync)]
    failures: list[BaseException] = []

    def work(worker: int) -> None:
        try:
            for step in range(6):
                number = 10 * step + worker
                saver = savers[worker % 2]
                where = config(number=number)
                saver.put_writes(where, [("a", worker)], f"task-{worker}")
                put(saver, number, None, messages=[HumanMessage(str(worker), id=str(step))])
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    found = list(saver.list(config()))
    assert ids(found) == sorted((10 * s + w for s in range(6) for w in range(4)), reverse=True)
    for number, each in zip(ids(found), found, strict=True):
        assert each.checkpoint["channel_values"]["messages"][0].content == str(number % 10)
        assert each.pending_writes == [(f"task-{number % 10}", "a", number % 10)]
    assert ids([got(saver)]) == [53]


def test_writes_may_come_first_and_first_wins(saver: LimpetSaver) -> None:
    saver.put_writes(config(number=1), [("a", 1), ("b", (2,))], "task", "p")
    saver.put_writes(config(number=1), [("a", 9), ("b", 9), ("c", 3)], "task", "p")
    assert saver.get_tuple(config(number=1)) is None
    put(saver, 1)
    assert got(saver).pending_writes == [("task", "a", 1), ("task", "b", (2,)), ("task", "c", 3)]


def test_special_writes_are_replaced(saver: LimpetSaver) -> None:
    put(saver, 1)
    where = config(number=1)
    special = list(WRITES_IDX_MAP)
    saver.put_writes(where, [("a", 1)], "task")
    for value in (1, 2):
        saver.put_writes(where, [(channel, value) for channel in special], "task")
    saver.put_writes(where, [("a", 5), (special[0], 5)], "task")
    found = {channel: value for _, channel, value in got(saver).pending_writes or []}
    assert found == {"a": 1, **dict.fromkeys(special, 2)}


def test_writes_are_in_the_order_in_which_they_are_applied(saver: LimpetSaver) -> None:
    put(saver, 1)
    for task_id, path in (("z", "a"), ("a", "b"), ("m", ""), ("b", "a")):
        saver.put_writes(config(number=1), [("x", 1), ("y", 2)], task_id, path)
    order = [(task_id, channel) for task_id, channel, _ in got(saver).pending_writes or []]
    assert order == [(task_id, channel) for task_id in "mbza" for channel in "xy"]


async def test_both_apis_see_the_same(store: Store) -> None:
    for saver in (LimpetSaver(store), LimpetSaver(store.aio)):
        where = await saver.aput(config(), checkpoint(1, a=(1,)), {"run_id": "r"}, {})
        assert where == config(number=1)
        await saver.aput_writes(where, [("a", 2)], "task")
        assert await saver.aget_tuple(config()) == saver.get_tuple(config())
        assert [each async for each in saver.alist(None)] == list(saver.list(None))
        assert [each async for each in saver.athreads()] == list(saver.threads()) == ["t"]
        assert (await saver.asizes("t")).snapshots == saver.sizes("t").snapshots == 1
        await saver.acopy_thread("t", "u")
        assert await saver.aexpire(timedelta(0), prefix="u") == ["u"]
        await saver.acopy_thread("t", "u")
        await saver.aprune(["u"], strategy="delete")
        await saver.adelete_for_runs(["r"])
        assert saver.get_tuple(config()) is None
        await saver.adelete_thread("t")


def test_both_apis_have_the_parameters_of_langgraph(memory: LimpetSaver) -> None:
    """LangGraph looks at the signature of `put_writes` before it passes a `task_path`."""
    methods = ["get_tuple", "put", "put_writes", "list", "get_delta_channel_history"]
    methods += ["delete_thread", "delete_for_runs", "copy_thread", "prune"]
    for name in [*methods, "threads", "sizes", "expire"]:
        plain, twin = getattr(memory, name), getattr(memory, f"a{name}")
        taken = inspect.signature(plain).parameters.values()
        asked = inspect.signature(twin).parameters.values()
        shapes = [[(each.name, each.kind, each.default) for each in of] for of in (taken, asked)]
        assert shapes[0] == shapes[1], name
        assert (twin.__name__, twin.__doc__.split(".")[0]) == (
            f"a{name}",
            f"Async twin of `{name}`",
        )
        # The lowest LangGraph that we work with has no `get_delta_channel_history`.
        if name in methods and hasattr(BaseCheckpointSaver, name):
            base = inspect.signature(getattr(BaseCheckpointSaver, name)).parameters
            assert [*base][1:] == [each[0] for each in shapes[0]][: len(base) - 1], name


def test_what_is_returned_is_the_callers_own(saver: LimpetSaver) -> None:
    message = AIMessage("x", id="1", response_metadata={"deep": [1]})
    put(saver, 1, messages=[message], data={"list": [1]})
    message.content = "changed"
    for reader in (saver, LimpetSaver(saver._sync), saver):
        values = got(reader).checkpoint["channel_values"]
        assert values["messages"][0].content == "x"
        assert values["messages"][0].response_metadata == {"deep": [1]}
        assert values["data"] == {"list": [1]}
        values["messages"][0].content = "mine"
        values["messages"][0].response_metadata["deep"].append(2)
        values["messages"][0].additional_kwargs["x"] = 1
        values["messages"].append(message)
        values["data"]["list"].append(2)


def test_messages_changed_between_saves_are_saved_changed(saver: LimpetSaver) -> None:
    call = {"name": "f", "args": {"x": [1]}, "id": "c", "type": "tool_call"}
    deep = {"list": [1], "one": 1, "none": None}
    messages: list[Any] = [HumanMessage(str(number), id=str(number)) for number in range(4)]
    messages[2] = AIMessage("2", id="2", tool_calls=[call], response_metadata={"deep": deep})
    messages[3] = ToolMessage("3", id="3", tool_call_id="c", artifact="x")
    put(saver, 1, messages=messages)
    expected = []
    changes: list[Any] = [
        lambda m: setattr(m[0], "content", "changed"),
        lambda m: setattr(m[0], "name", "other"),
        lambda m: setattr(m[0], "custom", 5),
        lambda m: m[2].response_metadata["deep"]["list"].append(4),
        lambda m: m[2].response_metadata["deep"].update(one=True),
        lambda m: m[2].response_metadata["deep"].update(one=1.0),
        lambda m: m[2].response_metadata["deep"].update(none=math.nan),
        lambda m: m[2].tool_calls[0]["args"].update(x=(1,)),
        lambda m: m[2].tool_calls.clear(),
        lambda m: setattr(m[2], "usage_metadata", {"input_tokens": 1}),
        # An array of one text is equal to it, and buffers to each other.
        lambda m: setattr(m[3], "artifact", np.array(["x"])),
        lambda m: setattr(m[3], "artifact", [b"x"]),
        lambda m: setattr(m[3], "artifact", [bytearray(b"x")]),
        lambda m: setattr(m[3], "artifact", [1, 2]),
        lambda m: setattr(m[3], "artifact", [np.arange(2), 2]),
        lambda m: setattr(m[3], "artifact", None),
        lambda m: setattr(m[3], "artifact", np.array([])),
        lambda m: m[1].additional_kwargs.update(a=[1]),
        lambda m: m[1].additional_kwargs["a"].append(2),
        lambda m: m.append(AIMessage("more", id="more")),
        lambda m: m.pop(0),
        lambda m: m.reverse(),
        lambda m: m.insert(1, HumanMessage("again", id="2")),
        lambda m: m.append("no message"),
        lambda m: m.clear(),
    ]
    for number, change in enumerate(changes, 2):
        change(messages)
        put(saver, number, number - 1, messages=messages)
        expected.append(repr(messages))
        assert repr(got(saver).checkpoint["channel_values"]["messages"]) == expected[-1]
    fresh = LimpetSaver(saver._sync)
    found = [got(fresh, number) for number in range(2, len(changes) + 2)]
    assert [repr(each.checkpoint["channel_values"]["messages"]) for each in found] == expected


def test_a_saver_does_not_open_its_store() -> None:
    LimpetSaver(limpet.open_async("postgresql://127.0.0.1:1/x?retry_s=0"))


def test_threads_are_listed_and_measured(saver: LimpetSaver) -> None:
    for thread in ("b/2", "a", "b/1", "b/3"):
        for namespace in ("", "inner:1", "inner:2"):
            saver.put(config(thread, namespace), checkpoint(1, text="x" * 500), {}, {})
    saver._sync.scope("b/0").save({"not": "a thread"})
    assert list(saver.threads()) == ["a", "b/1", "b/2", "b/3"]
    assert list(saver.threads(prefix="b/")) == ["b/1", "b/2", "b/3"]
    assert list(saver.threads(prefix="b/", after="b/1", limit=1)) == ["b/2"]
    sizes = saver.sizes("a")
    assert (sizes.snapshots, sizes.scopes) == (3, 3)
    assert sizes.logical_bytes > 1500


def test_delete_thread_leaves_what_others_keep(saver: LimpetSaver) -> None:
    put(saver, 1)
    saver._sync.scope("t", "planner").save({"mine": 1})
    saver.delete_thread("t")
    assert saver.get_tuple(config()) is None
    assert saver._sync.scope("t", "planner").load() is not None
    saver.put_writes(config(number=3), [("a", 1)], "task")
    saver.delete_thread("t")
    put(saver, 3)
    assert got(saver).pending_writes == []


def test_prune_by_number_and_age(saver: LimpetSaver) -> None:
    for number in range(1, 7):
        put(saver, number, number - 1 or None)
        saver.put_writes(config(number=number), [("a", number)], "task")
    saver.prune(["t"], keep_last=4, older_than=timedelta(days=100_000))
    assert ids(saver.list(config())) == [6, 5, 4, 3, 2, 1]
    saver.prune(["t"], keep_last=4, older_than=timedelta(0))
    assert ids(saver.list(config())) == [6, 5, 4, 3]
    assert got(saver, 3).parent_config is None
    assert got(saver, 4).parent_config == config(number=3)
    saver.prune(["t"], keep_last=3)
    saver.put_writes(config(number=2), [("a", 1)], "lost")
    saver.put_writes(config(number=9), [("a", 1)], "to come")
    saver.prune(["t"])
    (last,) = saver.list(config())
    assert last.pending_writes == [("task", "a", 6)]
    assert list(saver._sync.scope("t", kind="thread").noted_ids()) == [id_of(6), id_of(9)]
    saver.prune(["t", "nothing"], older_than=timedelta(0))
    assert ids(saver.list(config())) == [6]


def test_classes_of_ones_own_are_allowed_by_being_listed(memory: LimpetSaver) -> None:
    point = Point(1.5, ("a",))
    with pytest.raises(InvalidInput, match=r"list it in `allow`.*path=`/channel_values/p`"):
        put(memory, 1, p=point)
    assert memory.get_tuple(config()) is None
    listed = memory.with_allowlist([(Point.__module__, "Point"), (Colour.__module__, "Colour")])
    put(listed, 1, p=point, c=Colour.RED)
    listed.put_writes(config(number=1), [("p", point)], "task")
    for saver in (listed, LimpetSaver(memory._sync, allow=(Point, Colour))):
        assert got(saver).checkpoint["channel_values"] == {"p": point, "c": Colour.RED}
        assert got(saver).pending_writes == [("task", "p", point)]
    # LangGraph's own would make whatever is named; here it is told not to.
    loose = LimpetSaver(memory._sync, serde=JsonPlusSerializer(allowed_msgpack_modules=True))
    for saver in (memory, loose):
        with pytest.raises(InvalidInput, match="not allowed"):
            got(saver)


def test_a_serializer_that_encrypts_sees_everything(saver: LimpetSaver) -> None:
    sealing = LimpetSaver(saver._sync, serde=EncryptedSerializer(Cipher()))
    secret = "CARD 4111"
    odd = {"t": (1, ("2", [3])), "wide": 2**70, "lone": "\ud800", "b": b"\0", 5: {"x": {1, 2}}}
    done = ToolMessage("done", tool_call_id="1", id="m", artifact=("a", b"b"))
    messages = [HumanMessage(secret, id="1"), done]
    metadata: Any = {"step": 1, "secret": secret}
    for number in (1, 2):
        values = {"messages": messages, "bare": secret, "odd": odd}
        sealing.put(config(), checkpoint(number, **values), metadata, {})
        sealing.put_writes(config(number=number), [("bare", secret)], "task")
    for each in (sealing, LimpetSaver(saver._sync, serde=EncryptedSerializer(Cipher()))):
        found = got(each)
        assert repr(found.checkpoint["channel_values"]) == repr(values)
    assert found.metadata == metadata
    assert found.pending_writes == [("task", "bare", secret)]
    assert ids(sealing.list(config(), filter={"secret": secret})) == [2, 1]
    snapshot = saver._sync.scope("t", kind="thread").load()
    assert snapshot is not None
    notes = list(saver._sync.scope("t", kind="thread").notes(on=snapshot.id))
    assert secret not in repr((snapshot, notes))
    with pytest.raises(InvalidInput, match="serializer"):
        got(saver)
    put(saver, 3, bare="never sealed")
    with pytest.raises(InvalidInput, match="not saved with this serializer"):
        got(sealing)


def test_versions_grow_whatever_they_were(memory: LimpetSaver) -> None:
    versions: list[Any] = [memory.get_next_version(None, None)]
    for _ in range(20):
        versions.append(memory.get_next_version(versions[-1], None))
    assert versions == sorted(set(versions))
    assert memory.get_next_version(7, None).startswith(f"{8:032}.0.")
    assert memory.get_next_version("00012.0.5", None).startswith(f"{13:032}.0.")


@for_each(
    "wrong",
    [
        lambda saver: LimpetSaver(cast(Any, "sqlite:///x.db")),
        lambda saver: LimpetSaver(saver._sync, allow=cast(Any, ["Point"])),
        lambda saver: saver.get_tuple({}),
        lambda saver: saver.get_tuple({"configurable": {}}),
        lambda saver: saver.get_tuple(config("!" * 512)),
        lambda saver: saver.get_tuple(config("a\0b")),
        lambda saver: saver.put_writes(config(), [("a", 1)], "task"),
        lambda saver: saver.prune(["t"], strategy="some"),
        lambda saver: saver.prune("t"),
        lambda saver: saver.prune(["t"], keep_last=-1),
        lambda saver: saver.prune(["t"], strategy="delete", keep_last=1),
        lambda saver: saver.delete_for_runs("r"),
    ],
)
def test_mistakes_are_reported(memory: LimpetSaver, wrong: Any) -> None:
    with pytest.raises(InvalidInput):
        wrong(memory)
