"""Object stores that lose replies, are busy, go away, or do not do what they say."""

import builtins
import re
import time
from collections.abc import Callable, Iterator
from uuid import uuid4

import obstore
import pytest

import limpet
from limpet.backends.buckets.protocol import Moved
from limpet.backends.buckets.s3 import requests
from limpet.backends.buckets.s3.open import ObjectStoreBucket
from limpet.backends.buckets.s3.requests import Kind
from limpet.errors import Unavailable, Unsupported
from limpet.model import ANY
from limpet.protocol import Clock
from tests.servers.proxy import Proxy
from tests.servers.service import Service, free_port
from tests.servers.stub import Stub


class Waits:
    """A clock on which waiting takes no time, and is written down."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.clock = Clock(lambda: sum(self.pauses), self.pauses.append, lambda: 0.5)


@pytest.fixture
def proxy(seaweedfs: Service) -> Iterator[Proxy]:
    with Proxy(seaweedfs.port) as proxy:
        yield proxy


@pytest.fixture
def bucket(seaweedfs: Service, proxy: Proxy) -> Iterator[ObjectStoreBucket]:
    """A bucket of a real service, through a proxy; its first write is behind it."""
    bucket = seaweedfs.open(uuid4().hex, endpoint_url=proxy.url, timeout_s=1, retry_s=1.5)
    bucket.keep_end()
    bucket.mark(["first"])
    proxy.forget()
    yield bucket
    bucket.close()


@pytest.fixture
def stub() -> Iterator[Stub]:
    with Stub(ignores=()) as stub:
        yield stub


# Lost replies


def test_a_lost_reply_of_a_conditional_put(bucket: ObjectStoreBucket, proxy: Proxy) -> None:
    """It is stored, sent once, and said to be unknown: never taken for a conflict."""
    proxy.drop_replies(method="PUT")
    with pytest.raises(Unavailable) as caught:
        bucket.put("k", b"1", expect=None)
    assert not caught.value.outcome_known
    assert proxy.counts() == {"PUT": 1}
    (found,) = bucket.get(["k"])
    assert found is not None
    assert found.data == b"1"

    proxy.forget()
    proxy.drop_replies(method="PUT")
    with pytest.raises(Unavailable) as caught:
        bucket.put("k", b"2", expect=found.version)
    assert not caught.value.outcome_known
    assert proxy.counts() == {"PUT": 1}
    assert [each and each.data for each in bucket.get(["k"])] == [b"2"]


def test_a_lost_request_of_a_conditional_put(bucket: ObjectStoreBucket, proxy: Proxy) -> None:
    """From here it looks the same as a lost reply."""
    proxy.drop_requests(method="PUT")
    with pytest.raises(Unavailable) as caught:
        bucket.put("k", b"1", expect=None)
    assert not caught.value.outcome_known
    assert proxy.counts() == {"PUT": 1}
    assert bucket.get(["k"]) == [None]


def test_a_late_reply_of_a_conditional_put(bucket: ObjectStoreBucket, proxy: Proxy) -> None:
    proxy.delay(1.5, method="PUT")
    with pytest.raises(Unavailable, match="Timeout") as caught:
        bucket.put("k", b"1", expect=None)
    assert not caught.value.outcome_known
    assert proxy.counts() == {"PUT": 1}


def test_what_may_be_repeated_is_repeated(bucket: ObjectStoreBucket, proxy: Proxy) -> None:
    bucket.put("k", b"1", expect=ANY)
    cases: list[tuple[str, Callable[[], object], object]] = [
        ("PUT", lambda: bucket.mark(["m"]), None),
        ("PUT", lambda: len(bucket.put("k", b"1", expect=ANY)) > 0, True),
        ("GET", lambda: [each and each.data for each in bucket.get(["k", "n"])], [b"1", None]),
        ("LIST", lambda: [each.key for each in bucket.list("k", limit=9)], ["k"]),
        ("DELETE", lambda: bucket.delete(["m", "n"]), None),
    ]
    for method, call, expected in cases:
        for fault in (proxy.drop_replies, proxy.drop_requests):
            proxy.forget()
            fault(2, method=method)
            assert call() == expected
            assert proxy.counts()[method] >= 3
    assert bucket.get(["m"]) == [None]


def test_an_unconditional_put_that_is_never_answered(
    bucket: ObjectStoreBucket, proxy: Proxy
) -> None:
    """One of the attempts may have been executed, whichever was the last."""
    proxy.drop_replies(1, method="PUT")
    proxy.drop_requests(100, method="PUT")
    with pytest.raises(Unavailable) as caught:
        bucket.put("k", b"1", expect=ANY)
    assert not caught.value.outcome_known
    assert [each and each.data for each in bucket.get(["k"])] == [b"1"]


def test_a_lost_reply_while_proving(seaweedfs: Service, proxy: Proxy) -> None:
    """The caller's write goes on: what is proved may be sent as often as it takes."""
    for lost in range(1, 4):
        bucket = seaweedfs.open(uuid4().hex, endpoint_url=proxy.url, retry_s=5)
        proxy.forget()
        proxy.delay(0, lost - 1, method="PUT")
        proxy.drop_replies(method="PUT")
        bucket.put("k", b"1", expect=None)
        bucket.close()


