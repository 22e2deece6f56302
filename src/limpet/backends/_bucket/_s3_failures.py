"""What a failed request means: read from what obstore raises, which is a class and a text.

The text is the only place where the status, the service's code and the kind of network error
stand. It may also quote headers that the service signed, or an address with a token in it: so it
is neither shown nor chained, only the few words that are recognised here.
"""

import re
from enum import Enum
from typing import NamedTuple

from limpet.errors import InvalidInput, LimpetError, Unavailable, Unsupported


class Kind(Enum):
    """What to do about a failure."""

    MISSING = "there is no such object"
    MOVED = "a condition does not hold"
    RANGE = "the object is too short for the range"
    BUSY = "the request was not executed, and may be sent again"
    UNCLEAR = "the request may have been executed"
    DENIED = "access is denied, or the credentials are not accepted"
    NO_BUCKET = "the bucket does not exist"
    INCAPABLE = "the service cannot do this"
    INVALID = "the key is not acceptable"
    REFUSED = "the object store refused the request"


class Failure(NamedTuple):
    """What is known about a failed request: nothing in it is secret."""

    kind: Kind
    reason: str


class Refusal(Exception):
    """A service answered, and the answer is no: for whoever sent the request to understand."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.kind = failure.kind


def driver_errors() -> tuple[type[Exception], ...]:
    """Return what obstore raises."""
    from obstore.exceptions import BaseError

    return (BaseError, FileNotFoundError, NotImplementedError, ValueError)


_STATUS = re.compile(r"Server returned non-2xx status code: (\d{3})\b")
_CODE = re.compile(r"<Code>(\w{1,64})</Code>|\(code: (\w{1,64})\)")
_NETWORK = re.compile(r"HttpError \{\s*kind: (\w{1,32})")
_SYSTEM = re.compile(r"Os \{\s*code: \d+,\s*kind: (\w{1,64})")
_CERTIFICATE = re.compile(r"invalid peer certificate: (\w{1,64})")
_INSTANCE = re.compile(r"Error performing (?:GET|PUT) \S+/latest/(?:api/token|meta-data/)")

_NO_BUCKET = frozenset({"NoSuchBucket", "ContainerNotFound"})
_NOT_EXECUTED = frozenset(
    {
        "RequestTimeout",  # 400: the service waited in vain for the rest of the request
        "RequestThrottled",
        "ServerBusy",
        "ServiceUnavailable",
        "SlowDown",
        "ThrottlingException",
        "TooManyRequests",
    }
)
_CREDENTIALS = frozenset(
    {
        "AccessDenied",
        "AuthenticationFailed",
        "AuthorizationHeaderMalformed",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "TokenRefreshRequired",
    }
)
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
    401: Kind.DENIED,
    403: Kind.DENIED,
    404: Kind.MISSING,
    409: Kind.MOVED,
    412: Kind.MOVED,
    416: Kind.RANGE,
    429: Kind.BUSY,
    501: Kind.INCAPABLE,
}


def read_failure(cause: Exception) -> Failure:
    """Return what is known about a failure."""
    text = str(cause)
    status = _first(_STATUS, text)
    code = _first(_CODE, text)
    reason = " ".join(filter(None, (status, code)))
    if code in _NO_BUCKET or "bucket does not exist" in text:
        return Failure(Kind.NO_BUCKET, reason)
    if code in _CREDENTIALS:
        return Failure(Kind.DENIED, reason)
    # Without a status it is about one object of many, and the others may be done.
    if code in _NOT_EXECUTED and status:
        return Failure(Kind.BUSY, reason)
    if _INSTANCE.search(text):
        return Failure(Kind.DENIED, "no credentials were found")
    if type(cause).__name__ in _KINDS_BY_CLASS:
        return Failure(_KINDS_BY_CLASS[type(cause).__name__], reason)
    if status:
        return Failure(_kind_of_status(int(status)), reason)
    return _read_network(text)


def _kind_of_status(status: int) -> Kind:
    if status in _KINDS_BY_STATUS:
        return _KINDS_BY_STATUS[status]
    # A 5xx may come from something between us and a service that has done as it was told.
    return Kind.UNCLEAR if status >= 500 else Kind.REFUSED


def _read_network(text: str) -> Failure:
    kind = _first(_NETWORK, text)
    detail = _first(_CERTIFICATE, text) or _first(_SYSTEM, text)
    if not detail and "dns error" in text:
        detail = "DnsError"
    reason = " ".join(filter(None, (kind, detail)))
    if "redirect" in text.partition("Debug source:")[0]:
        return Failure(Kind.REFUSED, "redirect: is the region right?")
    # Without a connection nothing was sent. After any other trouble it may have been.
    return Failure(Kind.BUSY if kind == "Connect" else Kind.UNCLEAR, reason or "unknown")


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return next(filter(None, found.groups()), "") if found else ""


def error_of(failure: Failure, bucket: str, *, sent: bool) -> LimpetError:
    """Return the error for a failure that is not to be retried any more.

    `sent` says that a write may have been executed, by this attempt or one before.
    """
    about = f"bucket=`{bucket}` reason=`{failure.reason}`"
    match failure.kind:
        case Kind.INVALID:
            return InvalidInput(f"the key is not acceptable for an object store. {about}")
        case Kind.INCAPABLE:
            return Unsupported(f"the object store cannot do this. {about}")
        case Kind.BUSY | Kind.UNCLEAR:
            return Unavailable(f"the object store did not answer. {about}", outcome_known=not sent)
        case kind:
            return Unavailable(f"{kind.value}. {about}", outcome_known=not sent)
