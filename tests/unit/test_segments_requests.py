"""What each verb costs: requests to the bucket, counted."""

from collections.abc import Callable, Iterator

import pytest

from limpet import opening
from limpet.api.scope import Scope
from limpet.api.store import Store
from limpet.backends.segments.backend import SegmentBackend
from tests.buckets.counting import CountingBucket

TURNS = 120


def store_on(bucket: CountingBucket) -> Store:
    backend = SegmentBackend(bucket, clock=opening.CLOCK, draw=opening.draw, compress=True)
    return opening.store_over(backend)


def turn(n: int) -> str:
    return "".join(f"{(n + 1) * 7919 * m % 1_000_003:06d}" for m in range(1, 300))


def states() -> Iterator[dict[str, list[str]]]:
    turns: list[str] = []
    for n in range(TURNS):
        turns.append(turn(n))
        yield {"messages": list(turns)}


@pytest.fixture(scope="module")
def chat() -> tuple[CountingBucket, list[str]]:
    bucket = CountingBucket()
    scope = store_on(bucket).scope("chat")
    return bucket, [scope.save(state).id for state in states()]


def copied(bucket: CountingBucket) -> CountingBucket:
    other = CountingBucket()
    other.objects = dict(bucket.objects)
    return other


def test_a_continuing_writer_sends_one_put_a_save() -> None:
    """And a LIST and a DELETE when it moves its tail into a segment: it never reads."""
    bucket = CountingBucket()
    scope = store_on(bucket).scope("chat")
    for n, state in enumerate(states()):
        bucket.take()
        scope.save(state)
        counted = bucket.take()
        if n:
            assert counted in (
                {"PUT": 1},
                {"PUT": 2, "LIST": 1},
                {"PUT": 2, "LIST": 1, "DELETE": 1},
            )
        else:
            # One LIST to see that the scope is new, and one that this is no other tool's folder.
            assert counted == {"GET": 1, "LIST": 2, "PUT": 3}
    assert len([key for key in bucket.objects if "/segments/" in key]) == 1


COLD: dict[str, tuple[Callable[[Scope, list[str]], object], dict[str, int]]] = {
    "head": (lambda s, ids: s.load(), {"GET": 2}),
    "info": (lambda s, ids: s.info(), {"GET": 1}),
    "old": (lambda s, ids: s.load(ids[40]), {"GET": 2}),
    "history": (lambda s, ids: list(s.history(limit=20)), {"GET": 2}),
    "ids": (lambda s, ids: list(s.ids()), {"GET": 2}),
    "save": (lambda s, ids: s.save({"messages": []}), {"GET": 2, "PUT": 1}),
    "save with an id": (lambda s, ids: s.save({"messages": []}, id="x"), {"GET": 2, "PUT": 2}),
    "draft": (lambda s, ids: s.save({"messages": []}, keep=False), {"GET": 2, "PUT": 1}),
    "aside": (lambda s, ids: s.save({"messages": []}, head=False), {"GET": 2, "PUT": 1}),
    "labels": (
        lambda s, ids: s.save({"messages": []}, labels={"a": "1", "b": "2"}),
        {"GET": 2, "PUT": 3},
    ),
    "append": (lambda s, ids: s.append("messages", ["x"]), {"GET": 1, "PUT": 1}),
    "update of the head": (
        lambda s, ids: s.update(ids[-1], lambda x: x.with_(status="x")),
        {"GET": 3, "PUT": 1, "LIST": 1},
    ),
    "update below": (
        lambda s, ids: s.update(ids[40], lambda x: x.with_(status="x")),
        {"GET": 3, "PUT": 2, "LIST": 1, "DELETE": 1},
    ),
    "delete": (
        lambda s, ids: s.delete_snapshot(ids[40]),
        {"GET": 2, "PUT": 2, "LIST": 2, "DELETE": 1},
    ),
    "prune": (
        lambda s, ids: s.prune(keep_last=20),
        {"GET": 3, "PUT": 2, "LIST": 2, "DELETE": 1},
    ),
    "claim": (lambda s, ids: _claimed(s), {"GET": 2, "PUT": 2}),
    "nothing there": (lambda s, ids: s.load("no"), {"GET": 2}),
}


def _claimed(scope: Scope) -> None:
    with scope.claim(owner="a"):
        pass


@pytest.mark.parametrize("verb", COLD)
def test_a_process_that_begins(chat: tuple[CountingBucket, list[str]], verb: str) -> None:
    """With an empty memory, on a chat whose base is in its only segment."""
    bucket, ids = copied(chat[0]), chat[1]
    scope = store_on(bucket).scope("chat")
    call, expected = COLD[verb]
    call(scope, ids)
    assert bucket.take() == expected


def test_a_save_with_the_labels_of_the_same_minute_is_one_put() -> None:
    bucket = CountingBucket()
    scope = store_on(bucket).scope("chat")
    labels = {"run": "7", "node": "a"}
    counts = []
    for n in range(4):
        scope.save({"n": n}, labels=labels)
        counts.append(bucket.take()["PUT"])
    assert counts[0] == 5
    assert sorted(counts[1:])[:2] == [1, 1]  # unless a minute has just begun


def test_listing_everything_reads_each_head_once() -> None:
    bucket = CountingBucket()
    store = store_on(bucket)
    for n in range(30):
        store.scope(f"s{n}", "a").save(n)
        store.scope(f"s{n}", "b").save(n)
    bucket.take()
    assert len(list(store.scopes())) == 60
    assert bucket.take() == {"LIST": 1, "GET": 60}
    assert len(list(store.sessions())) == 30
    assert bucket.take()["GET"] <= 60
    assert len(list(store.history(limit=10))) == 10
    counted = bucket.take()
    assert counted["LIST"] == 1
    assert counted["GET"] <= 60


def test_deleting_a_session(chat: tuple[CountingBucket, list[str]]) -> None:
    bucket = copied(chat[0])
    assert store_on(bucket).delete_session("chat") == TURNS
    assert bucket.take() == {"LIST": 2, "GET": 2, "DELETE": 4}
    assert bucket.objects == {}