# Servers that are gone or busy


def test_a_server_that_goes_away(bucket: ObjectStoreBucket, proxy: Proxy) -> None:
    bucket.put("k", b"1", expect=None)
    proxy.close()
    calls: list[Callable[[], object]] = [
        lambda: bucket.put("k", b"2", expect=None),
        lambda: bucket.get([f"k/{number}" for number in range(100)]),
    ]
    for call in calls:
        begin = time.monotonic()
        with pytest.raises(Unavailable, match=r"did not answer.*Refused"):
            call()
        assert time.monotonic() - begin < 20  # 100 times 1.5


def test_a_server_that_was_never_there() -> None:
    waits = Waits()
    nowhere = Service(f"http://127.0.0.1:{free_port()}", "key", "secret")
    bucket = nowhere.open("p", clock=waits.clock, retry_s=20)
    with pytest.raises(Unavailable, match="Refused") as caught:
        bucket.put("k", b"", expect=None)
    assert caught.value.outcome_known
    assert waits.pauses[:4] == [0.05, 0.1, 0.2, 0.4]
    assert max(waits.pauses) == 5
    assert 10 < sum(waits.pauses) <= 20
    bucket.close()


@pytest.mark.parametrize("code", ["SlowDown", "ServiceUnavailable"])
def test_a_busy_server_is_asked_again(stub: Stub, code: str) -> None:
    waits = Waits()
    bucket = stub.service.open("p", clock=waits.clock)
    bucket.mark(["first"])
    stub.requests.clear()
    stub.answer(503, code, n=3)
    version = bucket.put("k", b"1", expect=None)
    assert stub.requests == ["PUT"] * 4
    assert len(waits.pauses) == 3
    stub.answer(429, n=2)
    bucket.put("k", b"2", expect=version)
    stub.answer(503, code, n=2)
    assert [each and each.data for each in bucket.get(["k"])] == [b"2"]
    stub.answer(503, code)
    bucket.delete(["k"])
    assert len(waits.pauses) == 8
    bucket.close()


def test_a_server_that_stays_busy(stub: Stub) -> None:
    waits = Waits()
    bucket = stub.service.open("p", clock=waits.clock, retry_s=2)
    bucket.mark(["first"])
    stub.answer(503, "SlowDown", n=1000)
    with pytest.raises(Unavailable, match="503 SlowDown") as caught:
        bucket.put("k", b"1", expect=None)
    assert caught.value.outcome_known
    assert 1 < sum(waits.pauses) <= 2
    bucket.close()


@pytest.mark.parametrize(
    ("status", "code"), [(500, "InternalError"), (503, ""), (502, ""), (504, "")]
)
def test_errors_that_do_not_say_whether(stub: Stub, status: int, code: str) -> None:
    """They may come from something between us and a server that did as it was told."""
    waits = Waits()
    bucket = stub.service.open("p", clock=waits.clock)
    bucket.mark(["first"])
    stub.requests.clear()
    stub.answer(status, code)
    with pytest.raises(Unavailable) as caught:
        bucket.put("k", b"1", expect=None)
    assert not caught.value.outcome_known
    assert stub.requests == ["PUT"]
    stub.answer(status, code)
    bucket.put("k", b"1", expect=ANY)
    stub.answer(status, code)
    assert len(bucket.list("", limit=9)) == 2
    bucket.close()


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "ExpiredToken"),
        (400, "InvalidArgument"),
        (401, ""),
        (403, "AccessDenied"),
        (403, "RequestTimeTooSkewed"),
        (301, "PermanentRedirect"),
    ],
)
def test_refusals_are_not_repeated(stub: Stub, status: int, code: str) -> None:
    bucket = stub.service.open("p")
    bucket.mark(["first"])
    stub.requests.clear()
    stub.answer(status, code)
    with pytest.raises(Unavailable) as caught:
        bucket.put("k", b"1", expect=None)
    assert caught.value.outcome_known
    assert stub.requests == ["PUT"]
    bucket.close()


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "OperationAborted"])
def test_a_conflict_of_requests_is_a_conflict(stub: Stub, code: str) -> None:
    bucket = stub.service.open("p")
    bucket.mark(["first"])
    for expect in (None, '"0"'):
        stub.answer(409, code)
        with pytest.raises(Moved):
            bucket.put("k", b"1", expect=expect)
    bucket.close()


