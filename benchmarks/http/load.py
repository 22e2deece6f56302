"""Clients that send prepared requests as fast as they are answered, over sockets of their own."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from statistics import quantiles
from time import perf_counter


@dataclass(frozen=True, slots=True)
class Load:
    """What a number of clients got done."""

    seconds: float
    latencies: Sequence[float]

    @property
    def rate(self) -> float:
        """Requests per second."""
        return len(self.latencies) / self.seconds

    @property
    def p50(self) -> float:
        return quantiles(self.latencies, n=100)[49]

    @property
    def p99(self) -> float:
        return quantiles(self.latencies, n=100)[98]


def request(method: str, target: str, port: int, body: bytes = b"") -> bytes:
    """Return the bytes of one request."""
    head = f"{method} {target} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
    if body:
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def run(port: int, clients: Sequence[Sequence[bytes]], *, seconds: float) -> Load:
    """Let each client send its requests, one after the other and over again."""
    return asyncio.run(_run(port, clients, seconds))


async def _run(port: int, clients: Sequence[Sequence[bytes]], seconds: float) -> Load:
    latencies: list[float] = []
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in clients]
    start = perf_counter()
    until = start + seconds
    async with asyncio.TaskGroup() as group:
        for (reader, writer), sent in zip(opened, clients, strict=True):
            group.create_task(_client(reader, writer, sent, until, latencies))
    taken = perf_counter() - start
    for _, writer in opened:
        writer.close()
    return Load(taken, latencies)


async def _client(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    requests: Sequence[bytes],
    until: float,
    latencies: list[float],
) -> None:
    for sent in cycle(requests):
        if (begun := perf_counter()) >= until:
            return
        writer.write(sent)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode("latin-1"))
        lowered = head.lower()
        at = lowered.index(b"content-length:") + 15
        await reader.readexactly(int(lowered[at : lowered.index(b"\r\n", at)]))
        latencies.append(perf_counter() - begun)
