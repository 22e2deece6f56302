"""Draw the plots: `python -m benchmarks.deltas.plots deltas.json folder`.

Runs in an environment of its own that has matplotlib, and needs nothing else.
"""

import io
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib import pyplot  # type: ignore[import-not-found]
from matplotlib.ticker import (  # type: ignore[import-not-found]
    FuncFormatter,
    LogLocator,
    NullFormatter,
)
from PIL import Image

INK, GRID, OURS, FLOOR = "#22272e", "#d9dee3", "#d1495b", "#22272e"
# One hue for each family, so that the variants of a peer are seen to belong together.
LOOKS = {
    "save": (OURS, "-"),
    "save-off": (OURS, "-."),
    "append": (OURS, "--"),
    "floor": (FLOOR, ":"),
    "json": ("#8c8c8c", "-"),
    "orjson": ("#8c8c8c", "--"),
    "langgraph-sqlite": ("#1d6996", "-"),
    "langgraph-sqlite-dicts": ("#1d6996", "--"),
    "langgraph-sqlite-delta": ("#1d6996", ":"),
    "langgraph-postgres": ("#38a6a5", "-"),
    "langgraph-postgres-delta": ("#38a6a5", ":"),
    "strands": ("#e17c05", "-"),
    "openai": ("#73af48", "-"),
    "adk": ("#94346e", "-"),
}
WIDTH, HEIGHT, DPI = 9.2, 4.4, 110
COLORS = 48  # enough for lines and text, and small files


def _axes(title: str) -> tuple[Any, Any]:
    pyplot.rcParams.update({"font.size": 9, "text.color": INK, "axes.labelcolor": INK})
    figure, axes = pyplot.subplots(figsize=(WIDTH, HEIGHT), dpi=DPI, layout="constrained")
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GRID)
    axes.tick_params(colors=INK, length=0, which="both")
    axes.set_axisbelow(True)
    return figure, axes


def _number(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}" if value >= 1 else f"{value:g} {unit}"


Lines = dict[str, tuple[str, list[int], list[float]]]


def _lines(title: str, unit: str, lines: Lines, ticks: tuple[int, ...]) -> Any:
    """Draw a line for each peer on a logarithmic scale, named in the order in which they end."""
    figure, axes = _axes(title)
    for key in sorted(lines, key=lambda each: -lines[each][2][-1]):
        name, turns, values = lines[key]
        color, style = LOOKS.get(key, (INK, "-"))
        bold = key in ("save", "append")
        label = f"{name.replace('`', '')}: {_last(values[-1], unit)}"
        width, order = (2.6, 3) if bold else (1.4, 2)
        axes.plot(turns, values, style, color=color, linewidth=width, label=label, zorder=order)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=ticks, numticks=20))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _number(value, unit)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    axes.set_xlabel("turns")
    axes.set_xlim(left=0)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=8)
    return figure


def _last(value: float, unit: str) -> str:
    return f"{value:.3g} {unit}" if value < 100 else f"{value:.0f} {unit}"


def draw_disk(raw: dict[str, Any]) -> Any:
    """Return the plot of what is on the disk."""
    lines = {
        key: (each["title"], each["turns"], [size / 1e6 for size in each["disk_bytes"]])
        for key, each in raw["peers"].items()
        if "missing" not in each
    }
    return _lines("On the disk: a chat of 2 KB a turn, every turn kept", "MB", lines, (1,))


def draw_saves(raw: dict[str, Any]) -> Any:
    """Return the plot of what a save takes."""
    lines = {
        key: (each["title"], each["turns"], [median(at) for at in zip(*each["save_wall_ms"])])  # noqa: B905
        for key, each in raw["peers"].items()
        if "missing" not in each
    }
    return _lines("Time of one save (wall), the same chat", "ms", lines, (1, 2, 5))


def draw_traces(raw: dict[str, Any]) -> Any:
    """Return the plot of the files of all traces, and of what they may be."""
    figure, axes = _axes("File against the ideal, by kind of trace")
    traces = raw["traces"][::-1]
    names = [each["name"].replace("_", " ") for each in traces]
    files = [median(each["file_bytes"]) / each["ideal_bytes"] for each in traces]
    allowed = [each["allowed_bytes"] / each["ideal_bytes"] for each in traces]
    bars = axes.barh(names, files, color=OURS, height=0.56, label="Limpet's file")
    axes.bar_label(bars, [f"{value:.2f}" for value in files], padding=4, fontsize=8)
    rows = range(len(names))
    axes.scatter(
        allowed, rows, marker="|", s=320, color=INK, linewidths=1.6, label="the goal", zorder=3
    )
    axes.axvline(1, color=INK, linewidth=0.8, linestyle=":", label="ideal")
    axes.grid(axis="x", color=GRID, linewidth=0.7)
    axes.set_xlabel("times the ideal")
    axes.set_xlim(left=0)
    axes.legend(
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=3,
        frameon=False,
        fontsize=8,
        markerscale=0.5,
    )
    return figure


def _save(figure: Any, path: Path) -> None:
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    pyplot.close(figure)
    Image.open(drawn).convert("RGB").quantize(COLORS).save(path, optimize=True)


def main() -> None:
    """Draw all plots of a file of raw results into a folder."""
    raw = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    folder = Path(sys.argv[2])
    plots = {
        "peers": (("disk", draw_disk), ("save", draw_saves)),
        "traces": (("traces", draw_traces),),
    }
    for needed, drawn in plots.items():
        for name, draw in drawn if needed in raw else ():
            figure = draw(raw)
            _save(figure, folder / f"deltas-{name}.png")


if __name__ == "__main__":
    main()
