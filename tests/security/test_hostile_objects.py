"""Heads, segments and pages of notes that no writer of ours makes, with the right checksums.

Whoever may write to a bucket can make them: each verb ends, with what is there or an error of ours.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any

import orjson
import pytest

from limpet import LimpetError, Store
from limpet.backends.objects.format import describe
from limpet.engine.rolling import Limits
from tests.buckets.counting import CountingBucket
from tests.buckets.opened import impatient_clock, store_on

TAILS = Limits(3, newest_bytes=1000)
HOSTILE: list[Any] = [
    None, True, -1, 7, 2**63, 2**64 - 1, 1e300, "", "x", "../../../x", "-1", "ffffffffffffffffff",
    [], [[]], [1, 2], {}, {"a": {}},
]  # fmt: skip


@pytest.fixture(scope="module")
def stored() -> dict[str, tuple[bytes, int]]:
    """A scope with a segment, pages of notes and notes in its head."""
    bucket = CountingBucket()
    with store_on(bucket, tails=TAILS) as store:
        scope = store.scope("s")
        for n in range(9):
            scope.save({"n": n, "t": "x" * 5000 * (n % 2)}, id=f"i{n}", labels={"a": "b"})
            scope.append("list", [n])
        for n in range(70):
            scope.set_note(f"n{n:02}", n)
        scope.set_note("last", 1)
        scope.fork("i1", scope_id="fork")
        store.scope("good").save({"n": 1})
    assert {key.split("/")[-2] for key in bucket.objects if key.startswith("sessions/s/")} >= {
        "snapshots", "segments", "notes",
    }  # fmt: skip
    return dict(bucket.objects)


def lines_of(data: bytes) -> tuple[dict[str, Any], list[Any], bytes]:
    """Return the description of an object, its facts, and the rest."""
    end = data.index(b"\n") + 1
    about = orjson.loads(data[:end])
    facts = data[end : end + about["frames"][0]]
    lines = [orjson.loads(line) for line in facts.split(b"\n")[:-1]]
    return about, lines, data[end + about["frames"][0] :]


def sealed(about: dict[str, Any], lines: list[Any], rest: bytes, *, is_true: bool = True) -> bytes:
    facts = b"".join(orjson.dumps(line) + b"\n" for line in lines)
    if is_true:
        return describe({**about, "frames": [len(facts), len(rest)]}, facts) + facts + rest
    return orjson.dumps(about) + b"\n" + facts + rest


def changes(value: Any) -> Iterator[Callable[[], None]]:
    """Yield what puts another value into a place of a JSON value; the next one undoes it."""
    places = list(value) if isinstance(value, dict) else range(len(value))
    for place in places:
        inner = value[place]
        for other in HOSTILE:
            if type(other) is not type(inner) or other != inner:
                yield lambda place=place, other=other: value.__setitem__(place, other)  # type: ignore[misc]
                value[place] = inner
        if isinstance(inner, dict | list):
            yield from changes(inner)
    if isinstance(value, dict):
        for place in places:
            inner = value[place]
            yield lambda place=place: value.__delitem__(place)  # type: ignore[misc]
            value[place] = inner


def variants(data: bytes) -> Iterator[bytes]:
    """Yield objects of which one part is another, with the right checksum."""
    about, lines, rest = lines_of(data)
    for change in changes(about):
        change()
        yield sealed(about, lines, rest, is_true=False)
        yield sealed(about, lines, rest)
    for change in changes(lines):
        change()
        yield sealed(about, lines, rest)


def use(store: Store) -> None:
    """Call everything that reads or writes."""
    scope = store.scope("s")
    for verb in (
        scope.load, scope.info, lambda: scope.load("i1"), lambda: list(scope.history()),
        lambda: list(scope.history(labels={"a": "b"})), lambda: list(scope.ids()),
        lambda: list(scope.load_many(["i0", "i3", "i8"])), lambda: list(scope.notes()),
        lambda: scope.note("n07"), lambda: list(scope.notes(on="i1")),
        lambda: scope.diff("i1", "i3"),
        lambda: list(store.sessions()), lambda: list(store.scopes()), lambda: store.find("i1"),
        lambda: list(store.history()), lambda: list(store.history(labels={"a": "b"})),
        store.stats, lambda: list(store.check()),
        lambda: scope.set_note("last", 2), lambda: scope.delete_note("n08"),
        lambda: scope.fork("i2", scope_id="f2"), lambda: scope.append("list", [1]),
        lambda: scope.update("i1", lambda was: was.with_(status="x")),
        lambda: scope.update("i4", lambda was: was.with_(state={})),
        lambda: [scope.save({"n": n}) for n in range(5)],
        lambda: scope.delete_snapshot("i2"), lambda: scope.prune(keep_last=2), store.compact,
        lambda: list(store.repair()), lambda: store.scope("s", "fork").load(),
        lambda: scope.delete(expect=None), lambda: store.delete_session("s"),
    ):  # fmt: skip
        with suppress(LimpetError):
            verb()


@pytest.mark.parametrize("part", ["/head", "/segments/", "/notes/"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))])
def test_every_verb_ends_and_no_other_scope_is_concerned(
    stored: dict[str, tuple[bytes, int]], part: str, seed: int
) -> None:
    key = next(k for k in stored if part in k and k.startswith("sessions/s/scopes/agent/main/"))
    every = list(dict.fromkeys(variants(stored[key][0])))
    good = {each for each in stored if each.startswith("sessions/good/")}
    assert len(every) > 400
    for data in Random(seed).sample(every, 60 if seed else 15):
        bucket = CountingBucket()
        bucket.objects = {**stored, key: (data, 99)}
        with store_on(bucket, clock=impatient_clock(), tails=TAILS) as store:
            use(store)
            found = store.scope("good").load()
        assert found is not None
        assert all(bucket.objects[each] == stored[each] for each in good)
