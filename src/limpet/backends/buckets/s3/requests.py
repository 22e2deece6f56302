"""Requests to an object store: retries, parallelism, and the meaning of failures.

Requests are retried here and not in obstore, which would repeat a conditional write after a lost
reply, and then take its own write for that of another process. A request that was certainly not
executed is repeated after a pause; one that may have been, only if that is harmless.

What a failed request means is read from obstore's exception: its class, and its text, which alone
has the status, the service's code and the kind of network error. The text may also quote signed
headers or a URL with a token, so it is neither shown nor chained; only known words are extracted.
"""

import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from limpet.backends.support import logs
from limpet.backends.support.backoff import Backoff
from limpet.errors import InvalidInput, LimpetError, Unavailable, Unsupported
from limpet.protocol import Clock

if TYPE_CHECKING:
    from obstore.store import ObjectStore


class Kind(Enum):
    MISSING = "there is no such object"
    MOVED = "a condition does not hold"
    RANGE = "the object is too short for the range"
    BUSY = "the request was not executed, and may be sent again"
    UNCLEAR = "the request may have been executed"
    DENIED = "access is denied, or the credentials are not accepted"
    NO_BUCKET = "the bucket does not exist"
    INCAPABLE = "the object store cannot do this"
    INVALID = "the object store does not accept the key"
    REFUSED = "the object store refused the request"
    GARBLED = "this is no answer of an object store: is a proxy or a login page in between?"


class Failure(NamedTuple):
    """What is known about a failed request, without secrets."""

    kind: Kind
    reason: str


class Garbled(Exception):
    """A reply with status 200 that is not what was asked for. Only reads raise it."""


def driver_errors() -> tuple[type[Exception], ...]:
    from obstore.exceptions import BaseError

    return (BaseError, FileNotFoundError, NotImplementedError, ValueError)


_STATUS = re.compile(r"Server returned non-2xx status code: (\d{3})\b")
_CODE = re.compile(r"<Code>(\w{1,64})</Code>|\(code: (\w{1,64})\)")
_NETWORK = re.compile(r"HttpError \{\s*kind: (\w{1,32})")
_SYSTEM = re.compile(r"Os \{\s*code: \d+,\s*kind: (\w{1,64})")
_CERTIFICATE = re.compile(r"invalid peer certificate: (\w{1,64})")
_INSTANCE = re.compile(r"Error performing (?:GET|PUT) \S+/latest/(?:api/token|meta-data/)")

_KINDS_BY_CODE = {
    "NoSuchBucket": Kind.NO_BUCKET,
    "ContainerNotFound": Kind.NO_BUCKET,
    "RequestTimeout": Kind.BUSY,  # 400: the service waited in vain for the rest of the request
    "RequestThrottled": Kind.BUSY,
    "ServerBusy": Kind.BUSY,
    "ServiceUnavailable": Kind.BUSY,
    "SlowDown": Kind.BUSY,
    "ThrottlingException": Kind.BUSY,
    "TooManyRequests": Kind.BUSY,
    "AccessDenied": Kind.DENIED,
    "AuthenticationFailed": Kind.DENIED,
    "AuthorizationHeaderMalformed": Kind.DENIED,
    "ExpiredToken": Kind.DENIED,
    "InvalidAccessKeyId": Kind.DENIED,
    "InvalidToken": Kind.DENIED,
    "TokenRefreshRequired": Kind.DENIED,
}
_KINDS_BY_CLASS = {
    "FileNotFoundError": Kind.MISSING,
    "NotFoundError": Kind.MISSING,
    "AlreadyExistsError": Kind.MOVED,
    "PreconditionError": Kind.MOVED,
    "NotModifiedError": Kind.MOVED,
    "PermissionDeniedError": Kind.DENIED,
    "UnauthenticatedError": Kind.DENIED,
    "NotSupportedError": Kind.INCAPABLE,
    "NotImplementedError": Kind.INCAPABLE,
    "InvalidPathError": Kind.INVALID,
    "ValueError": Kind.INVALID,
}
_KINDS_BY_STATUS = {
    "401": Kind.DENIED,
    "403": Kind.DENIED,
    "404": Kind.MISSING,
    "409": Kind.MOVED,
    "412": Kind.MOVED,
    "416": Kind.RANGE,
    "429": Kind.BUSY,
    "501": Kind.INCAPABLE,
}


def read_failure(cause: Exception) -> Failure:
    text = str(cause)
    status = _first(_STATUS, text)
    code = _first(_CODE, text)
    reason = " ".join(filter(None, (status, code)))
    if "bucket does not exist" in text:
        return Failure(Kind.NO_BUCKET, reason)
    kind = _KINDS_BY_CODE.get(code)
    # Without a status the code is about one object of many, and the others may be done.
    if kind is not None and (status or kind is not Kind.BUSY):
        return Failure(kind, reason)
    if _INSTANCE.search(text):
        return Failure(Kind.DENIED, "no credentials were found")
    kind = _KINDS_BY_CLASS.get(type(cause).__name__) or _KINDS_BY_STATUS.get(status)
    if kind is None and status:
        # A 5xx may come from a proxy, while the service itself has executed the request.
        kind = Kind.UNCLEAR if status >= "500" else Kind.REFUSED
    return _read_network(text) if kind is None else Failure(kind, reason)


