"""Writes docs/images/: the output of verbs as SVG. Run by `make docs`."""

import io
import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from html import escape, unescape
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from rich.cells import cell_len
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from docs._make import garden
from limpet.cli import _app, _terminal
from limpet.core.times import to_us
from limpet.protocol import Stamp

FOLDER = Path(__file__).resolve().parent.parent / "images"
COLUMNS = 100
_PROMPT = "$ "
_CELL_PX = 12.04  # a character of 20 px in common fixed-width fonts; librsvg knows no textLength
_ROW_PX = 24.4  # what Rich gives to a row of such characters

# Dark like most terminals, with soft colours that fit a light and a dark page.
_COLOURS = TerminalTheme(
    (22, 27, 34),
    (214, 221, 230),
    [
        *((72, 79, 88), (255, 123, 114), (99, 201, 122), (227, 179, 65)),
        *((121, 192, 255), (210, 168, 255), (86, 212, 221), (214, 221, 230)),
    ],
    [
        *((110, 118, 129), (255, 161, 152), (126, 231, 135), (242, 204, 96)),
        *((165, 214, 255), (226, 197, 255), (179, 240, 255), (255, 255, 255)),
    ],
)
_FRAME_COLOUR = "#30363d"
_DOTS = ("#ff5f57", "#febc2e", "#28c840")
_TEXT = re.compile(
    r'<text (?P<style>class="[^"]+") x="(?P<x>[\d.]+)" y="(?P<y>[\d.]+)"[^>]*>'
    r"(?P<text>[^<]*)</text>"
)
_PAD_PX = 24
_BAR_PX = 44  # the bar of the window, with its dots
# No font is fetched: a page that shows the picture stays as private as it was.
_FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">
<title>{title}</title>
<style>
text {{{{ font: 20px {fonts} }}}}
{{styles}}
</style>
<rect x="1" y="1" width="{inner:g}" height="{tall:g}" rx="10" fill="{ground}" stroke="{frame}"/>
{dots}
<g transform="translate({pad}, {bar})">
{{backgrounds}}{{matrix}}
</g>
</svg>
"""


class Picture(NamedTuple):
    """A command, and a description of its picture."""

    name: str
    command: tuple[str, ...]
    about: str

    @property
    def verb(self) -> str:
        """The verb in the picture."""
        return self.command[0]


PICTURES = (
    Picture("ls", ("ls",), "The sessions of a store: title, last message, status, age and size"),
    Picture(
        "log",
        ("log", garden.SESSION, "--graph", "-m"),
        "A session as a graph: a failed step, a restore, and two forks",
    ),
    Picture(
        "show",
        ("show", "019df41c"),
        "A snapshot as a chat: messages, tool calls with their results, and an error",
    ),
    Picture(
        "diff",
        ("diff", f"{garden.SESSION}:shade@"),
        "The changes of one step: values, words of a text, and new messages",
    ),
)


def draw_all() -> dict[str, str]:
    """Return every picture by its file name; the result is reproducible."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/garden.db"
        garden.build(url)
        return {f"{each.name}.svg": _draw(each, url) for each in PICTURES}


def text_of(svg: str) -> str:
    """Return the text of a picture, a line for each row."""
    rows: dict[int, str] = {}
    for _, x, y, text in _TEXT.findall(svg):
        row = round(float(y) / _ROW_PX)
        rows[row] = rows.get(row, "").ljust(round(float(x) / _CELL_PX)) + unescape(text)
    lines = (rows.get(row, "") for row in range(1, max(rows) + 1))
    return "\n".join(lines)


def _draw(picture: Picture, url: str) -> str:
    with _recorded() as console:
        prompt = Text.assemble((_PROMPT, "good"), ("limpet ", "title"), " ".join(picture.command))
        console.print(prompt)
        console.print()
        _app.run([*picture.command, "--url", url])
    rows = len(console.export_text(clear=False).splitlines())
    svg = console.export_svg(
        theme=_COLOURS,
        code_format=_frame(picture.about, rows),
        font_aspect_ratio=_CELL_PX / 20,
        unique_id=picture.name,
    )
    # Without clip paths and line ends, and with one text per line, so that diffs are readable.
    svg = re.sub(r' clip-path="[^"]*"|<text [^>]*>\n</text>', "", svg)
    return _TEXT.sub(_phrases, svg).replace("</text><", "</text>\n<")


def _phrases(found: re.Match[str]) -> str:
    """Give each phrase of a text its own position: librsvg drops the spaces around and in it."""
    style, x, y = found["style"], float(found["x"]), found["y"]
    text = unescape(found["text"]).replace("\xa0", " ")
    return "".join(
        f'<text {style} x="{x + _CELL_PX * cell_len(text[: phrase.start()]):g}" y="{y}"'
        f' textLength="{_CELL_PX * cell_len(phrase[0]):g}">{escape(phrase[0])}</text>'
        for phrase in re.finditer(r"\S+(?: \S+)*", text)
    )


def _frame(title: str, rows: int) -> str:
    """Return the window around the rows, a template for Rich."""
    width = COLUMNS * _CELL_PX + 2 * _PAD_PX
    height = rows * _ROW_PX + _BAR_PX + _PAD_PX
    dots = (
        f'<circle cx="{_PAD_PX + 7 + 22 * at}" cy="24" r="7" fill="{colour}"/>'
        for at, colour in enumerate(_DOTS)
    )
    return _SVG.format(
        width=width,
        height=height,
        inner=width - 2,
        tall=height - 2,
        title=title,
        fonts=_FONTS,
        ground=_COLOURS.background_color.hex,
        frame=_FRAME_COLOUR,
        dots="\n".join(dots),
        pad=_PAD_PX,
        bar=_BAR_PX,
    )


@contextmanager
def _recorded() -> Iterator[Console]:
    """Record the output of verbs, at a fixed time."""
    moment = Stamp(to_us("now", garden.NOW), "", 0)
    console = Console(
        theme=_terminal.THEME,
        file=io.StringIO(),
        width=COLUMNS,
        height=100,  # with both, the environment is ignored
        record=True,
        force_terminal=True,
        color_system="truecolor",
        no_color=False,
        markup=False,
        highlight=False,
        emoji=False,
    )
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(io.StringIO()))  # not a terminal: no pager
        stack.enter_context(patch.object(_terminal, "make_console", lambda **_: console))
        stack.enter_context(patch.object(_terminal, "draw", lambda: moment))
        yield console


def main() -> None:
    """Write every picture."""
    FOLDER.mkdir(exist_ok=True)
    for name, svg in draw_all().items():
        (FOLDER / name).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
