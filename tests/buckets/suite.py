"""What every bucket must do. An engine's own test gives a fixture `bucket` and inherits this."""

import random
from functools import partial

import pytest

from holdfast.backends._bucket.protocol import Bucket, Moved
from holdfast.model import ANY
from holdfast.testing.conformance._kit import together

NAMES = ["a", "a-b", "a.json", "a/b", "a/b-c", "a/b/c", "ab", "b", "b/+c3+a4", "z_~0"]


def listed(bucket: Bucket, prefix: str = "", page: int = 1000) -> list[str]:
    """Return all keys, page by page."""
    keys: list[str] = []
    while True:
        found = bucket.list(prefix, after=keys[-1] if keys else "", limit=page)
        keys += [each.key for each in found]
        if len(found) < page:
            return keys


class BucketSuite:
    """Tests over a fixture `bucket`, an empty one."""

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
        assert listed(bucket, "r/") == sorted(f"r/{name}.j" for name in NAMES[1::2])
        bucket.delete([])

    @pytest.mark.parametrize("page", [1, 2, 3, 7, 1000])
    def test_keys_are_listed_in_text_order(self, bucket: Bucket, page: int) -> None:
        keys = sorted(f"r/{name}.j" for name in NAMES)
        for key in random.Random(1).sample(keys, len(keys)):
            bucket.put(key, key.encode(), expect=None)
        assert listed(bucket, "r/", page) == keys
        assert listed(bucket, "r/a", page) == [key for key in keys if key.startswith("r/a")]
        assert listed(bucket, "r/a/", page) == [key for key in keys if key.startswith("r/a/")]
        assert listed(bucket, "r/nothing", page) == []
        assert listed(bucket, "nothing/at/all", page) == []
        after = [each.key for each in bucket.list("r/", after="r/a/b", limit=1000)]
        assert after == [key for key in keys if key > "r/a/b"]
        assert [each.size for each in bucket.list("r/", limit=page)] == [
            len(key) for key in keys[:page]
        ]

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

    def test_closing_may_be_repeated(self, bucket: Bucket) -> None:
        bucket.close()
        bucket.close()
