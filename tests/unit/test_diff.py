"""What a person is told about two states, case by case, and how much work that may take."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from limpet.core.diff import diff
from limpet.model import Diff
from tests.cases import for_each

TEXT = "a text long enough not to be repeated in a patch, " * 2


def user(content: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def assistant(content: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def told(before: Any, after: Any) -> list[tuple[str, str, Any, Any]]:
    return [(c.kind, c.path, c.before, c.after) for c in diff(before, after).changes]


CALL_A = {"id": "call_a", "name": "search", "arguments": {"q": "cats"}}
CALL_B = {"id": "call_b", "name": "search", "arguments": {"q": "dogs"}}

# name: (before, after, changes as (kind, path, before, after))
CASES: dict[str, tuple[Any, Any, list[tuple[str, str, Any, Any]]]] = {
    "nothing": ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}, []),
    "a message is appended": (
        {"messages": [user("hi")]},
        {"messages": [user("hi"), assistant("hello")]},
        [("added", "/messages/1", None, assistant("hello"))],
    ),
    "a message is edited": (
        {"messages": [user("hi"), assistant("it is 4"), user("thanks")]},
        {"messages": [user("hi"), assistant("it is 5"), user("thanks")]},
        [("changed", "/messages/1/content", "it is 4", "it is 5")],
    ),
    "a message is replaced by one that has nothing in common": (
        [user("hi"), user("no")],
        [user("hi"), assistant("bye")],
        [("removed", "/1", user("no"), None), ("added", "/1", None, assistant("bye"))],
    ),
    "a message is moved": (
        [user("a"), user("b"), user("c"), user("d")],
        [user("b"), user("c"), user("d"), user("a")],
        [("moved", "/3", "/0", "/3")],
    ),
    "a message is moved while others come and go": (
        [user("a"), assistant("b"), user("c"), assistant("d")],
        [assistant("d"), assistant("b"), user("c"), user("e"), assistant("f")],
        [
            ("removed", "/0", user("a"), None),
            ("moved", "/0", "/3", "/0"),
            ("added", "/3", None, user("e")),
            ("added", "/4", None, assistant("f")),
        ],
    ),
    "a tool call is edited beyond recognition": (
        {"tool_calls": [CALL_A, CALL_B]},
        {"tool_calls": [CALL_A, {"id": "call_b", "tool": 7}]},
        [
            ("removed", "/tool_calls/1/name", "search", None),
            ("removed", "/tool_calls/1/arguments", {"q": "dogs"}, None),
            ("added", "/tool_calls/1/tool", None, 7),
        ],
    ),
    "a tool call is dropped and the next one edited": (
        [CALL_A, CALL_B],
        [{**CALL_B, "arguments": {"q": "cats"}}],
        [("removed", "/0", CALL_A, None), ("changed", "/0/arguments/q", "dogs", "cats")],
    ),
    "a tool call is replaced by another that looks the same": (
        [CALL_A],
        [{**CALL_A, "id": "call_c"}],
        [("removed", "/0", CALL_A, None), ("added", "/0", None, {**CALL_A, "id": "call_c"})],
    ),
    "results are matched by their calls": (
        [{"tool_call_id": "x", "content": "-"}, {"tool_call_id": "y", "content": "-"}],
        [{"tool_call_id": "y", "content": "done"}],
        [
            ("removed", "/0", {"tool_call_id": "x", "content": "-"}, None),
            ("changed", "/0/content", "-", "done"),
        ],
    ),
    "elements with ids are reordered and one is edited": (
        [{"uuid": "a", "n": 1}, {"uuid": "b", "n": 2}, {"uuid": "c", "n": 3}],
        [{"uuid": "c", "n": 3}, {"uuid": "a", "n": 1}, {"uuid": "b", "n": 0}],
        [("moved", "/0", "/2", "/0"), ("changed", "/2/n", 2, 0)],
    ),
    "an element is moved and edited": (
        [{"id": 1, "n": 1}, {"id": 2}, {"id": 3}],
        [{"id": 2}, {"id": 3}, {"id": 1, "n": 5}],
        [("moved", "/2", "/0", "/2"), ("changed", "/2/n", 1, 5)],
    ),
    "an id that is not unique does not identify": (
        [{"id": 1, "n": "a"}, {"id": 1, "n": "b"}],
        [{"id": 1, "n": "b"}, {"id": 1, "n": "a"}],
        [("moved", "/0", "/1", "/0")],
    ),
    "a message gets its id": (
        [user("hi")],
        [user("hi", id="m1")],
        [("added", "/0/id", None, "m1")],
    ),
    "the old pointer leads into the old state": (
        [{"id": "x"}, {"id": "y", "l": [[1], [2], [3]]}],
        [{"id": "y", "l": [[2], [3], [1]]}],
        [("removed", "/0", {"id": "x"}, None), ("moved", "/0/l/2", "/1/l/0", "/0/l/2")],
    ),
    "files come, go and change": (
        {"files": {"a.py": "x = 1", "b.py": "y", "src/c~.py": "z"}},
        {"files": {"a.py": "x = 2", "src/c~.py": "zz", "d.py": ""}},
        [
            ("removed", "/files/b.py", "y", None),
            ("changed", "/files/a.py", "x = 1", "x = 2"),
            ("changed", "/files/src~1c~0.py", "z", "zz"),
            ("added", "/files/d.py", None, ""),
        ],
    ),
    "types": (
        {"a": 1, "b": 1, "c": 0.0, "d": None, "e": [], "f": "1"},
        {"a": 1.0, "b": True, "c": -0.0, "d": False, "e": {}, "f": 1},
        [
            ("changed", "/a", 1, 1.0),
            ("changed", "/b", 1, True),
            ("changed", "/c", 0.0, -0.0),
            ("changed", "/d", None, False),
            ("changed", "/e", [], {}),
            ("changed", "/f", "1", 1),
        ],
    ),
    "the root": ({"a": 1}, [1], [("changed", "", {"a": 1}, [1])]),
    "the empty key": ({"": {"": 1}}, {"": {"": 2}}, [("changed", "//", 1, 2)]),
    "the order of keys": (
        {"a": 1, "b": 2, "c": 3},
        {"c": 3, "a": 1, "b": 2},
        [("moved", "/c", "/c", "/c")],
    ),
}


@for_each("name", CASES)
def test_changes_are_listed_exactly(name: str) -> None:
    before, after, changes = CASES[name]
    # As text, because 1 == 1.0 == True.
    assert repr(told(before, after)) == repr(changes)
    assert bool(diff(before, after)) == bool(changes)


@for_each(
    "before, after, patch",
    [
        ([user("a")], [user("b")], [{"op": "replace", "path": "/0/content", "value": "b"}]),
        ([1, 2, 3], [2, 3, 1], [{"op": "move", "from": "/0", "path": "/2"}]),
        ([1, 2, 3], [2], [{"op": "remove", "path": "/2"}, {"op": "remove", "path": "/0"}]),
        (
            {"a": 1, "b": 2},
            {"b": 2, "a": 1},
            [{"op": "remove", "path": "/a"}, {"op": "add", "path": "/a", "value": 1}],
        ),
        (
            {"moving": TEXT, "b": 2},
            {"b": 2, "moving": TEXT},
            [
                {"op": "move", "from": "/moving", "path": "/moving_"},
                {"op": "move", "from": "/moving_", "path": "/moving"},
            ],
        ),
        (
            {"a": []},
            {"moving": 0, "a": []},
            [
                {"op": "add", "path": "/moving", "value": 0},
                {"op": "move", "from": "/a", "path": "/moving_"},
                {"op": "move", "from": "/moving_", "path": "/a"},
            ],
        ),
        ({"a": 1}, None, [{"op": "replace", "path": "", "value": None}]),
    ],
)
def test_the_patch(before: Any, after: Any, patch: list[dict[str, Any]]) -> None:
    assert diff(before, after).to_json_patch() == patch


def test_as_text_it_has_a_short_line_for_each_change() -> None:
    before = {"mood": "calm", "x": 1, "old": "o" * 1000, "l": [1, 2]}
    after = {"mood": "bold", "x": 1, "new": [0] * 1000, "l": [2, 1]}
    lines = str(diff(before, after)).splitlines()
    assert lines == [
        "- /old: 'oooooooooooo...ooooooooooooo'",
        "~ /mood: 'calm' -> 'bold'",
        "+ /new: [0, 0, 0, 0, 0, 0, ...]",
        "> /l/0: from /l/1",
    ]
    assert str(diff(1, 2)) == "~ (the whole state): 1 -> 2"
    assert str(diff({"a": 1, "b": 2}, {"b": 2, "a": 1})) == "> /b: in another order"
    assert str(diff(1, 1)) == ""


def nested(levels: int, core: Any) -> Any:
    for level in range(levels):
        core = [level, core] if level % 2 else {"inner": core, "level": level}
    return core


def below(frames: int, fn: Callable[[], Diff]) -> Diff:
    return below(frames - 1, fn) if frames else fn()


@for_each("levels", [200, 2_000])
def test_depth_costs_no_frames(levels: int) -> None:
    before, after = nested(levels, "old"), nested(levels, "new")
    found = below(300, lambda: diff(before, after))
    assert [c.kind for c in found.changes] == ["changed"]
    assert found.changes[0].path.count("/") == levels
    assert len(found.to_json_patch()) == 1


COUNT = 10_000
MESSAGES = [user(f"message {n} of many") for n in range(COUNT)]

HEAVY: dict[str, Callable[[], tuple[Any, Any]]] = {
    "all different": lambda: (MESSAGES, [assistant(f"{n}") for n in range(COUNT)]),
    "reversed": lambda: (MESSAGES, MESSAGES[::-1]),
    "ids reversed and edited": lambda: (
        [{"id": n, "v": 0} for n in range(COUNT)],
        [{"id": n, "v": 1} for n in reversed(range(COUNT))],
    ),
    "keys reversed": lambda: (
        {str(n): n for n in range(COUNT)},
        {str(n): n for n in reversed(range(COUNT))},
    ),
    "long texts that begin and end alike": lambda: (
        [{str(k): f"{TEXT * 30}{n}{TEXT}" for k in range(30)} for n in range(60)],
        [{str(k): f"{TEXT * 30}-{n}{TEXT}" for k in range(30)} for n in range(60)],
    ),
    "a huge key above a long list": lambda: (
        {"k" * 1_000_000: list(range(COUNT))},
        {"k" * 1_000_000: list(range(COUNT, 2 * COUNT))},
    ),
    "megabytes of text": lambda: (
        {"files": {str(n): f"{n}" * 50_000 for n in range(100)}},
        {"files": {str(n): f"{n}" * 50_000 + "." for n in range(100)}},
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "ids reversed and edited" else [])
        for name in HEAVY
    ],
)
def test_work_is_bounded(name: str) -> None:
    """Each takes well below a second on an idle machine; a quadratic step would take minutes."""
    before, after = HEAVY[name]()
    start = time.process_time()
    found = diff(before, after)
    assert time.process_time() - start < 5
    assert 0 < len(found.to_json_patch()) <= 2 * COUNT


def test_what_marshal_cannot_write_is_compared_all_the_same() -> None:
    before, after = nested(2_100, {"a": True, "b": 0.0}), nested(2_100, {"a": 1, "b": -0.0})
    found = diff({"deep": before, "same": before}, {"deep": after, "same": before})
    assert [str(each.after) for each in found.changes] == ["1", "-0.0"]
