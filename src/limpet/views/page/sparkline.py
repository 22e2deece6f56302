"""A row of numbers as a small picture."""

from collections.abc import Sequence
from html import escape
from itertools import pairwise

_POINTS_MAX = 120
_WIDTH, _HEIGHT, _MARGIN = 160, 32, 3


def sparkline(values: Sequence[float], text: str) -> str:
    """Draw values from left to right, as an area from 0 up; `text` says what they are.

    Of many values, the largest of each group is drawn: no peak is lost.
    """
    points = _places(grouped(values, _POINTS_MAX))
    line = " ".join(f"{x:g},{y:g}" for x, y in points)
    area = f"{_MARGIN},{_HEIGHT} {line} {points[-1][0]:g},{_HEIGHT}"
    x, y = points[-1]
    return _svg(
        f'<polygon class="area" points="{area}"/><polyline class="curve" points="{line}"/>'
        f'<circle class="last" cx="{x:g}" cy="{y:g}" r="2.5"/>',
        text,
    )


def bars(values: Sequence[float], text: str) -> str:
    """Draw values as bars, like `sparkline`."""
    points = _places(grouped(values, _POINTS_MAX // 3))
    drawn = "".join(
        f'<line class="column" x1="{x:g}" x2="{x:g}" y1="{_HEIGHT}" y2="{y:g}"/>' for x, y in points
    )
    return _svg(drawn, text)


def _svg(drawn: str, text: str) -> str:
    return (
        f'<svg class="spark" width="{_WIDTH}" height="{_HEIGHT}" role="img"'
        f' viewBox="0 0 {_WIDTH} {_HEIGHT}" aria-label="{escape(text)}">{drawn}</svg>'
    )


def grouped(values: Sequence[float], count_max: int) -> list[float]:
    """Return at most so many values: the largest of each group of neighbours."""
    count = min(count_max, len(values))
    bounds = [len(values) * number // count for number in range(count + 1)]
    return [max(values[start:end]) for start, end in pairwise(bounds)]


def _places(values: Sequence[float]) -> list[tuple[float, float]]:
    largest = max([*values, 0]) or 1
    step = (_WIDTH - 2 * _MARGIN) / max(1, len(values) - 1)
    high = _HEIGHT - 2 * _MARGIN
    return [
        (round(_MARGIN + at * step, 1), round(_MARGIN + high * (1 - value / largest), 1))
        for at, value in enumerate(values)
    ]
