"""Bodies of requests: read, unpacked and parsed within limits of size, time and memory."""

import asyncio
import gc
import zlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import parse_qsl

import zstandard

from limpet.api.driver import AsyncDriver, running_loop
from limpet.core import codec, limits
from limpet.core.operations import JSON_TYPE, Operation
from limpet.core.schema import Schema, check
from limpet.errors import Corrupt, InvalidInput, Unavailable
from limpet.model import JSON
from limpet.server.access import Refused
from limpet.server.call import FORM_TYPE

Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]

LARGE = 256 * limits.KIB  # bytes that are parsed, or compressed, in a thread
_BYTES_MORE = limits.MIB  # of a request without its state and its metadata
_FIELDS_MAX = 16  # of a form
# Bytes of memory that a parsed value takes, a text beside its characters, and an array or object as
# much again: the values of `[[],[],...]` take 30 times as much as their JSON.
_VALUE_BYTES = 40
_NO_MARKS = bytes(set(range(256)) - set(b"[{,:"))
_TINY = 4 * limits.KIB  # bytes of JSON that never take more than LARGE
_SMALL = 64 * limits.KIB  # bytes for which no memory is reserved
_READING_MAX = 4096  # bodies at once: those that have reserved nothing take 256 MiB together
_STALL_S_MAX = 30.0  # between two parts of a body
_BYTES_PER_S_MIN = 256 * limits.KIB  # of a whole body, else few clients could hold all the memory


class _Limits(NamedTuple):
    """How many bytes a body may have, and how many its values may take in memory."""

    bytes: int
    values_bytes: int


_FORM = _Limits(32 * limits.KIB, limits.MIB)  # four ids of 512 characters, percent-encoded
_LISTS = _Limits(4 * limits.MIB, 16 * limits.MIB)  # 65,536 ids of 60 characters
_VALUES_BYTES_MIN = 64 * limits.MIB  # for states, however small they must be


class Bodies:
    """Reads the bodies of requests to one store."""

    def __init__(self, driver: AsyncDriver) -> None:
        self._driver = driver
        bytes_max = 2 * driver.tools.state_bytes_max + _BYTES_MORE
        self._states = _Limits(bytes_max, max(2 * bytes_max, _VALUES_BYTES_MIN))
        self._memory = Memory(self._states.bytes)
        self._values_memory = Memory(self._states.values_bytes)
        self._reading = 0
        self.received_bytes = 0

    async def read(
        self, receive: Receive, headers: Mapping[str, str], operation: Operation
    ) -> "Body":
        """Read a body: all of it if it is small, else its begin; raise Refused."""
        expected = FORM_TYPE if operation.form else JSON_TYPE
        if headers.get("content-type", "").partition(";")[0].strip().lower() != expected:
            raise Refused(415, "InvalidInput", f"the body must be {expected}")
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if operation.form and encoding != "identity":
            raise Refused(415, "InvalidInput", "a form has no Content-Encoding: send it as it is")
        if encoding not in ("identity", "gzip", "zstd"):
            why = "send the body as it is, or as gzip or zstd"
            raise Refused(415, "InvalidInput", f"this Content-Encoding is not known: {why}")
        if self._reading >= _READING_MAX:
            raise busy("too many requests are being received")
        most = _FORM if operation.form else self._states if operation.writes else _LISTS
        length = headers.get("content-length")
        body = Body(receive, length, encoding, most, form=operation.form)
        self._reading += 1
        try:
            await body.read(_SMALL)
        finally:
            self._reading -= 1
            self.received_bytes += body.received_bytes
        if body.is_complete and body.size <= LARGE:
            body.unpack()
        return body

    @asynccontextmanager
    async def rest(self, body: "Body", schema: Schema) -> AsyncIterator[JSON]:
        """Read on and yield what fits a schema; its memory is reserved until the context ends."""
        if body.needed:
            async with self._values_memory.reserved(body.needed):
                yield body.parsed(schema)
            return
        async with self._memory.reserved(body.size):
            before = body.received_bytes
            try:
                await body.read(self._states.bytes)
            finally:
                self.received_bytes += body.received_bytes - before
            await self._driver.in_pool(body.unpack)
            async with self._values_memory.reserved(body.needed):
                yield await self._driver.in_pool(body.parsed, schema)


