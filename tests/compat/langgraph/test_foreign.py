"""What others put where checkpoints are: it is read, or refused in one clear line."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from limpet import Corrupt, InvalidInput, LimpetError, Scope
from limpet.compat.langgraph import LimpetSaver, tags
from tests.cases import for_each
from tests.compat.langgraph.kit import Cipher, Places, config, id_of, put
from tests.effort import times

OURS = {"langgraph": {"step": 1}}
CHANNELS = ["a", "b"]

# Words that mean something where they stand, so that the rules are met and not passed by.
TAGS = sorted(each for each in vars(tags).values() if isinstance(each, str) and each[:1] == "$")
WORDS = [
    *CHANNELS,
    *TAGS,
    *tags.SEQUENCES.values(),
    "HumanMessage",
    "channel_values",
    "channel_versions",
    "content",
    "counters_since_delta_snapshot",
    "delta_history",
    "fields",
    "id",
    "items",
    "langgraph",
    "langgraph_absent",
    "langgraph.types:Send",
    "name",
    "seed",
    "task_path",
    "ts",
    "v",
    "writes",
]
words = st.sampled_from(WORDS) | st.text(max_size=3)
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words


trees: st.SearchStrategy[Any] = st.recursive(
    leaves.filter(lambda each: each not in (float("inf"), -float("inf"))),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(words, inner, max_size=3)
        | st.tuples(st.integers(), words, inner).map(list)
    ),
    max_leaves=8,
)


def some(**likely: Any) -> st.SearchStrategy[Any]:
    """Return objects with some of these members, and with others, in any order; or no object."""
    members = {name: trees | kind for name, kind in likely.items()}
    shaped = st.fixed_dictionaries({}, optional=members)
    first = st.builds(lambda more, known: {**more, **known}, st.dictionaries(words, trees), shaped)
    return first | shaped | trees


parts = some(writes=st.lists(st.lists(trees, max_size=3), max_size=2), seed=trees)
states = some(
    channel_values=st.dictionaries(words, trees, max_size=3),
    delta_history=st.dictionaries(words, parts, max_size=2),
    channel_versions=st.dictionaries(words, trees, max_size=2),
)
metadata = st.fixed_dictionaries(
    {},
    optional={
        "langgraph": some(counters_since_delta_snapshot=st.dictionaries(words, trees, max_size=2)),
        "langgraph_absent": trees | st.lists(words, max_size=2),
    },
)
notes = some(
    task_path=words,
    writes=st.lists(st.lists(trees, max_size=4) | trees, max_size=2),
)


@contextmanager
def only_told() -> Iterator[None]:
    with suppress(LimpetError):
        yield


def look(saver: LimpetSaver) -> None:
    """Ask for all that can be asked for. What is raised besides `LimpetError` fails the test."""
    for number in (None, 1, 2):
        with only_told():
            saver.get_tuple(config(number=number))
        with only_told():
            saver.get_delta_channel_history(config=config(number=number), channels=CHANNELS)
    for where in (config(), config(number=2), None):
        for filter in (None, {"step": 1}):
            with only_told():
                for each in saver.list(where, filter=filter):
                    with only_told():
                        assert each.checkpoint["channel_values"] is not None


def change(saver: LimpetSaver) -> None:
    """Do what reads before it writes."""
    with only_told():
        saver.copy_thread("t", "copy")
    with only_told():
        saver.delete_for_runs(["r"])
    with only_told():
        saver.prune(["t"], keep_last=1)


@pytest.mark.parametrize("large", [False, True])
@settings(
    max_examples=times(15, full=200),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    saved=st.tuples(*[st.tuples(states, metadata, notes)] * 2),
    ours=st.tuples(st.booleans(), st.booleans()),
)
@example(
    saved=(({"a": 1}, {}, None), ({"channel_values": {}, "$set": [1]}, {}, None)),
    ours=(True, True),
)
def test_nothing_else_than_an_error_of_ours(
    places: Places, monkeypatch: pytest.MonkeyPatch, large: bool, saved: Any, ours: Any
) -> None:
    if large:  # what is made when it is looked at
        monkeypatch.setattr("limpet.compat.langgraph.listing.LARGE_MIN", 0)
    with places.open("memory") as store:
        scope = store.scope("t", kind="thread")
        for number, (state, facts, note) in enumerate(saved, 1):
            known = {**OURS, **facts} if ours[number - 1] else facts
            labels = {"run_id": "r"} if number == 1 else {}
            scope.save(state, id=id_of(number), metadata=known, labels=labels)
            scope.set_note("task", note, on=id_of(number))
        look(LimpetSaver(store))
        change(LimpetSaver(store))
        look(LimpetSaver(store))


def saved(saver: LimpetSaver, **facts: Any) -> Scope:
    """Save two checkpoints as others could, in a thread that is new; the second has these facts."""
    saver.delete_thread("t")
    scope = saver._sync.scope("t", kind="thread")
    state = facts.pop("state", {"channel_values": {}})
    put(saver, 1, a=[1])
    scope.save(state, id=id_of(2), metadata={**OURS, **facts})
    return scope


def history(saver: LimpetSaver, number: int = 2) -> Any:
    return saver.get_delta_channel_history(config=config(number=number), channels=["a"])


@for_each(
    "carried",
    [
        [],
        {"a": []},
        {"a": {"seed": 1}},
        {"a": {"writes": [1]}},
        {"a": {"writes": [["task"]]}},
        {"a": {"writes": [[1, "value"]]}},
        {"a": {"writes": ["ab"]}},
        {"a": {"writes": {"ab": 1}}},
    ],
)
def test_what_is_carried_must_make_sense(memory: LimpetSaver, carried: Any) -> None:
    state = {"channel_values": {}, "delta_history": carried}
    saved(memory, state=state)
    with pytest.raises(
        Corrupt, match=f"delta history of a checkpoint is malformed. id=`{id_of(2)}`"
    ):
        history(memory)


@for_each("item", [1, [], [0, "a"], [0, "a", 1, 2], ["0", "a", 1], [0, [], 1]])
def test_what_a_task_wrote_must_make_sense(saver: LimpetSaver, item: Any) -> None:
    scope = saved(saver)
    scope.set_note("task", {"task_path": "", "writes": [[1, "a", 1], item]}, on=id_of(1))
    fact = f"what a task wrote is malformed. task_id=`task` id=`{id_of(1)}`"
    for ask in (lambda: saver.get_tuple(config(number=1)), lambda: history(saver)):
        with pytest.raises(Corrupt) as told:
            ask()
        assert str(told.value) == fact
    # A note of another kind is none of LangGraph's.
    scope.set_note("task", {"writes": [item]}, on=id_of(1))
    assert history(saver) == {"a": {"seed": [1], "writes": []}}


@for_each("item", [5, [], [1], ["a", "b", 1], {"0": 1}, [[1], "a", 1]])
def test_nothing_is_written_over_what_makes_no_sense(memory: LimpetSaver, item: Any) -> None:
    scope = saved(memory)
    note = {"task_path": "", "writes": [item]}
    scope.set_note("task", note, on=id_of(1))
    with pytest.raises(Corrupt, match="malformed"):
        memory.put_writes(config(number=1), [("a", 1)], "task")
    found = scope.note("task", on=id_of(1))
    assert found is not None
    assert found.value == note


@for_each(
    "form, body",
    itertools.product(
        ["msgpack+turned", "msgpack+theirs", "bytes", "nothing", "+"],
        ["no base64", "AAAA", "", "/w=="],
    ),
)
def test_what_a_cipher_does_not_open(memory: LimpetSaver, form: str, body: str) -> None:
    sealing = LimpetSaver(memory._sync, serde=EncryptedSerializer(Cipher()))
    scope = saved(memory)
    for value in ({"$sealed": [form, body]}, [{"$sealed": [form, body]}]):
        state = {"channel_values": {"a": value}}
        scope.save(state, id=id_of(2), overwrite=True, metadata={"langgraph": {}})
        with pytest.raises((Corrupt, InvalidInput)):
            sealing.get_tuple(config())


@for_each("state", [5, {}, {"channel_values": 1}, {"$set": [], "channel_values": {}}])
def test_a_state_must_be_that_of_a_checkpoint(memory: LimpetSaver, state: Any) -> None:
    saved(memory, state=state)
    with pytest.raises(Corrupt, match=f"not that of a checkpoint. id=`{id_of(2)}`"):
        memory.get_tuple(config())
