"""A write that others overtake before its head is found again; a sign that comes late."""

from collections.abc import Callable, Sequence
from contextlib import suppress

from limpet import Unavailable
from limpet.model import Expect
from tests.buckets.counting import CountingBucket
from tests.buckets.opened import store_on
from tests.cases import for_each


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


class LateBucket(CountingBucket):
    """Once, a sign that a line was begun is on its way, while another process removes the head."""

    late: Sequence[str] | None = None

    def mark(self, keys: Sequence[str]) -> None:
        signs = [key for key in keys if "/started." in key]
        super().mark([key for key in keys if key not in signs])
        if self.late is None and signs:
            self.late = signs
            self.delete([key for key in self.objects if key.endswith("/head")])
            raise Unavailable("no answer", outcome_known=False)
        super().mark(signs)


@for_each("is_repaired", [False, True])
def test_a_late_sign_of_a_line_that_was_deleted_is_no_damage(is_repaired: bool) -> None:
    bucket = LateBucket()
    store = store_on(bucket)
    if is_repaired:
        bucket.late = ()
        store.scope("s").save({})
        bucket.delete([key for key in bucket.objects if not key.endswith("/head")])
        bucket.late = None
    with suppress(Unavailable):
        _ = list(store.repair()) if is_repaired else store.scope("s").save({})
    assert bucket.late
    bucket.mark(bucket.late)
    assert store_on(bucket).scope("s").load() is None
