"""Object stores that lose replies, are busy, go away, or do not do what they say."""

import builtins
import re
from collections.abc import Callable, Iterator
from typing import Any
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
from tests.cases import for_each
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
    bucket = seaweedfs.open(uuid4().hex, endpoint_url=proxy.url, timeout_s=4, retry_s=6)
    bucket.keep_end()
    bucket.mark(["first"])
    proxy.forget()
    yield bucket
    bucket.close()


@pytest.fixture
def stub() -> Iterator[Stub]:
    with Stub(ignores=()) as stub:
        yield stub


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
def stubbed(stub: Stub, waits: Waits) -> Iterator[ObjectStoreBucket]:
    """A bucket of the stub; its first write is behind it."""
    bucket = stub.service.open("p", clock=waits.clock, retry_s=20)
    bucket.mark(["first"])
    stub.requests.clear()
    yield bucket
    bucket.close()


def data_of(bucket: ObjectStoreBucket, key: str) -> bytes | None:
    (found,) = bucket.get([key])
    return None if found is None else found.data


def check_unavailable(call: Callable[[], object], *, known: bool, match: str | None = None) -> None:
    with pytest.raises(Unavailable, match=match) as caught:
        call()
    assert caught.value.outcome_known is known


# Lost replies


def test_a_lost_answer_of_a_conditional_put(bucket: ObjectStoreBucket, proxy: Proxy) -> None:
    """It is sent once, and said to be unknown: never taken for a conflict."""
    proxy.drop_requests(method="PUT")
    check_unavailable(lambda: bucket.put("k", b"1", expect=None), known=False)
    assert data_of(bucket, "k") is None
    proxy.drop_replies(method="PUT")
    check_unavailable(lambda: bucket.put("k", b"1", expect=None), known=False)
    (found,) = bucket.get(["k"])
    assert found is not None
    assert found.data == b"1"
    proxy.drop_replies(method="PUT")
    check_unavailable(lambda: bucket.put("k", b"2", expect=found.version), known=False)
    assert data_of(bucket, "k") == b"2"
    proxy.delay(5, method="PUT")
    check_unavailable(lambda: bucket.put("l", b"", expect=None), known=False, match="Timeout")
    assert proxy.counts()["PUT"] == 4


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
    proxy.drop_replies(1, method="PUT")  # which was executed, whichever was the last
    proxy.drop_requests(100, method="PUT")
    check_unavailable(lambda: bucket.put("k", b"2", expect=ANY), known=False)
    assert data_of(bucket, "k") == b"2"


def test_a_lost_reply_while_proving(seaweedfs: Service, proxy: Proxy) -> None:
    """The caller's write goes on: what is proved may be sent as often as it takes."""
    for lost in range(1, 4):
        bucket = seaweedfs.open(uuid4().hex, endpoint_url=proxy.url, retry_s=60)
        proxy.forget()
        proxy.delay(0, lost - 1, method="PUT")
        proxy.drop_replies(method="PUT")
        bucket.put("k", b"1", expect=None)
        bucket.close()


# Servers that are gone or busy


def test_a_server_that_was_never_there(waits: Waits) -> None:
    nowhere = Service(f"http://127.0.0.1:{free_port()}", "key", "secret")
    bucket = nowhere.open("p", clock=waits.clock, retry_s=20)
    check_unavailable(
        lambda: bucket.put("k", b"", expect=None), known=True, match=r"did not answer.*Refused"
    )
    assert waits.pauses[:4] == [0.05, 0.1, 0.2, 0.4]
    assert max(waits.pauses) == 5
    assert 10 < sum(waits.pauses) <= 20
    with pytest.raises(Unavailable):  # once one has failed, the others need not take as long
        bucket.get([f"k/{number}" for number in range(100)])
    assert sum(waits.pauses) < 17 * 20
    bucket.close()