# Answers that are none


HTML = b"<!DOCTYPE html><html><body>Please log in.</body></html>"
# Anything that is XML has no keys for obstore, and a token that is missing is the end.
NO_LISTINGS: dict[str, Callable[[bytes], bytes]] = {
    "a page": lambda _: HTML,
    "nothing": lambda _: b"",
    "JSON": lambda _: b"{}",
    "an error": lambda _: b"<Error><Code>InternalError</Code></Error>",
    "no keys": lambda body: without_keys(body, keep=0),
}


def without_keys(body: bytes, *, keep: int) -> bytes:
    """Return a listing that is truncated after some keys, without a token."""
    entries = iter(range(keep))
    body = re.sub(
        rb"<Contents>.*?</Contents>",
        lambda found: found[0] if next(entries, None) is not None else b"",
        body,
        flags=re.DOTALL,
    )
    body = re.sub(rb"<NextContinuationToken>.*?</NextContinuationToken>", b"", body)
    return re.sub(rb"<IsTruncated>\w+<", b"<IsTruncated>true<", body)


@pytest.mark.slow
@pytest.mark.parametrize("what", NO_LISTINGS)
def test_what_is_not_a_listing_is_no_empty_one(
    bucket: ObjectStoreBucket, proxy: Proxy, what: str
) -> None:
    """Whether there are keys or not."""
    bucket.mark(["k/1", "k/2"])
    for prefix, keys in (("k/", ["k/1", "k/2"]), ("k", ["k/1", "k/2"]), ("none/", [])):
        proxy.rewrite(NO_LISTINGS[what], 10_000, method="LIST")
        with pytest.raises(Unavailable) as caught:
            bucket.list(prefix, limit=1000)
        assert caught.value.outcome_known
        proxy.forget()
        proxy.rewrite(NO_LISTINGS[what], method="LIST")
        assert [each.key for each in bucket.list(prefix, limit=1000)] == keys
        proxy.forget()


@pytest.mark.parametrize("is_new", [True, False])
def test_a_store_behind_a_login_page_is_not_empty(stub: Stub, is_new: bool) -> None:
    with limpet.open(stub.service.store_url("p"), retry_s=0.05) as store:
        if not is_new:
            store.scope("s").save(1)
        stub.answer(200, body=HTML.decode(), n=1_000)
        calls: list[Callable[[], object]] = [
            lambda: list(store.sessions()),
            lambda: list(store.scope("s").ids()),
            lambda: list(store.scope("other").ids()),
            lambda: store.delete_session("s"),
        ]
        for call in calls:
            with pytest.raises(Unavailable):
                call()


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_a_listing_that_is_cut_short_is_continued(
    bucket: ObjectStoreBucket, proxy: Proxy, keep: int
) -> None:
    """Truncated, without a token, once or each time: no key is missing."""
    keys = [f"k/{number}" for number in range(5)]
    bucket.mark([*keys, "k-1", "l"])
    for times in (1, 10_000):
        proxy.rewrite(lambda body: without_keys(body, keep=keep), times, method="LIST")
        assert [each.key for each in bucket.list("k/", limit=1000)] == keys
        assert [each.key for each in bucket.list("k/", after="k/1", limit=1000)] == keys[2:]
        assert [each.key for each in bucket.list("k/", limit=2)] == keys[:2]
        proxy.forget()


def test_a_listing_that_repeats_itself(stub: Stub) -> None:
    """By the same token for ever, or because the service ignores where to begin."""
    bucket = stub.service.open("p", retry_s=0)
    bucket.keep_end()
    bucket.mark(["k"])
    entry = (
        "<Contents><Key>p/{}</Key><Size>0</Size>"
        "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
    )
    token = "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
    page = f"<ListBucketResult>{token}{entry.format('k')}</ListBucketResult>"
    stub.answer(200, body=page, n=1000)
    with pytest.raises(Unavailable, match="listing"):
        bucket.list("", limit=9)
    with pytest.raises(Unavailable, match="listing"):
        bucket.list("", after="l", limit=1)
    bucket.close()


