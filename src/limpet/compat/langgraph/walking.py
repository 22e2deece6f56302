"""Reading one state after the other, of which each holds nearly all of the one before."""

from bisect import bisect_right
from itertools import islice
from typing import Any, NamedTuple

import orjson

from limpet.compat.langgraph import records
from limpet.compat.langgraph.records import Codec, Warm
from limpet.compat.langgraph.thread_messages import Run
from limpet.model import SnapshotInfo

_END = ord("]")
_TRIES_MAX = 8


class _Seen(NamedTuple):
    """The longest run of messages of a state: its channel, where it begins, and where each ends."""

    name: str
    head: bytes
    run: Run
    joined: bytes
    ends: list[int]


class Walker:
    """Reads checkpoints. Messages that the last one had, too, are not read again."""

    def __init__(self, codec_: Codec) -> None:
        self._codec = codec_
        self._seen: _Seen | None = None

    def checkpoint(self, info: SnapshotInfo, body: bytes) -> dict[str, Any]:
        """Return the checkpoint that a snapshot is."""
        found = self._again(info, body)
        if found is not None:
            return found
        warm = records.taken_apart(self._codec, info, body)
        if warm is None:
            return records.checkpoint_of(self._codec, info, body)
        self._seen = _longest(warm, body)
        return records.made_again(self._codec, info, warm)

    def _again(self, info: SnapshotInfo, body: bytes) -> dict[str, Any] | None:
        """Return a checkpoint whose messages are the first of those seen; None if it is none."""
        seen = self._seen
        if seen is None or records.FACADE not in info.metadata or not body.startswith(seen.head):
            return None
        start = len(seen.head)
        count = _same(body, start, seen)
        if not count:
            return None
        end = start + seen.ends[count - 1]
        checkpoint = records.checkpoint_of(self._codec, info, seen.head + body[end:])
        checkpoint["channel_values"][seen.name] = seen.run.make(count)
        return checkpoint


def _same(body: bytes, start: int, seen: _Seen) -> int:
    """Return how many of the messages stand in a body from `start` on, and are all of its list."""
    ends, joined = seen.ends, memoryview(seen.joined)  # whose slices copy nothing
    # Where the list of the body could end: to look at one byte is cheap, and few will do.
    last = bisect_right(ends, len(body) - start - 1)
    places = (count for count in range(last, 0, -1) if body[start + ends[count - 1]] == _END)
    for count in islice(places, _TRIES_MAX):
        if body.startswith(joined[: ends[count - 1]], start):
            return count
    return 0


def _longest(warm: Warm, body: bytes) -> _Seen | None:
    runs = {name: each for name, each in warm.channels.items() if isinstance(each, Run)}
    if not runs:
        return None
    name = max(runs, key=lambda each: runs[each].size())
    run = runs[name]
    at = len(b'{"channel_values":{')
    for other, channel in warm.channels.items():
        at += len(orjson.dumps(other)) + 1
        if other == name:
            break
        at += (len(channel) if isinstance(channel, bytes) else channel.size() + 2) + 1
    head = body[: at + 1]
    joined = run.joined()
    is_there = head.endswith(b":[") and body.startswith(joined, at + 1)
    return _Seen(name, head, run, joined, run.ends()) if is_there and run.plain else None
