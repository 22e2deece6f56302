"""Object stores as buckets: SeaweedFS is a real one, the other lists by bytes as AWS does."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from limpet.backends.buckets.s3.open import ObjectStoreBucket
from limpet.errors import InvalidInput, Unavailable
from limpet.model import ANY
from tests.buckets.suite import BucketFunctions, BucketSuite, by_names, listed
from tests.cases import for_each
from tests.servers.proxy import Proxy
from tests.servers.service import Service
from tests.waiting import until


class TestSeaweedFS(BucketSuite):
    """A tree, in a process of its own."""

    order = staticmethod(by_names)

    @pytest.fixture
    def bucket(self, seaweedfs: Service) -> Iterator[ObjectStoreBucket]:
        bucket = seaweedfs.open(uuid4().hex)
        yield bucket
        bucket.close()


class TestByBytes(BucketFunctions):
    @pytest.fixture
    def bucket(self, small_s3: Service) -> Iterator[ObjectStoreBucket]:
        bucket = small_s3.open(f"{uuid4().hex}/below/it")
        yield bucket
        bucket.close()


@pytest.fixture
def proxy(seaweedfs: Service) -> Iterator[Proxy]:
    with Proxy(seaweedfs.port) as proxy:
        yield proxy


@pytest.fixture
def bucket(seaweedfs: Service, proxy: Proxy) -> Iterator[ObjectStoreBucket]:
    """A bucket through a proxy that counts; its first write is behind it."""
    bucket = seaweedfs.open(uuid4().hex, endpoint_url=proxy.url)
    bucket.put("first", b"1", expect=None)
    proxy.forget()
    yield bucket
    bucket.close()


# What it costs


def test_requests_are_few(bucket: ObjectStoreBucket, proxy: Proxy) -> None:
    def cost() -> dict[str, int]:
        counts = proxy.counts()
        proxy.forget()
        return counts

    version = bucket.put("k/1", b"1", expect=None)
    bucket.put("k/1", b"2", expect=version)
    assert cost() == {"PUT": 2}
    bucket.get(["k/1", "k/none", "k/2"])
    assert cost() == {"GET": 3}
    bucket.get(["k/1"], first=100)
    assert cost() == {"GET": 1}
    bucket.mark(["m/1", "m/2", "m/3"])
    assert cost() == {"PUT": 3}
    bucket.get(["m/1"], first=100)
    assert cost() == {"GET": 2}
    bucket.list("k/", limit=1000)
    bucket.list("k", after="k/0", limit=3)
    assert cost() == {"LIST": 2}
    bucket.delete(["m/1", "m/2", "m/3", "n/none"])
    assert cost() == {"DELETE": 1}
    bucket.delete([])
    bucket.mark([])
    assert bucket.get([]) == []
    assert bucket.list("k/", limit=0) == []
    assert cost() == {}


def test_many_keys_are_asked_for_in_parallel(bucket: ObjectStoreBucket, proxy: Proxy) -> None:
    keys = [f"k/{number}" for number in range(32)]
    for call in (bucket.get, bucket.mark):
        proxy.forget()
        releases = [proxy.hold() for _ in keys]
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(call, keys)
            until(lambda: len(proxy.requests()) >= 8)
            for each in releases:
                each.set()
            done.result()


def test_a_page_is_one_request(bucket: ObjectStoreBucket, proxy: Proxy) -> None:
    keys = [f"p/{number:04}" for number in range(1001)]
    bucket.mark(keys)
    proxy.forget()
    assert [each.key for each in bucket.list("p/", limit=1000)] == keys[:1000]
    assert [each.key for each in bucket.list("p/", after=keys[999], limit=1000)] == keys[1000:]
    assert [each.key for each in bucket.list("p/000", limit=1000)] == keys[:10]
    assert [each.key for each in bucket.list("p/1", limit=7)] == keys[1000:]
    assert proxy.counts() == {"LIST": 4}
    bucket.keep_end()
    assert [each.key for each in bucket.list("p/", limit=1000)] == keys[:1000]
    assert proxy.counts() == {"LIST": 5}, "a full page is one request"
    assert [each.key for each in bucket.list("p/", after=keys[999], limit=1000)] == keys[1000:]
    assert bucket.list("p/", limit=1000, after=keys[999], until=keys[1000]) != []
    bucket.delete(keys)
    counts = proxy.counts()
    assert counts.pop("LIST") == 5 + 2 + 1, "where one ends, another sees that this is the end"
    assert counts["DELETE"] == 2


def test_opening_asks_nothing_and_the_first_write_proves(seaweedfs: Service, proxy: Proxy) -> None:
    bucket = seaweedfs.open(uuid4().hex, endpoint_url=proxy.url)
    assert proxy.counts() == {}
    assert bucket.get(["k"]) == [None]
    assert bucket.list("", limit=1) == []
    assert proxy.counts() == {"GET": 2, "LIST": 1}, "no key: an object is read as well"
    proxy.forget()
    bucket.mark(["k"])
    assert proxy.counts() == {"PUT": 4, "DELETE": 1}
    assert listed(bucket) == ["k"]
    bucket.close()


def test_a_later_process_proves_with_what_is_there(seaweedfs: Service, proxy: Proxy) -> None:
    prefix = uuid4().hex
    first = seaweedfs.open(prefix)
    first.keep_end()
    first.mark(["k"])
    bucket = seaweedfs.open(prefix, endpoint_url=proxy.url)
    bucket.put("l", b"1", expect=None)
    assert proxy.counts() == {"PUT": 3}
    assert listed(bucket) == ["k", "l", "~limpet"]
    bucket.keep_end()
    assert listed(bucket) == ["k", "l"]
    for each in (first, bucket):
        each.close()


# Corners


def test_nothing_of_a_prefix_leaks(seaweedfs: Service) -> None:
    root = uuid4().hex
    one, other, above = (seaweedfs.open(f"{root}{below}") for below in ("/a", "/ab", ""))
    one.put("k", b"1", expect=None)
    other.put("k", b"2", expect=None)
    assert listed(one) == listed(other) == ["k"]
    assert listed(above) == ["a/k", "ab/k"]
    one.delete(["k"])
    assert listed(above) == ["ab/k"]
    for bucket in (one, other, above):
        bucket.close()


def test_objects_of_all_sizes_are_one_step(bucket: ObjectStoreBucket, proxy: Proxy) -> None:
    """Ranged reads have the version and the size of the whole."""
    for data in (b"", b"1", b"12345", os.urandom(1 << 20) * 12):
        proxy.forget()
        version = bucket.put("k", data, expect=ANY)
        assert proxy.counts() == {"PUT": 1}
        for first in (0, 1, 2, 5, 9, None):
            (found,) = bucket.get(["k"], first=first)
            assert found is not None
            assert (found.data, found.size, found.version) == (data[:first], len(data), version)


def test_keys_of_all_kinds(bucket: ObjectStoreBucket) -> None:
    keys = sorted(f"k/{name}" for name in ["a b", "a+b", "a%2Fb", "a~b", "a=b", "é", "...", "%"])
    bucket.mark(keys)
    assert listed(bucket, "k/", 3) == keys
    assert listed(bucket, "k/a") == [key for key in keys if key.startswith("k/a")]
    bucket.close()  # it opens again
    assert None not in bucket.get(keys)
    bucket.delete(keys)
    assert listed(bucket, "k/") == []
    for key in ("a//b", "a/../b", "./a", "a\nb"):
        with pytest.raises(InvalidInput):
            bucket.put(key, b"", expect=ANY)
        with pytest.raises(InvalidInput):
            bucket.get([key])


# What is wrong


def verbs(bucket: ObjectStoreBucket) -> list[Callable[[], object]]:
    return [
        lambda: bucket.get(["k", "l"], first=3),
        lambda: bucket.list("", limit=1),
        lambda: bucket.list("k", after="k/1", limit=1),
        lambda: bucket.put("k", b"", expect=None),
        lambda: bucket.put("k", b"", expect='"0"'),
        lambda: bucket.put("k", b"", expect=ANY),
        lambda: bucket.mark(["k"]),
        lambda: bucket.delete(["k", "l"]),
    ]


@pytest.mark.parametrize("service", ["seaweedfs", "small_s3"])
def test_a_missing_bucket_is_an_error(request: pytest.FixtureRequest, service: str) -> None:
    """It is neither an empty store nor a conflict."""
    bucket = request.getfixturevalue(service).open("p", bucket="nobody-made-this")
    for call in verbs(bucket):
        with pytest.raises(Unavailable, match=r"does not exist.*`nobody-made-this`") as caught:
            call()
        assert caught.value.outcome_known
    bucket.close()


@for_each("wrong", ["access_key_id", "secret_access_key"])
def test_bad_credentials_are_an_error_at_once(seaweedfs: Service, proxy: Proxy, wrong: str) -> None:
    proxy.forget()
    bucket = seaweedfs.open("p", endpoint_url=proxy.url, **{wrong: "wr0ngwr0ng"})
    for call in verbs(bucket):
        with pytest.raises(Unavailable, match="credentials are not accepted") as caught:
            call()
        assert caught.value.outcome_known
        assert caught.value.__cause__ is None
        shown = f"{caught.value!r} {bucket!r}"
        assert "wr0ng" not in shown
        assert seaweedfs.secret_access_key not in shown
    assert len(proxy.requests()) == 9
    bucket.close()


FORK = """
    import json, os, sys
    from limpet.backends.buckets.s3.open import s3_bucket
    from limpet.errors import Unsupported
    from limpet.opening import CLOCK

    options = json.loads(sys.argv[1])

    def use(bucket):
        found = bucket.get(["k", "none"])
        assert found[0].data == b"1" and found[1] is None, found
        bucket.close()

    def fork(work):
        child = os.fork()
        if child:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        try:
            work()
        except Unsupported as error:
            assert "fork" in str(error), error
            os._exit(3)
        os._exit(0)

    def make():
        return s3_bucket(**options, clock=CLOCK, environ={})

    bucket = make()
    assert fork(lambda: use(bucket)) == 0  # nobody has used it yet
    use(bucket)
    assert fork(lambda: use(bucket)) == 3
    assert fork(lambda: use(make())) == 3
    use(bucket)
"""


def test_a_fork_after_use_is_refused_and_does_not_hang(seaweedfs: Service) -> None:
    """The threads that serve the driver are not there in the child, and it would wait for them."""
    prefix = uuid4().hex
    bucket = seaweedfs.open(prefix)
    bucket.put("k", b"1", expect=None)
    bucket.close()
    options = {**seaweedfs.options, "bucket": seaweedfs.name, "prefix": prefix}
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(FORK), json.dumps(options)]
    subprocess.run(command, check=True, timeout=300)