def _read_network(text: str) -> Failure:
    kind = _first(_NETWORK, text)
    detail = _first(_CERTIFICATE, text) or _first(_SYSTEM, text)
    if not detail and "dns error" in text:
        detail = "DnsError"
    reason = " ".join(filter(None, (kind, detail)))
    if "redirect" in text.partition("Debug source:")[0]:
        return Failure(Kind.REFUSED, "redirect: is the region right?")
    # Without a connection nothing was sent. After any other failure it may have been.
    return Failure(Kind.BUSY if kind == "Connect" else Kind.UNCLEAR, reason or "unknown")


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return next(filter(None, found.groups()), "") if found else ""


def error_of(failure: Failure, bucket: str, *, sent: bool) -> LimpetError:
    """Return the error for a failure that is not retried any more.

    `sent`: a write may have been executed, by this attempt or an earlier one.
    """
    kind = failure.kind
    if kind in (Kind.MISSING, Kind.MOVED, Kind.RANGE):
        kind = Kind.REFUSED  # the request cannot explain it
    is_silent = kind in (Kind.BUSY, Kind.UNCLEAR)
    fact = "the object store did not answer" if is_silent else kind.value
    message = f"{fact}. bucket=`{bucket}` reason=`{failure.reason}`"
    if kind is Kind.INVALID:
        return InvalidInput(message)
    if kind is Kind.INCAPABLE:
        return Unsupported(message)
    return Unavailable(message, outcome_known=not sent)


T = TypeVar("T")
U = TypeVar("U")

_PAUSE_S = 0.05
_PAUSE_S_MAX = 5.0

# The process that runs obstore's threads. They do not survive a fork, and obstore would wait for
# them for ever, even in a store that is opened after the fork.
_process: int | None = None


class Service:
    """One bucket of an object store, for many threads. Opened by the first request.

    A request takes at most `retry_s` and the time of one attempt.
    """

    def __init__(
        self,
        open_store: "Callable[[], ObjectStore]",
        *,
        name: str,
        clock: Clock,
        retry_s: float,
        parallel: int,
    ) -> None:
        self._open_store = open_store
        self._name = name
        self._clock = clock
        self._retry_s = retry_s
        self._parallel = parallel
        self._lock = threading.Lock()
        self._store: ObjectStore | None = None
        self._pool: ThreadPoolExecutor | None = None

    def close(self) -> None:
        with self._lock:
            pool, self._pool, self._store = self._pool, None, None
        if pool is not None and _process == os.getpid():
            pool.shutdown()

    def ask(
        self,
        request: "Callable[[ObjectStore], T]",
        *,
        answers: Mapping[Kind, U] | None = None,
        write: bool = False,
        again: bool = True,
        keys: Sequence[str] = (),
    ) -> T | U:
        """Send a request until it is answered, as long as repeating is harmless, up to `retry_s`.

        A failure of a kind in `answers` is an answer, too: that value is returned. `again`: it may
        be repeated although it may have been executed. Of `keys` the error names the one that
        failed.
        """
        store = self._opened()
        backoff = Backoff(
            self._clock, first_s=_PAUSE_S, longest_s=_PAUSE_S_MAX, wait_s=self._retry_s
        )
        sent, name = False, self._name
        while True:
            try:
                return request(store)
            except driver_errors() as cause:
                failure = read_failure(cause)
                named = next((key for key in keys if key in str(cause)), "")
                name = f"{self._name}` key=`{named}" if named else self._name
            except Garbled as cause:
                failure = Failure(Kind.GARBLED, str(cause))
            if answers is not None and failure.kind in answers:
                return answers[failure.kind]
            unclear = failure.kind is Kind.UNCLEAR
            sent = sent or (write and unclear)
            harmless = failure.kind in (Kind.BUSY, Kind.GARBLED) or (unclear and again)
            if not harmless or not backoff.sleep():
                raise error_of(failure, name, sent=sent)
            logs.info("a request is sent again", engine="objects", reason=failure.kind.name.lower())

    def _opened(self) -> "ObjectStore":
        global _process
        with self._lock:
            if _process is None:
                _process = os.getpid()
            if _process != os.getpid():
                raise Unsupported(
                    "an object store cannot be used in a process that was forked from one that used"
                    " it: fork before the first use, or start processes by `spawn`."
                    f" bucket=`{self._name}`"
                )
            if self._store is None:
                self._store = self._open_store()
            return self._store

    def map(self, work: Callable[[U], T], items: Sequence[U]) -> list[T]:
        """Call `work` for each item, in parallel; raise a failure only after all have ended."""
        if len(items) < 2:
            return [work(item) for item in items]
        self._opened()
        failed = threading.Event()

        def task(item: U) -> T:
            # Once one has failed after all its retries, the rest need not retry as long again.
            if failed.is_set():
                raise CancelledError
            try:
                return work(item)
            except BaseException:
                failed.set()
                raise

        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._parallel, "limpet-bucket")
            futures = [self._pool.submit(task, item) for item in items]
        try:
            # They start in order, so the first failure comes before all that were cancelled.
            return [future.result() for future in futures]
        except BaseException as cause:
            for future in futures:
                future.cancel()
            # On Ctrl-C there is no waiting; after an error no request may still be running.
            if isinstance(cause, Exception):
                wait(futures)
            raise