@for_each("status, code", [(503, "SlowDown"), (503, "ServiceUnavailable"), (429, "")])
def test_a_busy_server_is_asked_again(status: int, code: str) -> None:
    waits = Waits()
    with Stub(ignores=()) as stub:
        bucket = stub.service.open("p", clock=waits.clock, retry_s=2)
        bucket.mark(["first"])
        stub.requests.clear()
        stub.answer(status, code, n=3)
        bucket.put("k", b"1", expect=None)
        assert stub.requests == ["PUT"] * 4
        stub.answer(status, code, n=2)
        assert data_of(bucket, "k") == b"1"
        assert len(waits.pauses) == 5
        stub.answer(status, code, n=1000)
        match = f"{status} ?{code}"
        check_unavailable(lambda: bucket.put("k", b"1", expect=None), known=True, match=match)
        bucket.close()


UNSURE = [(500, "InternalError"), (503, ""), (502, ""), (504, "")]
REFUSALS = [
    *((400, "ExpiredToken"), (400, "InvalidArgument"), (401, ""), (403, "AccessDenied")),
    *((403, "RequestTimeTooSkewed"), (301, "PermanentRedirect")),
]


def test_errors_of_a_conditional_write_are_not_repeated(
    stub: Stub, stubbed: ObjectStoreBucket
) -> None:
    """Those that may come from something before a server that did as it was told are in doubt."""
    for status, code in [*UNSURE, *REFUSALS]:
        is_unsure = (status, code) in UNSURE
        stub.requests.clear()
        stub.answer(status, code)
        check_unavailable(lambda: stubbed.put("k", b"1", expect=None), known=not is_unsure)
        assert stub.requests == ["PUT"]
        if is_unsure:
            stub.answer(status, code)
            stubbed.put("l", b"1", expect=ANY)
            stub.answer(status, code)
            assert len(stubbed.list("", limit=9)) == 2


def test_a_conflict_of_requests_is_a_conflict(stub: Stub, stubbed: ObjectStoreBucket) -> None:
    for code in ("ConditionalRequestConflict", "OperationAborted"):
        for expect in (None, '"0"'):
            stub.answer(409, code)
            with pytest.raises(Moved):
                stubbed.put("k", b"1", expect=expect)


# Answers that are none


HTML = b"<!DOCTYPE html><html><body>Please log in.</body></html>"


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


# Anything that is XML has no keys for obstore, and a token that is missing is the end.
NO_LISTINGS = [
    *(HTML.decode(), "", "<Error><Code>InternalError</Code></Error>"),
    "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
]


def test_what_is_no_answer_is_no_empty_one(stub: Stub, stubbed: ObjectStoreBucket) -> None:
    """Of a listing, whether there are keys or not; and a page is no object."""
    stubbed.put("k/1", b"1", expect=None)
    lists: list[tuple[str, Any]] = [("k/", ["k/1"]), ("k", ["k/1"]), ("none/", [])]
    cases: list[tuple[str, Callable[[], object], Any]] = [
        (body, lambda p=prefix: [each.key for each in stubbed.list(p, limit=9)], keys)  # type: ignore[misc]
        for body in NO_LISTINGS
        for prefix, keys in lists
    ]
    cases += [
        (NO_LISTINGS[0], lambda: data_of(stubbed, "k/1"), b"1"),
        (NO_LISTINGS[0], lambda: data_of(stubbed, "none"), None),
        (NO_LISTINGS[0], lambda: stubbed.get(["none"], first=100), [None]),
    ]
    for body, read, expected in cases:
        stub.answer(200, body=body, n=10_000)
        check_unavailable(read, known=True)
        stub.answers.clear()
        stub.answer(200, body=body)
        assert read() == expected


@for_each("is_new", [True, False])
def test_a_store_behind_a_login_page_is_not_empty(is_new: bool) -> None:
    with Stub(ignores=()) as stub, limpet.open(stub.service.store_url("p"), retry_s=0.05) as store:
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


