"""What operations return."""

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, NamedTuple

from limpet.core.operations import JSON_TYPE
from limpet.protocol import Backend

FORM_TYPE = "application/x-www-form-urlencoded"
PROBLEM_TYPE = "application/problem+json"


class Answer(NamedTuple):
    """A record, encoded, and its revision."""

    body: bytes
    revision: str | None = None


class Listing(NamedTuple):
    """A list: how a page of it is read, after a place and with a limit."""

    fetch: Callable[[Backend, Any, int], list[Any]]


class Stream(NamedTuple):
    """An answer that goes on: its parts as they come.

    One that is `endless` ends when the server stops; `weight` is its share of what may be open.
    Lines of JSON that are cut off end with a problem.
    """

    parts: AsyncGenerator[bytes, None]
    media_type: str
    endless: bool = False
    weight: int = 1


class Response:
    """Headers and a body, or parts that go on."""

    def __init__(
        self,
        status: int,
        body: bytes | Stream = b"",
        media_type: str = JSON_TYPE,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status
        self.body = body
        self.headers = {
            "content-type": body.media_type if isinstance(body, Stream) else media_type,
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
            **(headers or {}),
        }
