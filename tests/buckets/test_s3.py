"""Object stores as buckets: SeaweedFS is a real one, moto a second opinion."""

import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from uuid import uuid4

import pytest

from limpet.backends.buckets.protocol import Moved
from limpet.backends.buckets.s3.open import ObjectStoreBucket
from limpet.errors import InvalidInput, Unavailable
from limpet.model import ANY
from limpet.testing.kit import together
from tests.buckets.suite import BucketFunctions, BucketSuite, by_names, listed
from tests.cases import for_each
from tests.servers.proxy import Proxy
from tests.servers.service import Service


class TestSeaweedFS(BucketSuite):
    """A tree, in a process of its own."""

    order = staticmethod(by_names)

    @pytest.fixture
    def bucket(self, seaweedfs: Service) -> Iterator[ObjectStoreBucket]:
        bucket = seaweedfs.open(uuid4().hex)
        yield bucket
        bucket.close()


@pytest.mark.slow
class TestMoto(BucketFunctions):
    """Keys in the order of bytes. It checks and sets in two steps: no races."""

    @pytest.fixture
    def bucket(self, moto: Service) -> Iterator[ObjectStoreBucket]:
        bucket = moto.open(f"{uuid4().hex}/below/it")
        yield bucket
        bucket.close()


@pytest.fixture(params=["seaweedfs", "moto"])
def service(request: pytest.FixtureRequest) -> Service:
    found: Service = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def proxy(service: Service) -> Iterator[Proxy]:
    with Proxy(service.port) as proxy:
        yield proxy


@pytest.fixture
def bucket(service: Service, proxy: Proxy) -> Iterator[ObjectStoreBucket]:
    """A bucket of both services, through a proxy that counts; its first write is behind it."""
    bucket = service.open(uuid4().hex, endpoint_url=proxy.url)
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
        proxy.delay(0.2, 32)
        begin = time.monotonic()
        call(keys)
        assert 0.4 <= time.monotonic() - begin < 32 * 0.2 / 2


def test_a_page_is_one_request(seaweedfs: Service) -> None:
    with Proxy(seaweedfs.port) as proxy:
        bucket = seaweedfs.open(uuid4().hex, endpoint_url=proxy.url)
        see_pages(bucket, proxy)
        bucket.close()


def see_pages(bucket: ObjectStoreBucket, proxy: Proxy) -> None:
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


def test_opening_asks_nothing_and_the_first_write_proves(service: Service, proxy: Proxy) -> None:
    bucket = service.open(uuid4().hex, endpoint_url=proxy.url)
    assert proxy.counts() == {}
    assert bucket.get(["k"]) == [None]
    assert bucket.list("", limit=1) == []
    assert proxy.counts() == {"GET": 2, "LIST": 1}, "no key: an object is read as well"
    proxy.forget()
    bucket.mark(["k"])
    assert proxy.counts() == {"PUT": 4, "DELETE": 1}
    assert listed(bucket) == ["k"]
    bucket.close()


def test_a_later_process_proves_with_what_is_there(service: Service, proxy: Proxy) -> None:
    prefix = uuid4().hex
    first = service.open(prefix)
    first.keep_end()
    first.mark(["k"])
    bucket = service.open(prefix, endpoint_url=proxy.url)
    bucket.put("l", b"1", expect=None)
    assert proxy.counts() == {"PUT": 3}
    assert listed(bucket) == ["k", "l", "~limpet"]
    bucket.keep_end()
    assert listed(bucket) == ["k", "l"]
    for each in (first, bucket):
        each.close()


def test_many_prove_at_once(seaweedfs: Service) -> None:
    prefix = uuid4().hex
    buckets = [seaweedfs.open(prefix) for _ in range(6)]
    together(partial(buckets[n % 6].put, f"k/{n}", b"1", expect=None) for n in range(18))
    assert listed(buckets[0], "") == sorted(f"k/{n}" for n in range(18))
    for bucket in buckets:
        bucket.close()


# Corners


def test_nothing_of_a_prefix_leaks(service: Service) -> None:
    root = uuid4().hex
    one, other, above = service.open(f"{root}/a"), service.open(f"{root}/ab"), service.open(root)
    one.put("k", b"1", expect=None)
    other.put("k", b"2", expect=None)
    assert [each and each.data for each in one.get(["k"])] == [b"1"]
    assert listed(one) == listed(other) == ["k"]
    assert listed(above) == ["a/k", "ab/k"]
    one.delete(["k"])
    assert listed(above) == ["ab/k"]
    for bucket in (one, other, above):
        bucket.close()


