"""A write whose answer is lost, or that others overtake again and again, before it is found."""

from collections.abc import Callable

import limpet
from limpet import Unavailable
from limpet.model import Expect
from tests.buckets.counting import CountingBucket
from tests.buckets.opened import store_on


class LosingBucket(CountingBucket):
    """Loses the answer to one put, after another process has gone on."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = ""
        self.before: list[Callable[[], object]] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        if self.before and key.endswith("/head"):
            self.before.pop()()
        version = super().put(key, data, expect=expect)
        if self.lost and key.endswith(self.lost):
            self.lost = ""
            self.meanwhile()
            raise Unavailable("no answer", outcome_known=False)
        return version


def stores() -> tuple[LosingBucket, limpet.Store, limpet.Store]:
    bucket = LosingBucket()
    return bucket, store_on(bucket), store_on(bucket)


def test_a_save_is_answered_with_the_id_that_was_stored() -> None:
    bucket, here, there = stores()
    bucket.lost, bucket.meanwhile = "/head", lambda: there.scope("s").save({"n": 2})
    info = here.scope("s").save({"n": 1})
    found = there.scope("s").load(info.id)
    assert found is not None
    assert found.state == {"n": 1}
    assert len(list(there.scope("s").history())) == 2


def test_a_note_is_answered_with_its_own_revision() -> None:
    """With that of the other one the caller would overwrite what it has never seen."""
    bucket, here, there = stores()
    bucket.lost, bucket.meanwhile = "/head", lambda: there.scope("s").set_note("n", "theirs")
    note = here.scope("s").set_note("n", "mine")
    present = there.scope("s").note("n")
    assert note is not None
    assert present is not None
    assert (note.value, present.value) == ("mine", "theirs")
    assert present.revision != note.revision


def test_one_whom_many_overtake_is_not_in_doubt() -> None:
    """Its refusals were answered, though the scope remembers none of the heads that it expected."""
    bucket, here, there = stores()
    there.scope("s").set_note("n", 0)

    def overtake() -> None:
        waiting, bucket.before = bucket.before, []
        for _ in range(20):
            there.scope("s").set_note("n", lambda value: value + 1)
        bucket.before = waiting

    bucket.before = [overtake] * 3
    note = here.scope("s").set_note("n", lambda value: value + 1)
    assert note is not None
    assert note.value == 61
    bucket.before = [overtake] * 3
    info = here.scope("s").save({"n": 1})
    assert [each.id for each in there.scope("s").history()] == [info.id]
