"""A write that others overtake again and again before its head is found again."""

from collections.abc import Callable

from limpet.model import Expect
from tests.buckets.counting import CountingBucket
from tests.buckets.opened import store_on


class OvertakenBucket(CountingBucket):
    """Runs what is in `before`, one a time, before it replaces a head."""

    def __init__(self) -> None:
        super().__init__()
        self.before: list[Callable[[], object]] = []

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        if self.before and key.endswith("/head"):
            self.before.pop()()
        return super().put(key, data, expect=expect)


def test_one_whom_many_overtake_is_not_in_doubt() -> None:
    """Its refusals were answered, though the scope remembers none of the heads that it expected."""
    bucket = OvertakenBucket()
    here, there = store_on(bucket).scope("s"), store_on(bucket).scope("s")
    there.set_note("n", 0)

    def overtake() -> None:
        waiting, bucket.before = bucket.before, []
        for _ in range(20):
            there.set_note("n", lambda value: value + 1)
        bucket.before = waiting

    bucket.before = [overtake] * 3
    note = here.set_note("n", lambda value: value + 1)
    assert note is not None
    assert note.value == 61
    bucket.before = [overtake] * 3
    info = here.save({"n": 1})
    assert [each.id for each in there.history()] == [info.id]
