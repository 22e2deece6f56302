"""A value that another thread changes while it is encoded: what is stored passed every check.

A thread can only switch at some instructions of Python code: calls, and repetitions of a loop. So
the change is made before each of them in turn, until one encoding ends before its turn comes.
"""

import dis
import importlib.util
import sys
import uuid
from collections.abc import Callable
from functools import cache, partial
from types import CodeType, FrameType, ModuleType
from typing import Any

import pytest

from limpet.core import codec, prepare
from limpet.core.deltas.delta import apply, extended
from limpet.errors import InvalidInput
from limpet.model import ScopeKey
from limpet.protocol import Append, Stamp
from tests.cases import for_each

CORE = codec.__file__.rpartition("/")[0]
SIZE_MAX = 1_000_000
NAN = float("nan")


@cache
def switches(code: CodeType) -> frozenset[int]:
    """Return the offsets of the instructions before which another thread may run."""
    names = ("CALL", "PRECALL", "RESUME", "JUMP_BACKWARD", "FOR_ITER", "STORE")
    return frozenset(
        each.offset for each in dis.get_instructions(code) if each.opname.startswith(names)
    )


class Changer:
    """Calls a function before the n-th instruction of the core, and another before the m-th."""

    def __init__(self, changes: dict[int, Callable[[], object]]) -> None:
        self.steps = 0
        self._changes = changes

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        if not frame.f_code.co_filename.startswith(CORE):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti in switches(frame.f_code):
            self.steps += 1
            change = self._changes.get(self.steps)
            if change is not None:
                change()
        return self

    def run(self, work: Callable[[], Any]) -> Any:
        before = sys.gettrace()
        sys.settrace(self)
        try:
            return work()
        except InvalidInput as error:
            return error
        finally:
            sys.settrace(before)


def fresh() -> dict[str, Any]:
    return {"messages": [1000, 2000], "n": 1, "more": [1.5]}


def one_list() -> dict[str, Any]:
    return {"messages": [1000, 2000], "n": 1}


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "a longer member behind the list": lambda state: state.update(n=10**15),
    "a member more": lambda state: state.update(z="text"),
    "the list is emptied": lambda state: state["messages"].clear(),
    "NaN in the list": lambda state: state["messages"].append(NAN),
    "a UUID": lambda state: state["messages"].append(uuid.UUID(int=1)),
    "a key that is no text": lambda state: state.update({7: 1}),  # type: ignore[dict-item]
}


def is_json(state: Any) -> bool:
    try:
        codec.encode(state)
    except InvalidInput:
        return False
    return True


def check_appendable(encoded: bytes, offsets: Any) -> None:
    """Appending at the remembered offsets gives what appending to the decoded state gives."""
    for key, value in codec.decode(encoded).items():
        if offsets is None or not isinstance(value, list):
            continue
        found = extended(offsets, len(encoded), Append(key, b"[5]", SIZE_MAX))
        assert found is not None
        expected = {**codec.decode(encoded), key: [*value, 5]}
        assert codec.decode(apply(encoded, found[0])) == expected


@pytest.fixture
def without_gil(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Another copy of the module, imported as in a free-threaded build."""
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    spec = importlib.util.spec_from_file_location("codec_without_gil", codec.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_without_the_gil_a_value_changes_even_inside_one_call(without_gil: ModuleType) -> None:
    """Another thread adds a NaN and removes it again, both while C code encodes the value."""
    state = one_list()
    messages = state["messages"]
    changes = iter([partial(messages.append, NAN), messages.pop])

    def call(work: Callable[[], Any]) -> Any:
        next(changes, int)()
        found = work()
        next(changes, int)()
        return found

    without_gil._call = call  # type: ignore[attr-defined]
    encoded, _ = without_gil.encode_state(state)
    assert codec.decode(encoded) == one_list()
    assert without_gil.encode(state) == codec.encode(state)


def test_a_change_at_any_moment_without_the_gil(without_gil: ModuleType) -> None:
    check_each_moment(one_list, CHANGES["the list is emptied"], without_gil)


@for_each("make", [fresh, one_list])
@for_each("change", CHANGES.values())
def test_a_change_at_any_moment(
    make: Callable[[], dict[str, Any]], change: Callable[[dict[str, Any]], object]
) -> None:
    check_each_moment(make, change, codec)


def check_each_moment(
    make: Callable[[], dict[str, Any]],
    change: Callable[[dict[str, Any]], object],
    used: ModuleType,
) -> None:
    before, after = make(), make()
    change(after)
    allowed = [each for each in (before, after) if is_json(each)]
    for step in range(1, 100_000):
        state = make()
        changer = Changer({step: partial(change, state)})
        found = changer.run(partial(used.encode_state, state))
        if isinstance(found, InvalidInput):
            assert not is_json(after)
        else:
            encoded, offsets = found
            assert codec.decode(encoded) in allowed
            check_appendable(encoded, offsets)
        if changer.steps < step:
            return


def test_a_number_that_is_not_finite_for_a_moment_only() -> None:
    for step in range(1, 100_000):
        for later in (1, 20):
            state = one_list()
            messages = state["messages"]
            changer = Changer({step: partial(messages.append, NAN), step + later: messages.pop})
            found = changer.run(partial(codec.encode_state, state))
            if not isinstance(found, InvalidInput):
                assert codec.decode(found[0]) == one_list()
        if changer.steps < step:
            return


@for_each("change", [lambda items: items.append(3), list.clear, list.pop])
def test_items_that_change_while_they_are_appended(change: Callable[[list[Any]], object]) -> None:
    for step in range(1, 100_000):
        items: list[Any] = [1, [2]]
        after = [1, [2]]
        change(after)
        changer = Changer({step: partial(change, items)})
        commit = changer.run(partial(append, items))
        assert codec.decode(commit.body.items) in ([1, [2]], after)
        if changer.steps < step:
            return


def append(items: Any) -> Any:
    return prepare.append(
        ScopeKey("s"),
        "key",
        items,
        keep=True,
        status="",
        labels=None,
        metadata=None,
        expect=None,
        fence=None,
        stamp=Stamp(1, "n", 1),
        state_bytes_max=SIZE_MAX,
    )


def test_labels_and_metadata_that_change_meanwhile() -> None:
    for step in range(1, 100_000):
        labels = {f"l{number}": "x" for number in range(3)}
        metadata: dict[str, Any] = {"list": [1], "strands": "x" * 70_000}
        changer = Changer({step: partial(grow, labels, metadata)})
        found = changer.run(partial(encode_both, labels, metadata))
        if not isinstance(found, InvalidInput):
            assert len(codec.decode(found[0])) in (3, 4)
            stored = codec.decode(found[1])
            del stored["strands"]
            assert len(codec.encode(stored)) <= 64 * 1024
        if changer.steps < step:
            return


def grow(labels: dict[str, str], metadata: dict[str, Any]) -> None:
    labels["z"] = "1"
    metadata["list"].append("y" * 70_000)


def encode_both(labels: dict[str, str], metadata: dict[str, Any]) -> tuple[bytes, bytes]:
    return prepare.encode_labels(labels), prepare.encode_metadata(metadata, SIZE_MAX)
