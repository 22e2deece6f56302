"""Long threads: what a history takes, and that what is made late is what was there."""

import copy
import pickle
import tracemalloc
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, empty_checkpoint

from limpet.compat.langgraph import LimpetSaver
from tests.compat.langgraph.kit import Places, config, got, ids, put

COUNT = 150


def talk(saver: LimpetSaver, count: int = COUNT) -> list[list[Any]]:
    """Save a conversation that grows, with what makes it harder now and then."""
    messages: list[Any] = []
    expected = []
    for number in range(1, count + 1):
        call = {"name": "f", "args": {"x": number}, "id": str(number), "type": "tool_call"}
        kind: Any = AIMessage if number % 2 else HumanMessage
        more = {"tool_calls": [call]} if number % 6 == 1 else {}
        messages = [*messages, kind(f"{number} " + "x" * 400, id=str(number), **more)]
        if number % 40 == 0:
            messages = [HumanMessage("summary", id=f"s{number}"), *messages[-60:]]
        if number % 31 == 0:
            messages[3] = AIMessage(f"edited at {number}", id=messages[3].id)
        put(saver, number, number - 1 or None, messages=messages, other={"n": number})
        expected.append(messages)
    return expected[::-1]


def test_a_long_history_is_what_was_saved(places: Places) -> None:
    with places.open("sqlite") as store:
        expected = talk(LimpetSaver(store))
        saver = LimpetSaver(store)
        found = list(saver.list(config()))
        assert ids(found) == list(range(COUNT, 0, -1))
        seen = [each.checkpoint["channel_values"]["messages"] for each in found]
        assert seen == expected
        # In whatever order they are looked at, and again.
        for at in (100, 3, 64, 63, 65, 149, 0, 64):
            values = found[at].checkpoint["channel_values"]
            assert values == {"messages": expected[at], "other": {"n": COUNT - at}}
        assert got(saver).checkpoint == found[0].checkpoint


def test_what_is_decoded_late_belongs_to_the_reader(places: Places) -> None:
    with places.open("memory") as store:
        saver = LimpetSaver(store)
        expected = talk(saver, 60)
        newest, older, *_ = saver.list(config())
        newest.checkpoint["channel_values"]["messages"][0].content = "mine"
        assert older.checkpoint["channel_values"]["messages"] == expected[1]
        mine = some(older)
        mine["channel_values"] = "mine"
        assert newest.checkpoint["channel_values"]["messages"] == expected[0]
        assert mine["channel_values"] == "mine"
        assert older.checkpoint["channel_values"]["messages"] == expected[1]
        saver.delete_thread("t")
        assert newest.checkpoint["channel_values"]["other"] == {"n": 60}


def some(found: Any) -> Any:
    return found.checkpoint


def test_a_checkpoint_that_is_made_late_is_a_plain_one(places: Places) -> None:
    """Whatever is done with what a listing gives, also by what is written in C, meets a dict."""
    with places.open("memory") as store:
        saver = LimpetSaver(store)
        talk(saver, 60)
        late, plain = next(saver.list(config())), got(saver)
        assert isinstance(late, CheckpointTuple)
        assert type(late.checkpoint) is dict
        assert (late == plain, plain == late, late != plain) == (True, True, False)
        assert late == next(saver.list(config()))
        assert repr(late) == repr(plain)
        assert (late[1], late[-4], late[0], late[:2]) == (plain[1], plain[1], plain[0], plain[:2])
        _, unpacked, *rest = late
        assert (unpacked, rest) == (plain.checkpoint, list(plain[2:]))
        copies = (
            tuple(late),
            late._replace(config={}),
            copy.copy(late),
            copy.deepcopy(late),
            pickle.loads(pickle.dumps(late)),
            CheckpointTuple(*late),
        )
        assert all(each[1] == plain.checkpoint for each in copies)
        assert late._asdict() == plain._asdict()
        assert saver.serde.dumps_typed(late.checkpoint) == saver.serde.dumps_typed(plain.checkpoint)
        with pytest.raises(TypeError):
            hash(late)


def test_a_history_takes_little_memory(places: Places) -> None:
    """All of it is in memory at once, as LangGraph does it: 150 states of up to 50 KB each."""
    with places.open("sqlite") as store:
        messages: list[Any] = []
        saver = LimpetSaver(store)
        for number in range(1, COUNT + 1):
            messages = [*messages, HumanMessage(str(number) * 300, id=str(number))]
            put(saver, number, number - 1 or None, messages=messages)
        size = sum(info.size for info in store.scope("t", kind="thread").history())
        tracemalloc.start()
        try:
            for each in list(saver.list(config())):
                assert each.checkpoint["channel_values"]["messages"]
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert size > 8_000_000
    assert peak < size / 2


def test_no_write_of_many_ancestors_is_lost(places: Places) -> None:
    """The deltas of a channel along 200 checkpoints, also when most of them are gone."""
    with places.open("memory") as store:
        saver = LimpetSaver(store)
        at: Any = config()
        for number in range(200):
            made = empty_checkpoint()
            made["id"] = f"{number:08d}"
            made["channel_versions"] = {"d": number + 1}
            made["channel_values"] = {} if number else {"d": ["seed"]}
            meta: Any = {"step": number, "counters_since_delta_snapshot": {"d": (number, number)}}
            at = saver.put(at, made, meta, {})
            saver.put_writes(at, [("d", number)], f"task-{number}")
        found = saver.get_delta_channel_history(config=at, channels=["d"])["d"]
        plain = BaseCheckpointSaver.get_delta_channel_history(saver, config=at, channels=["d"])
        assert [write[2] for write in found["writes"]] == list(range(199))
        assert found == plain["d"]
        saver.prune(["t"], strategy="keep_latest")
        assert saver.get_delta_channel_history(config=at, channels=["d"])["d"] == found
