"""Many watchers of one server: what they cost while nothing happens, and how soon all are told."""

import asyncio
from pathlib import Path
from time import perf_counter

import orjson

from benchmarks.http.load import request


async def _watch(port: int) -> asyncio.StreamReader:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request("GET", "/v1/scope/watch?session_id=watched", port))
    await reader.readuntil(b"event: change")
    reader._writer = writer  # type: ignore[attr-defined]  # kept open
    return reader


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used, all threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(each for each in lines if each.startswith("VmRSS")).split()[1]) / 1024


def watchers(port: int, pid: int, count: int, seconds: float, rounds: int) -> tuple[float, float]:
    """Return the idle cost as a share of a core, and the seconds until the last one was told."""
    return asyncio.run(_watchers(port, pid, count, seconds, rounds))


async def _watchers(
    port: int, pid: int, count: int, seconds: float, rounds: int
) -> tuple[float, float]:
    await _save(port, 0)
    readers = [await _watch(port) for _ in range(count)]
    await asyncio.sleep(1)
    before, start = cpu_s(pid), perf_counter()
    await asyncio.sleep(seconds)
    idle = (cpu_s(pid) - before) / (perf_counter() - start)
    slowest = []
    for number in range(1, rounds + 1):
        waiting = [asyncio.create_task(each.readuntil(b"event: change")) for each in readers]
        await asyncio.sleep(0.2)
        await _save(port, number)
        saved = perf_counter()
        await asyncio.gather(*waiting)
        slowest.append(perf_counter() - saved)
    return idle, sorted(slowest)[len(slowest) // 2]


async def _save(port: int, number: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = orjson.dumps({"state": {"n": number}})
    writer.write(request("POST", "/v1/scope/save?session_id=watched", port, body))
    await reader.readuntil(b"\r\n\r\n")
    writer.close()