class Body:
    """The body of one request, as far as it has arrived."""

    def __init__(
        self,
        receive: Receive,
        length: str | None,
        encoding: str,
        most: _Limits,
        *,
        form: bool = False,
    ) -> None:
        self.received_bytes = 0
        self.is_complete = False
        self.needed = 0  # memory that parsing can take, known when it is unpacked
        self._form = form
        self._receive = receive
        self._encoding = encoding
        self._limits = most
        self._parts: list[bytes] = []
        is_known = length is not None and length.isascii() and length.isdigit()
        self._length = int(length) if length is not None and is_known else None
        self._check_size(self._length or 0)

    @property
    def size(self) -> int:
        """How large it is when unpacked, as it says; else how large it may be."""
        if self.is_complete:
            return _unpacked_size(self._raw(), self._encoding, self._limits.bytes)
        if self._length is None or self._encoding != "identity":
            return self._limits.bytes
        return self._length

    @property
    def is_small(self) -> bool:
        return 0 < self.needed <= LARGE

    def unpack(self) -> None:
        """Undo its Content-Encoding, and find out what parsing can take; raise Refused."""
        size = self.size
        if size <= _TINY and self._encoding == "identity":
            self.needed = LARGE
            return
        values, pieces = _Values(self._limits.values_bytes), []
        for piece in _unpacked(self._raw(), self._encoding, size):
            values.add(piece)
            pieces.append(piece)
        self._parts, self._encoding = pieces, "identity"
        unpacked = self._raw()
        # A character of a text takes up to four bytes, if not all are ASCII.
        is_wide = not unpacked.isascii() or b"\\u" in unpacked
        self.needed = values.bytes + size * (4 if is_wide else 1)

    def parsed(self, schema: Schema) -> JSON:
        """Return what it says, once it is unpacked, or raise InvalidInput."""
        raw, self._parts = self._raw(), []
        try:
            found = _fields(raw) if self._form else _decoded(raw)
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
                while not self.is_complete and self.received_bytes <= bytes_max:
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
        self.is_complete = not message.get("more_body", False)

    def _raw(self) -> bytes:
        if len(self._parts) != 1:
            self._parts = [b"".join(self._parts)]
        return self._parts[0]

    def _check_size(self, size: int) -> None:
        if size > self._limits.bytes:
            raise _too_large(self._limits.bytes)


def _fields(raw: bytes) -> JSON:
    if raw.count(b"&") >= _FIELDS_MAX:
        raise InvalidInput(f"the form has too many fields. max=`{_FIELDS_MAX}`")
    try:
        return dict(parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict"))
    except ValueError:
        raise InvalidInput("the form is not UTF-8, percent-encoded") from None


class _Values:
    """Counts how much memory the values of JSON take."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._is_in_text = False
        self._rest = b""

    def add(self, data: bytes) -> None:
        """Count the values of more bytes, or raise Refused."""
        for at in range(0, len(data), LARGE):  # not all at once: other threads would wait
            piece = self._rest + data[at : at + LARGE]
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
            self._rest = b"\\" if piece.endswith(b"\\") else b""  # the half of an escape
            parts = piece.split(b'"')
            marks = b"".join(parts[self._is_in_text :: 2]).translate(None, _NO_MARKS)
            self._is_in_text ^= len(parts) % 2 == 0
            count = len(marks) + marks.count(b"[") + marks.count(b"{")
            self.bytes += count * _VALUE_BYTES + (len(parts) - 1) * _VALUE_BYTES // 2
            if self.bytes > self._bytes_max:
                why = "it has too many values. Send fewer at once, or long texts instead"
                raise Refused(413, "InvalidInput", f"the body would take too much memory: {why}")


def _decoded(raw: bytes) -> JSON:
    if len(raw) <= LARGE or not gc.isenabled():
        return codec.decode_foreign(raw)
    # The garbage collector would take five times as long as the parser, while all threads wait.
    gc.disable()
    try:
        return codec.decode_foreign(raw)
    finally:
        gc.enable()


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


def _unpacked(raw: bytes, encoding: str, size: int) -> Iterator[bytes]:
    """Undo the Content-Encoding of a body, without ever holding more than it said."""
    if encoding == "identity":
        yield raw
        return
    try:
        if encoding == "zstd":
            yield zstandard.ZstdDecompressor().decompress(
                raw, max_output_size=size, allow_extra_data=False
            )
            return
        reader, at, left = zlib.decompressobj(wbits=31), 0, size
        while not reader.eof and left >= 0:
            packed = reader.unconsumed_tail
            if not packed:
                packed, at = raw[at : at + _SMALL], at + _SMALL
            piece = reader.decompress(packed, LARGE)
            if not packed and not piece:
                break
            left -= len(piece)
            yield piece
        if reader.eof and not left and not reader.unused_data and at >= len(raw):
            return
    except (zlib.error, zstandard.ZstdError):
        pass
    raise _no_unpacking()


_QUEUE_S_MAX = 30.0


def busy(what: str) -> Unavailable:
    return Unavailable(f"the server is busy: {what}. Try again later", outcome_known=True)


class Memory:
    """Bytes that are reserved and given back: first come, first served."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def reserved(self, count: int) -> AsyncIterator[Callable[[int], None]]:
        """Reserve bytes, at most `bytes_max`, or raise Unavailable after a while.

        The function that it yields gives back all but so many of them.
        """
        left = count = min(count, self._bytes_max)
        await self._take(count)

        def keep(count: int) -> None:
            nonlocal left
            given_back = max(left - count, 0)
            left -= given_back
            self._used -= given_back
            self._grant()

        try:
            yield keep
        finally:
            keep(0)

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