def test_versions_are_those_of_ranged_reads_too(bucket: ObjectStoreBucket) -> None:
    for data in (b"", b"1", b"12345"):
        version = bucket.put("k", data, expect=ANY)
        for first in (0, 1, 2, 5, 9):
            (found,) = bucket.get(["k"], first=first)
            assert found is not None
            assert (found.data, found.size, found.version) == (data[:first], len(data), version)


def test_large_objects_are_one_step(bucket: ObjectStoreBucket, proxy: Proxy) -> None:
    data = os.urandom(1 << 20) * 12
    bucket.put("k", data, expect=ANY)
    assert proxy.counts() == {"PUT": 1}
    assert [each and each.data for each in bucket.get(["k"])] == [data]


@for_each("key", ["a//b", "a/../b", "./a", "a\nb"])
def test_odd_keys_are_refused(bucket: ObjectStoreBucket, key: str) -> None:
    with pytest.raises(InvalidInput):
        bucket.put(key, b"", expect=ANY)
    with pytest.raises(InvalidInput):
        bucket.get([key])


def test_keys_of_all_kinds(bucket: ObjectStoreBucket) -> None:
    keys = sorted(f"k/{name}" for name in ["a b", "a+b", "a%2Fb", "a~b", "a=b", "é", "...", "%"])
    bucket.mark(keys)
    assert listed(bucket, "k/", 3) == keys
    assert listed(bucket, "k/a") == [key for key in keys if key.startswith("k/a")]
    assert None not in bucket.get(keys)
    bucket.delete(keys)
    assert listed(bucket, "k/") == []


def test_a_bucket_that_was_closed_opens_again(bucket: ObjectStoreBucket) -> None:
    """Closing lets go of what is held; whoever closes too early gets no odd error for it."""
    bucket.close()
    assert bucket.get(["first", "none", "none2"])[1:] == [None, None]


def test_closing_under_way(seaweedfs: Service) -> None:
    bucket = seaweedfs.open(uuid4().hex)
    keys = [f"k/{number}" for number in range(100)]
    bucket.mark(keys)
    stop = threading.Event()

    def read() -> None:
        for _ in range(3):
            assert None not in bucket.get(keys)
        stop.set()

    def close() -> None:
        while not stop.wait(0.01):
            bucket.close()

    together([read, close])
    bucket.close()


# What is wrong


@pytest.mark.parametrize("write", [False, True])
def test_a_missing_bucket_is_an_error(service: Service, write: bool) -> None:
    """It is neither an empty store nor a conflict."""
    bucket = service.open("p", bucket="nobody-made-this")
    calls: list[Callable[[], object]] = [
        lambda: bucket.put("k", b"", expect=None),
        lambda: bucket.put("k", b"", expect='"0"'),
        lambda: bucket.put("k", b"", expect=ANY),
        lambda: bucket.mark(["k"]),
        lambda: bucket.delete(["k", "l"]),
    ]
    if not write:
        calls = [
            lambda: bucket.get(["k"]),
            lambda: bucket.get(["k", "l"], first=3),
            lambda: bucket.list("", limit=1),
            lambda: bucket.list("k", after="k/1", limit=1),
        ]
    for call in calls:
        with pytest.raises(Unavailable, match=r"does not exist.*`nobody-made-this`") as caught:
            call()
        assert caught.value.outcome_known
    bucket.close()


@pytest.mark.parametrize("wrong", ["access_key_id", "secret_access_key"])
def test_bad_credentials_are_an_error_at_once(seaweedfs: Service, wrong: str) -> None:
    with Proxy(seaweedfs.port) as proxy:
        bucket = seaweedfs.open("p", endpoint_url=proxy.url, **{wrong: "wr0ngwr0ng"})
        calls: list[Callable[[], object]] = [
            lambda: bucket.get(["k"]),
            lambda: bucket.list("", limit=1),
            lambda: bucket.put("k", b"", expect=None),
            lambda: bucket.mark(["k"]),
            lambda: bucket.delete(["k"]),
        ]
        for call in calls:
            with pytest.raises(Unavailable, match="credentials are not accepted") as caught:
                call()
            assert caught.value.outcome_known
            assert caught.value.__cause__ is None
            shown = f"{caught.value!r} {bucket!r}"
            assert "wr0ng" not in shown
            assert seaweedfs.secret_access_key not in shown
        assert len(proxy.requests()) == 5
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
    subprocess.run(command, check=True, timeout=60)


def test_moved_says_nothing_of_the_driver(bucket: ObjectStoreBucket) -> None:
    with pytest.raises(Moved) as caught:
        bucket.put("first", b"2", expect=None)
    assert caught.value.__cause__ is None