@pytest.mark.slow
def test_a_page_is_no_object(bucket: ObjectStoreBucket, proxy: Proxy) -> None:
    bucket.put("k", b"1", expect=None)
    for key, expected in (("k", b"1"), ("none", None)):
        for first in (None, 100):
            proxy.rewrite(lambda _: HTML, 10_000, method="GET")
            with pytest.raises(Unavailable):
                bucket.get([key], first=first)
            proxy.forget()
            proxy.rewrite(lambda _: HTML, method="GET")
            assert [each and each.data for each in bucket.get([key], first=first)] == [expected]
            proxy.forget()


def test_a_page_is_no_confirmation(bucket: ObjectStoreBucket, proxy: Proxy) -> None:
    """Of a write, or of deletes."""
    bucket.mark(["k"])
    proxy.rewrite(lambda _: HTML, 10_000)
    calls: list[Callable[[], object]] = [
        lambda: bucket.put("k", b"1", expect=ANY),
        lambda: bucket.put("l", b"1", expect=None),
        lambda: bucket.delete(["k", "l"]),
    ]
    for call in calls:
        with pytest.raises(Unavailable) as caught:
            call()
        assert not caught.value.outcome_known


# Deletes that are not done


def test_objects_that_were_not_deleted(stub: Stub) -> None:
    """A service may answer 200 and say of some objects that they are still there."""
    bucket = stub.service.open("p", clock=Waits().clock)
    bucket.mark(["k", "l"])
    done, failed = "<Deleted><Key>p/k</Key></Deleted>", "<Error><Key>p/l</Key>{}</Error>"
    result = f"<DeleteResult>{done}{failed}</DeleteResult>"
    for code in ("InternalError", "SlowDown"):
        stub.answer(200, body=result.format(f"<Code>{code}</Code><Message>later</Message>"))
    bucket.delete(["k", "l"])
    assert stub.objects == {}

    bucket.mark(["k", "l"])
    stub.answer(200, body=result.format("<Code>AccessDenied</Code><Message>no</Message>"))
    with pytest.raises(Unavailable, match="AccessDenied"):
        bucket.delete(["k", "l"])
    stub.answer(200, body="<DeleteResult></DeleteResult>", n=10_000)
    with pytest.raises(Unavailable) as caught:
        bucket.delete(["k", "l"])
    assert not caught.value.outcome_known
    bucket.close()


# Services that ignore conditions


@pytest.mark.parametrize(
    "ignores", [("If-Match",), ("If-None-Match",), ("If-Match", "If-None-Match")]
)
def test_a_service_that_ignores_conditions_is_refused(ignores: tuple[str, ...]) -> None:
    with Stub(ignores=ignores) as stub:
        bucket = stub.service.open("p")
        assert bucket.get(["k"]) == [None]
        calls: list[Callable[[], object]] = [
            lambda: bucket.put("k", b"1", expect=None),
            lambda: bucket.put("k", b"1", expect=ANY),
            lambda: bucket.mark(["k"]),
            lambda: bucket.delete(["k"]),
        ]
        for call in calls:
            with pytest.raises(Unsupported, match="ignores conditional writes"):
                call()
        assert stub.objects == {}
        assert len(stub.requests) <= 5
        bucket.close()


def test_a_service_without_conditions_is_refused(stub: Stub) -> None:
    bucket = stub.service.open("p")
    stub.answer(501, "NotImplemented")
    with pytest.raises(Unsupported):
        bucket.put("k", b"1", expect=None)
    assert stub.objects == {}
    bucket.close()


def test_a_service_that_fails_while_proving(stub: Stub) -> None:
    """Nothing of the caller's was sent, so its outcome is known."""
    bucket = stub.service.open("p", retry_s=0)
    stub.answer(500, "InternalError")
    with pytest.raises(Unavailable) as caught:
        bucket.put("k", b"1", expect=None)
    assert caught.value.outcome_known
    bucket.put("k", b"1", expect=None)
    assert stub.objects == {"p/k": b"1"}
    bucket.close()


# What obstore calls things: none of it is promised, so a new release must fail here first


def test_obstore_still_has_the_exceptions_that_are_told_apart_by_name() -> None:
    known = {*dir(builtins), *dir(obstore.exceptions)}
    assert set(requests._KINDS_BY_CLASS) <= known


def test_obstore_still_writes_errors_as_they_are_parsed() -> None:
    """The status, the service's code and the kind of network error are in the text alone."""
    nowhere = f"http://127.0.0.1:{free_port()}"
    assert failure_at(nowhere) == (Kind.BUSY, "Connect ConnectionRefused")


def failure_at(endpoint_url: str) -> tuple[Kind, str]:
    store = obstore.store.S3Store(
        "bucket",
        config={"endpoint": endpoint_url, "region": "us-east-1", "skip_signature": True},
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    with pytest.raises(requests.driver_errors()) as raised:
        store.get("key")
    return requests.read_failure(raised.value)
