"""For any two JSON values the patch leads from one to the other exactly, and changes say the same.

The applier here is RFC 6902 to the letter and knows nothing of how patches are made.
"""

import copy
import random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limpet.core import diff as module
from limpet.core.codec import encode
from limpet.core.diff import diff
from limpet.model import Diff

moderate = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])

texts = st.text(max_size=4) | st.sampled_from(["", "/", "~", "~1", "0", "-", "moving", "é😀"])
keys = texts | st.sampled_from(["id", "uuid", "tool_call_id", "role", "content", "moving_"])
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.integers(-(2**70), 2**70)
    | st.sampled_from([0.0, -0.0, 1.0, 2.5, 1e300])
    | texts
    | st.text(min_size=60, max_size=80)
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(keys, inner, max_size=6),
    max_leaves=20,
)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant"]), "content": texts},
        optional={"id": st.integers(0, 6) | st.sampled_from("abcdef") | st.none()},
    ),
    max_size=12,
)
few: st.SearchStrategy[Any] = st.integers(0, 5) | st.booleans() | st.sampled_from([[], {}])
small_lists = st.lists(few, max_size=14)


def parts_of(pointer: str) -> list[str]:
    """Return the parts of a JSON Pointer (RFC 6901)."""
    if pointer == "":
        return []
    assert pointer.startswith("/")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def index_of(part: str, count: int) -> int:
    """Return an array index, which has no sign and no leading zeros, below `count`."""
    assert part == "0" or (part.isascii() and part.isdigit() and part[0] != "0")
    assert int(part) < count
    return int(part)


def at(document: Any, pointer: str) -> Any:
    """Return the value at a pointer; it must exist."""
    for part in parts_of(pointer):
        if isinstance(document, list):
            document = document[index_of(part, len(document))]
        else:
            assert isinstance(document, dict)
            document = document[part]
    return document


def remove(document: Any, pointer: str) -> Any:
    """Remove what must exist, and return it."""
    above, _, _ = pointer.rpartition("/")
    parent, last = at(document, above), parts_of(pointer)[-1]
    return parent.pop(index_of(last, len(parent)) if isinstance(parent, list) else last)


def add(document: Any, pointer: str, value: Any) -> None:
    """Add a member, or insert an element before the one that has its index now."""
    above, _, _ = pointer.rpartition("/")
    parent, last = at(document, above), parts_of(pointer)[-1]
    if isinstance(parent, list):
        parent.insert(index_of(last, len(parent) + 1), value)
    else:
        assert isinstance(parent, dict)
        parent[last] = value


def apply(document: Any, patch: list[dict[str, Any]]) -> Any:
    """Return a copy of a document after the operations, each of them valid where it stands."""
    document = copy.deepcopy(document)
    for operation in patch:
        op, path = operation["op"], operation["path"]
        members = {"add": {"value"}, "replace": {"value"}, "remove": set(), "move": {"from"}}[op]
        assert operation.keys() == {"op", "path"} | members
        value = copy.deepcopy(operation.get("value"))
        if op == "replace" and path == "":
            document = value
        elif op == "replace":
            above, _, _ = path.rpartition("/")
            parent, last = at(document, above), parts_of(path)[-1]
            at(document, path)
            parent[int(last) if isinstance(parent, list) else last] = value
        elif op == "add":
            add(document, path, value)
        elif op == "remove":
            remove(document, path)
        else:
            assert not path.startswith(operation["from"] + "/")
            add(document, path, remove(document, operation["from"]))
    return document


def count_values(value: Any) -> int:
    """Return how many values there are in a value, itself included."""
    if isinstance(value, dict):
        return 1 + sum(map(count_values, value.values()))
    return 1 + sum(map(count_values, value)) if isinstance(value, list) else 1


def containers_in(value: Any) -> list[Any]:
    """Return every list and object in a value."""
    found = [value]
    for each in found:
        if isinstance(each, dict | list):
            found.extend(each.values() if isinstance(each, dict) else each)
    return [each for each in found if isinstance(each, dict | list)]