def test_a_listing_that_is_cut_short_is_continued(bucket: ObjectStoreBucket, proxy: Proxy) -> None:
    """Truncated, without a token, once or each time: no key is missing."""
    keys = [f"k/{number}" for number in range(5)]
    bucket.mark([*keys, "k-1", "l"])
    for keep, times in ((1, 1), (2, 10_000), (5, 1), (1, 10_000)):
        proxy.rewrite(lambda body, keep=keep: without_keys(body, keep=keep), times, method="LIST")  # type: ignore[misc]
        assert [each.key for each in bucket.list("k/", limit=1000)] == keys
        assert [each.key for each in bucket.list("k/", after="k/1", limit=1000)] == keys[2:]
        assert [each.key for each in bucket.list("k/", limit=2)] == keys[:2]
        proxy.forget()


def test_a_listing_that_repeats_itself(stub: Stub) -> None:
    """By the same token for ever, or because the service ignores where to begin."""
    bucket = stub.service.open("p", retry_s=0)
    bucket.keep_end()
    bucket.mark(["k"])
    token = "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
    entry = (
        "<Contents><Key>p/k</Key><Size>0</Size>"
        "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
    )
    stub.answer(200, body=f"<ListBucketResult>{token}{entry}</ListBucketResult>", n=1000)
    for after in ("", "l"):
        with pytest.raises(Unavailable, match="listing"):
            bucket.list("", after=after, limit=9)
    bucket.close()


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
        check_unavailable(call, known=False)


def test_objects_that_were_not_deleted(stub: Stub, stubbed: ObjectStoreBucket) -> None:
    """A service may answer 200 and say of some objects that they are still there."""
    result = (
        "<DeleteResult><Deleted><Key>p/k</Key></Deleted>"
        "<Error><Key>p/l</Key><Code>{}</Code><Message>no</Message></Error></DeleteResult>"
    )
    stubbed.mark(["k", "l"])
    for code in ("InternalError", "SlowDown"):
        stub.answer(200, body=result.format(code))
    stubbed.delete(["first", "k", "l"])
    assert stub.objects == {}

    stubbed.mark(["k", "l"])
    stub.answer(200, body=result.format("AccessDenied"))
    with pytest.raises(Unavailable, match="AccessDenied"):
        stubbed.delete(["k", "l"])
    stub.answer(200, body="<DeleteResult></DeleteResult>", n=10_000)
    check_unavailable(lambda: stubbed.delete(["k", "l"]), known=False)


# Services that ignore conditions


@for_each("ignores", [("If-Match",), ("If-None-Match",), ("If-Match", "If-None-Match")])
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


def test_a_service_that_fails_while_proving(stub: Stub) -> None:
    """Nothing of the caller's was sent, so its outcome is known."""
    bucket = stub.service.open("p", retry_s=0)
    stub.answer(501, "NotImplemented")
    with pytest.raises(Unsupported):
        bucket.put("k", b"1", expect=None)
    stub.answer(500, "InternalError")
    check_unavailable(lambda: bucket.put("k", b"1", expect=None), known=True)
    assert stub.objects == {}
    bucket.put("k", b"1", expect=None)
    assert stub.objects == {"p/k": b"1"}
    bucket.close()


# What obstore calls things: none of it is promised, so a new release must fail here first


def test_obstore_still_has_the_exceptions_that_are_told_apart_by_name() -> None:
    known = {*dir(builtins), *dir(obstore.exceptions)}
    assert set(requests._KINDS_BY_CLASS) <= known


def test_obstore_still_writes_errors_as_they_are_parsed() -> None:
    """The status, the service's code and the kind of network error are in the text alone."""
    store = obstore.store.S3Store(
        "bucket",
        config={"endpoint": f"http://127.0.0.1:{free_port()}", "skip_signature": True},
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    with pytest.raises(requests.driver_errors()) as raised:
        store.get("key")
    assert requests.read_failure(raised.value) == (Kind.BUSY, "Connect ConnectionRefused")
