"""Bodies of requests: read, unpacked and parsed within limits of size, time and memory."""

import asyncio
import zlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

import zstandard

from limpet.api.driver import AsyncDriver, running_loop
from limpet.core import codec, limits
from limpet.errors import Corrupt, InvalidInput, Unavailable
from limpet.model import JSON
from limpet.server.access import Refused
from limpet.server.answers import FORM_TYPE, JSON_TYPE
from limpet.server.schema import Schema, check

Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]

LARGE = 256 * limits.KIB  # bytes that are parsed, or compressed, in a thread
_BYTES_MORE = limits.MIB  # of a request beside its state and its metadata
_SMALL = 64 * limits.KIB  # bytes for which no memory is reserved
_READING_MAX = 4096  # bodies at once: those that have reserved nothing take 256 MiB together
_STALL_S_MAX = 30.0  # between two parts of a body
_BYTES_PER_S_MIN = 256 * limits.KIB  # of a whole body, else few clients could hold all the memory
_QUEUE_S_MAX = 30.0  # for memory


def busy(what: str) -> Unavailable:
    return Unavailable(f"the server is busy: {what}. Try again later", outcome_known=True)


class Memory:
    """Bytes that are reserved and given back; who asks first gets them first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def reserved(self, count: int) -> AsyncIterator[None]:
        """Reserve bytes, at most `bytes_max`, or raise Unavailable after a while."""
        count = min(count, self._bytes_max)
        await self._take(count)
        try:
            yield
        finally:
            self._used -= count
            self._grant()

    async def _take(self, count: int) -> None:
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((count, mine))
        self._grant()
        try:
            async with asyncio.timeout(_QUEUE_S_MAX):
                await mine
        except BaseException as error:
            if not mine.cancelled():
                self._used -= count  # it was granted at the same moment
            self._grant()
            if isinstance(error, TimeoutError):
                raise busy("too many large requests are under way") from None
            raise

    def _grant(self) -> None:
        while self._waiting:
            count, future = self._waiting[0]
            if not future.cancelled():
                if self._used + count > self._bytes_max:
                    return
                self._used += count
                future.set_result(None)
            self._waiting.popleft()


class Bodies:
    """Reads the bodies of requests to one store."""

    def __init__(self, driver: AsyncDriver) -> None:
        self._driver = driver
        self._bytes_max = 2 * driver.tools.state_bytes_max + _BYTES_MORE
        self._memory = Memory(2 * self._bytes_max)
        self._reading = 0
        self.received_bytes = 0

    async def read(
        self, receive: Receive, headers: Mapping[str, str], *, form: bool = False
    ) -> "Body":
        """Read a body: all of it if it is small, else its begin; raise Refused."""
        expected = FORM_TYPE if form else JSON_TYPE
        if headers.get("content-type", "").partition(";")[0].strip().lower() != expected:
            raise Refused(415, "InvalidInput", f"the body must be {expected}")
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", "gzip", "zstd"):
            why = "send the body as it is, or as gzip or zstd"
            raise Refused(415, "InvalidInput", f"this Content-Encoding is not known: {why}")
        if self._reading >= _READING_MAX:
            raise busy("too many requests are being received")
        body = Body(receive, headers.get("content-length"), encoding, self._bytes_max, form=form)
        self._reading += 1
        try:
            await body.read(_SMALL)
        finally:
            self._reading -= 1
            self.received_bytes += body.received_bytes
        return body

    @asynccontextmanager
    async def rest(self, body: "Body", schema: Schema) -> AsyncIterator[JSON]:
        """Read on and yield what fits a schema; its memory is reserved until the context ends."""
        async with self._memory.reserved(body.size):
            before = body.received_bytes
            try:
                await body.read(self._bytes_max)
            finally:
                self.received_bytes += body.received_bytes - before
            yield await self._driver.in_pool(body.parsed, schema)


class Body:
    """The body of one request, as far as it has arrived."""

    def __init__(
        self,
        receive: Receive,
        length: str | None,
        encoding: str,
        bytes_max: int,
        *,
        form: bool = False,
    ) -> None:
        self.received_bytes = 0
        self._form = form
        self._receive = receive
        self._encoding = encoding
        self._bytes_max = bytes_max
        self._parts: list[bytes] = []
        self._is_complete = False
        is_known = length is not None and length.isascii() and length.isdigit()
        self._length = int(length) if length is not None and is_known else None
        self._check_size(self._length or 0)

    @property
    def size(self) -> int:
        """How large it is when unpacked, as it says; else how large it may be."""
        if self._is_complete:
            return _unpacked_size(self._raw(), self._encoding, self._bytes_max)
        if self._length is None or self._encoding != "identity":
            return self._bytes_max
        return self._length

    @property
    def is_small(self) -> bool:
        return self._is_complete and self.size <= LARGE

    def parsed(self, schema: Schema) -> JSON:
        """Return what it says, or raise InvalidInput."""
        raw, size = self._raw(), self.size
        self._parts = []
        unpacked = _unpacked(raw, self._encoding, size)
        try:
            found = _fields(unpacked) if self._form else codec.decode_foreign(unpacked)
        except Corrupt:
            raise InvalidInput("the body is not JSON in UTF-8") from None
        check(found, schema)
        return found

    async def read(self, bytes_max: int) -> None:
        """Read on until all is there, or more than so many bytes; raise Refused if it is slow."""
        now, before = running_loop().time, self.received_bytes
        began = now()
        try:
            async with asyncio.timeout(_STALL_S_MAX) as limit:
                while not self._is_complete and self.received_bytes <= bytes_max:
                    await self._next()
                    due = began + (self.received_bytes - before) / _BYTES_PER_S_MIN
                    limit.reschedule(min(due, now()) + _STALL_S_MAX)
        except TimeoutError:
            why = "the body did not arrive in time"
            raise Refused(408, "Unavailable", why, {"connection": "close"}) from None

    async def _next(self) -> None:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "InvalidInput", "the body ended too early")
        if part := message.get("body", b""):
            self._parts.append(part)
        self.received_bytes += len(part)
        self._check_size(self.received_bytes)
        self._is_complete = not message.get("more_body", False)

    def _raw(self) -> bytes:
        if len(self._parts) != 1:
            self._parts = [b"".join(self._parts)]
        return self._parts[0]

    def _check_size(self, size: int) -> None:
        if size > self._bytes_max:
            raise _too_large(self._bytes_max)


def _fields(raw: bytes) -> JSON:
    try:
        return dict(parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict"))
    except ValueError:
        raise InvalidInput("the form is not UTF-8, percent-encoded") from None


def _too_large(bytes_max: int) -> Refused:
    return Refused(413, "InvalidInput", f"the body is too large. max=`{bytes_max}`")


def _unpacked_size(raw: bytes, encoding: str, bytes_max: int) -> int:
    """Return how large a body says to be, which unpacking checks; at most `bytes_max`."""
    size = len(raw)
    if encoding == "gzip":
        size = int.from_bytes(raw[-4:], "little")
    elif encoding == "zstd":
        try:
            known = zstandard.frame_content_size(raw)
        except zstandard.ZstdError:
            raise _no_unpacking() from None
        size = bytes_max if known < 0 else known
    if size > bytes_max:
        raise _too_large(bytes_max)
    return size


def _no_unpacking() -> InvalidInput:
    return InvalidInput("the body does not decompress, or not to the size that it says")


def _unpacked(raw: bytes, encoding: str, size: int) -> bytes:
    """Undo the Content-Encoding of a body, without ever holding more than it said."""
    if encoding == "identity":
        return raw
    try:
        if encoding == "zstd":
            return zstandard.ZstdDecompressor().decompress(
                raw, max_output_size=size, allow_extra_data=False
            )
        reader = zlib.decompressobj(wbits=31)
        found = reader.decompress(raw, size + 1)
        if reader.eof and len(found) == size and not reader.unused_data:
            return found
    except (zlib.error, zstandard.ZstdError):
        pass
    raise _no_unpacking()