def edit(value: Any, rng: random.Random, spare: list[Any]) -> Any:
    """Return a copy of a value after a few edits such as programs make."""
    value = copy.deepcopy(value)
    for _ in range(rng.randint(0, 4)):
        containers = containers_in(value)
        if not containers:
            return copy.deepcopy(rng.choice(spare))
        target, fresh = rng.choice(containers), copy.deepcopy(rng.choice(spare))
        if isinstance(target, list):
            place = rng.randint(0, len(target))
            match rng.randint(0, 4):
                case 0:
                    target.insert(place, fresh)
                case 1:
                    target[place : place + rng.randint(1, 3)] = []
                case 2:
                    target[place : place + 1] = [fresh]
                case 3 if target:
                    target.insert(place, target.pop(rng.randrange(len(target))))
                case _:
                    rng.shuffle(target)
            continue
        members = list(target.items())
        match rng.randint(0, 3):
            case 0:
                members.insert(rng.randint(0, len(members)), (f"new{rng.randint(0, 2)}", fresh))
            case 1:
                del members[: rng.randint(0, 2)]
            case 2 if members:
                members[-1] = (members[-1][0], fresh)
            case _:
                rng.shuffle(members)
        target.clear()
        target.update(members)
    return value


def assert_exact(before: Any, after: Any) -> None:
    """Assert everything that is promised of the difference of two values."""
    held = encode(before), encode(after)
    found = diff(before, after)
    patch = found.to_json_patch()
    assert encode(apply(before, patch)) == encode(after)
    assert (encode(before), encode(after)) == held
    assert diff(before, copy.deepcopy(before)) == Diff(())
    assert bool(found) == bool(patch) == (encode(before) != encode(after))
    assert len(patch) <= count_values(before) + 2 * count_values(after)
    assert len(found.changes) <= count_values(before) + 2 * count_values(after)
    for change in found.changes:
        if change.kind != "removed":
            there = at(after, change.path)
            assert change.kind == "moved" or encode(there) == encode(change.after)
        if change.kind == "removed":
            assert encode(at(before, change.path)) == encode(change.before)
            assert change.after is None
        if change.kind == "added":
            assert change.before is None
        if change.kind == "changed":
            assert encode(change.before) != encode(change.after)
        if change.kind == "moved":
            assert change.after == change.path
            at(before, change.before)


@moderate
@given(values, values)
def test_any_two_values(before: Any, after: Any) -> None:
    assert_exact(before, after)


@moderate
@given(values, st.randoms(use_true_random=False), st.lists(values, min_size=1, max_size=4))
def test_a_value_and_the_same_after_some_edits(
    before: Any, rng: random.Random, spare: list[Any]
) -> None:
    assert_exact(before, edit(before, rng, spare))


@moderate
@given(messages, messages)
def test_messages_with_and_without_ids(before: Any, after: Any) -> None:
    assert_exact(before, after)


@moderate
@given(small_lists, st.permutations(range(14)), small_lists)
def test_lists_with_repetitions(before: Any, order: list[int], extra: Any) -> None:
    after = [before[place] for place in order if place < len(before)]
    assert_exact(before, after)
    assert_exact(before, after + extra)
    assert_exact(before + extra, extra + after)
    moved = diff(before, after).changes
    assert {change.kind for change in moved} <= {"moved"}


@moderate
@given(st.dictionaries(keys, values, max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_keys_alone(before: dict[str, Any], rng: random.Random) -> None:
    order = list(before)
    rng.shuffle(order)
    after = {key: before[key] for key in order}
    assert_exact(before, after)
    assert {change.kind for change in diff(before, after).changes} <= {"moved"}


@moderate
@given(small_lists, small_lists)
def test_what_is_common_is_longest(before: list[Any], after: list[Any]) -> None:
    """Against the textbook: no longer subsequence is in order in both lists."""
    tokens = module._Tokens()
    a, b = tokens.of_elements(before, after)
    length = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, one in enumerate(a):
        for j, other in enumerate(b):
            length[i + 1][j + 1] = (
                length[i][j] + 1 if one == other else max(length[i][j + 1], length[i + 1][j])
            )
    kept = module._common(a, b, lambda what, count: True)
    assert len(kept) == length[-1][-1]
    assert list(kept) == sorted(kept)
    assert list(kept.values()) == sorted(set(kept.values()))
    assert all(a[i] == b[j] for j, i in kept.items())
    coarse = module._common(a, b, lambda what, count: False)
    assert all(a[i] == b[j] for j, i in coarse.items())


@moderate
@given(values, st.randoms(use_true_random=False), st.lists(values, min_size=1, max_size=4))
def test_exact_also_when_no_work_is_affordable(
    before: Any, rng: random.Random, spare: list[Any]
) -> None:
    """Beyond the bounds the match is coarser, never wrong."""
    after = edit(before, rng, spare)
    for what in module._WORK_MAX:
        held = module._WORK_MAX[what]
        module._WORK_MAX[what] = 0
        try:
            assert_exact(before, after)
        finally:
            module._WORK_MAX[what] = held
