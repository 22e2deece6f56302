"""What every bucket must do. An engine's own test gives a fixture `bucket` and inherits this."""

import random
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise

import pytest

from limpet.backends.buckets.protocol import Bucket, Moved
from limpet.model import ANY
from limpet.opening import CLOCK
from limpet.testing.kit import together
from tests.cases import for_each

NAMES = ["a", "a-b", "a.json", "a/b", "a/b-c", "a/b/c", "ab", "b", "b/+c3+a4", "z_~0"]


def listed(bucket: Bucket, prefix: str = "", page: int = 1000) -> list[str]:
    """Return all keys, page by page."""
    keys: list[str] = []
    while True:
        found = bucket.list(prefix, after=keys[-1] if keys else "", limit=page)
        keys += [each.key for each in found]
        if len(found) < page:
            return keys


def by_bytes(key: str) -> str:
    """Order keys by their bytes, as S3 does. (Python compares code points, which is the same.)"""
    return key


def by_names(key: str) -> str:
    """Order keys by the names along their paths, as a tree does: `/` before all else."""
    return key.replace("/", "\0")


class BucketFunctions:
    """Tests over a fixture `bucket`, an empty one: one caller at a time."""

    order: Callable[[str], str] = staticmethod(by_bytes)

    def sorted(self, keys: Iterable[str]) -> list[str]:
        """Return keys in the order of this bucket."""
        return sorted(keys, key=self.order)

    def test_what_was_put_is_read(self, bucket: Bucket) -> None:
        for data in (b"", b"x", bytes(range(256)), b"y" * 300_000):
            version = bucket.put("k/x.json", data, expect=ANY)
            (found,) = bucket.get(["k/x.json"])
            assert found is not None
            assert (found.data, found.size, found.version) == (data, len(data), version)

    def test_many_keys_are_answered_one_by_one(self, bucket: Bucket) -> None:
        for number in range(0, 40, 2):
            bucket.put(f"k/{number}", str(number).encode(), expect=None)
        found = bucket.get([f"k/{number}" for number in range(40)])
        assert [None if each is None else each.data for each in found] == [
            None if number % 2 else str(number).encode() for number in range(40)
        ]
        assert bucket.get([]) == []

    def test_the_first_bytes_alone(self, bucket: Bucket) -> None:
        bucket.put("long", b"0123456789" * 1000, expect=ANY)
        bucket.put("short", b"01234", expect=ANY)
        bucket.put("empty", b"", expect=ANY)
        long, short, empty, none = bucket.get(["long", "short", "empty", "none"], first=16)
        assert long is not None
        assert (long.data, long.size) == (b"0123456789012345", 10_000)
        assert short is not None
        assert (short.data, short.size) == (b"01234", 5)
        assert empty is not None
        assert (empty.data, empty.size) == (b"", 0)
        assert none is None

    def test_a_fingerprint_is_another_after_a_change(self, bucket: Bucket) -> None:
        none = bucket.fingerprints({"k/x": None, "k/y": None})
        assert none == {"k/x": None, "k/y": None}
        bucket.put("k/x", b"1", expect=ANY)
        seen = [bucket.fingerprints(none)]
        for data in (b"2", b"3", b"4", b"", b"5"):
            bucket.put("k/x", data, expect=ANY)
            seen.append(bucket.fingerprints(seen[-1]))
        tokens = [each["k/x"] for each in seen]
        assert None not in tokens
        assert all(before != after for before, after in pairwise(tokens))
        bucket.delete(["k/x"])
        assert bucket.fingerprints(seen[-1]) == none
        assert bucket.fingerprints({}) == {}

    def test_a_fingerprint_stays_where_nothing_changes(self, bucket: Bucket) -> None:
        keys = [f"k/{number}" for number in range(40)]
        for key in keys:
            bucket.put(key, key.encode(), expect=None)
        time.sleep(0.1)  # what is new is looked at twice
        known = bucket.fingerprints(dict.fromkeys(keys))
        assert list(known) == keys
        for _ in range(3):
            assert bucket.fingerprints(known) == known
        bucket.put(keys[7], b"another", expect=ANY)
        moved = bucket.fingerprints(known)
        assert [key for key in keys if moved[key] != known[key]] == [keys[7]]

    def write(self, bucket: Bucket, key: str, done: threading.Event) -> None:
        done.set()
        bucket.put(key, b"1", expect=ANY)

    def test_a_change_is_noticed(self, bucket: Bucket) -> None:
        listener = bucket.listen(poll_s=0.2, clock=CLOCK)
        try:
            listener.follow(["k/", "not/there/yet/"])
            for key in ("k/x", "k/x", "not/there/yet/y", "k/deeper/z", "not/there/yet/y"):
                done = threading.Event()
                writing = threading.Timer(0.05, self.write, (bucket, key, done))
                writing.start()
                while True:
                    heard = listener.wait(active=False)
                    if done.is_set() and (heard is None or any(map(key.startswith, heard))):
                        break
                writing.join()
        finally:
            listener.close()

    def test_a_waiting_caller_is_woken(self, bucket: Bucket) -> None:
        listener = bucket.listen(poll_s=6000, clock=CLOCK)
        try:
            listener.follow(["k/"])
            begun = time.monotonic()
            for pause_s in (0.0, 0.05):
                threading.Timer(pause_s, listener.wake).start()
                while listener.wait(active=False) != frozenset():
                    pass
            assert time.monotonic() - begun < 300
        finally:
            listener.close()
            listener.close()

    def test_an_object_is_created_once(self, bucket: Bucket) -> None:
        bucket.put("k/x", b"first", expect=None)
        for data in (b"second", b"first"):
            with pytest.raises(Moved):
                bucket.put("k/x", data, expect=None)
        assert [each and each.data for each in bucket.get(["k/x"])] == [b"first"]

    def test_an_object_is_replaced_at_its_version_only(self, bucket: Bucket) -> None:
        first = bucket.put("k/x", b"first", expect=None)
        second = bucket.put("k/x", b"second", expect=first)
        assert second != first
        with pytest.raises(Moved):
            bucket.put("k/x", b"third", expect=first)
        with pytest.raises(Moved):
            bucket.put("k/none", b"third", expect=first)
        assert [each and each.data for each in bucket.get(["k/x", "k/none"])] == [b"second", None]
        bucket.delete(["k/x"])
        with pytest.raises(Moved):
            bucket.put("k/x", b"third", expect=second)
        assert bucket.get(["k/x"]) == [None]

    def test_deletes_may_be_repeated(self, bucket: Bucket) -> None:
        for name in NAMES:
            bucket.put(f"r/{name}.j", b"x", expect=None)
        bucket.delete([f"r/{name}.j" for name in NAMES[::2]] + ["r/none", "none/none"])
        bucket.delete([f"r/{name}.j" for name in NAMES[::2]])
        assert listed(bucket, "r/") == self.sorted(f"r/{name}.j" for name in NAMES[1::2])
        bucket.delete([])

    def test_keys_far_apart_are_deleted(self, bucket: Bucket) -> None:
        """Whatever way is chosen to see that they are gone, it must not miss any."""
        keys = [f"{top}/{number}/{name}" for top in "abc" for number in "123" for name in "xyz"]
        bucket.mark(keys)
        bucket.delete([key for key in keys if not key.endswith("2/y")])
        assert listed(bucket) == ["a/2/y", "b/2/y", "c/2/y"]
        bucket.delete(keys)
        assert listed(bucket) == []

    def test_marks_are_empty_objects(self, bucket: Bucket) -> None:
        bucket.put("m/1", b"something", expect=None)
        bucket.mark(["m/0", "m/1", "m/2"])
        bucket.mark([])
        found = bucket.get(["m/0", "m/1", "m/2"])
        assert [each and (each.data, each.size) for each in found] == [(b"", 0)] * 3
        assert [each and each.version for each in found] == [
            each and each.version for each in bucket.get(["m/0", "m/1", "m/2"])
        ]
        assert [(each.key, each.size) for each in bucket.list("m/", limit=9)] == [
            ("m/0", 0),
            ("m/1", 0),
            ("m/2", 0),
        ]

    def test_the_storage_says_when(self, bucket: Bucket) -> None:
        """Microseconds of a clock near ours; some services tell the second only."""
        before = time.time_ns() // 1000
        bucket.put("k/x", b"1", expect=None)
        after = time.time_ns() // 1000
        (found,) = bucket.get(["k/x"])
        (part,) = bucket.get(["k/x"], first=1)
        (entry,) = bucket.list("k/", limit=1)
        assert found is not None
        assert part is not None
        for modified in (found.modified, part.modified, entry.modified):
            assert before - 2_000_000 <= modified <= after + 2_000_000

    @for_each("page", [1, 2, 3, 7, 1000])
    def test_keys_are_listed_in_order(self, bucket: Bucket, page: int) -> None:
        keys = self.sorted(f"r/{name}.j" for name in NAMES)
        for key in random.Random(1).sample(keys, len(keys)):
            bucket.put(key, key.encode(), expect=ANY)
        assert listed(bucket, "r/", page) == keys
        assert listed(bucket, "", page) == keys
        assert listed(bucket, "r/a", page) == [key for key in keys if key.startswith("r/a")]
        assert listed(bucket, "r/a/", page) == [key for key in keys if key.startswith("r/a/")]
        assert listed(bucket, "r/nothing", page) == []
        assert listed(bucket, "nothing/at/all", page) == []
        after = [each.key for each in bucket.list("r/", after="r/a/b.j", limit=1000)]
        assert after == [key for key in keys if self.order(key) > self.order("r/a/b.j")]
        assert [each.size for each in bucket.list("r/", limit=page)] == [
            len(key) for key in keys[:page]
        ]

    def test_a_page_begins_anywhere(self, bucket: Bucket) -> None:
        """After a key, after a key that is not there, behind a folder; for prefixes of all kinds.

        Whole names and beginnings of names, beside names that sort before and behind a `/`.
        """
        names = ["x", "x+2f1", "x-1", "x-1-2", "x0", "x.y", "w", "y"]
        keys = self.sorted(f"s/{name}/{file}" for name in names for file in ("a", "b/c", "b.j"))
        bucket.mark(keys)
        afters = [*keys, *(f"s/{name}/~" for name in names), "s/x/aa", "s/a", "s/x-1/b/~"]
        for prefix in ("", "s/", "s/x", "s/x-", "s/x-1", "s/x-1/", "s/x+", "s/x/b", "s/x.y/b/c"):
            for after in afters:
                # Elsewhere it is not said whether it comes before or behind.
                if after.startswith(prefix):
                    found = [each.key for each in bucket.list(prefix, after=after, limit=1000)]
                    assert found == [
                        key
                        for key in keys
                        if key.startswith(prefix) and self.order(key) > self.order(after)
                    ], (prefix, after)
            assert listed(bucket, prefix, 2) == [key for key in keys if key.startswith(prefix)]

    def test_closing_may_be_repeated(self, bucket: Bucket) -> None:
        bucket.close()
        bucket.close()


