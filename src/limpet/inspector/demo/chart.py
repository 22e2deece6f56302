"""A small picture made in code: a bar chart as PNG."""

import zlib
from collections.abc import Sequence

_PAPER, _BAR, _LAST, _LINE = range(4)
_PALETTE = bytes.fromhex("fbfaf7 2f6f62 e0913a d9d5cc")
_WIDTH, _HEIGHT, _MARGIN = 360, 180, 14


def bar_chart(values: Sequence[float]) -> bytes:
    """Return a PNG with a bar for each value; the last one is highlighted."""
    rows = [bytearray([_PAPER]) * _WIDTH for _ in range(_HEIGHT)]
    for line in range(5):
        at = _MARGIN + line * (_HEIGHT - 2 * _MARGIN) // 4
        rows[at][_MARGIN:-_MARGIN] = bytes([_LINE]) * (_WIDTH - 2 * _MARGIN)
    step = (_WIDTH - 2 * _MARGIN) // len(values)
    for index, value in enumerate(values):
        left = _MARGIN + index * step + step // 6
        top = _HEIGHT - _MARGIN - round((_HEIGHT - 2 * _MARGIN) * value / max(values))
        colour = _LAST if index == len(values) - 1 else _BAR
        for row in rows[top : _HEIGHT - _MARGIN]:
            row[left : left + step * 2 // 3] = bytes([colour]) * (step * 2 // 3)
    size = _WIDTH.to_bytes(4) + _HEIGHT.to_bytes(4)
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", size + bytes([8, 3, 0, 0, 0]))  # eight bits, with a palette
        + _chunk(b"PLTE", _PALETTE)
        + _chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows), 9))
        + _chunk(b"IEND", b"")
    )


def _chunk(name: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4) + name + data + zlib.crc32(name + data).to_bytes(4)