class BucketSuite(BucketFunctions):
    """The same, with many keys, and with several callers at once."""

    def test_more_keys_than_one_page(self, bucket: Bucket) -> None:
        keys = [f"p/{number:04}" for number in range(1003)]
        bucket.mark(keys)
        bucket.mark(["q"])
        assert listed(bucket, "p/") == keys
        assert listed(bucket, "p/", 1001) == keys
        assert listed(bucket, "p/1", 2) == keys[1000:]
        assert listed(bucket, "") == [*keys, "q"]
        assert [each.key for each in bucket.list("p/", limit=1003)] == keys
        bucket.delete(keys[:1001])
        assert listed(bucket, "") == ["p/1001", "p/1002", "q"]
        bucket.delete(keys)
        assert listed(bucket, "") == ["q"]

    def test_one_of_many_wins(self, bucket: Bucket) -> None:
        """Creating, and replacing, from several threads at once."""
        won: list[int] = []

        def create(number: int) -> None:
            try:
                bucket.put("k/one", b"%d" % number, expect=None)
            except Moved:
                return
            won.append(number)

        together(partial(create, number) for number in range(8))
        assert len(won) == 1
        assert [each and each.data for each in bucket.get(["k/one"])] == [b"%d" % won[0]]

    def test_no_increment_is_lost(self, bucket: Bucket) -> None:
        bucket.put("k/count", b"0", expect=None)

        def increment() -> None:
            for _ in range(15):
                while True:
                    (found,) = bucket.get(["k/count"])
                    assert found is not None
                    try:
                        bucket.put("k/count", b"%d" % (int(found.data) + 1), expect=found.version)
                        break
                    except Moved:
                        continue

        together([increment] * 6)
        assert [each and each.data for each in bucket.get(["k/count"])] == [b"90"]
