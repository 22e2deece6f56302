"""Real text: documentation, paragraph by paragraph, without repetitions.

Generated text does not compress and compare like real text. `prose` is what comes with Python (the
text of `help()` and the docstrings of the standard library), so that the same Python gives the same
text. `passages` needs more than that, and adds comments and the installed packages.
"""

import re
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from inspect import cleandoc
from pathlib import Path
from pydoc_data.topics import topics
from random import Random

PARAGRAPH_CHARS_MIN = 60  # shorter ones are headings and signatures
# What comes first in a file, a class or a function: any other pair of quotes may enclose code.
_DOCSTRING = re.compile(r'(?:\A|:[ \t]*\n)\s*[rR]?"""(.+?)"""', re.DOTALL)
_COMMENT = re.compile(r"(?:^[ \t]*# .*\n){2,}", re.MULTILINE)
_MARK = re.compile(r"^[ \t]*# ", re.MULTILINE)
_LEFT_OUT = {"__pycache__", "site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3"}
_LEFT_OUT |= {"encodings", "pydoc_data"}  # tables, and text that is read elsewhere


@cache
def prose() -> str:
    """Return Python's documentation (1.5 MB or more), in an order that never changes."""
    return _joined(_manual())


@cache
def passages(chars: int) -> tuple[str, ...]:
    """Return passages of one length (5 MB or more in all), none twice, well mixed.

    Mixed, so that the beginning compresses no better and no worse than the end.
    """
    text = _joined([*_manual(), *_comments(), *_packages()])
    found = [text[at : at + chars] for at in range(0, len(text) - chars, chars)]
    Random(5).shuffle(found)
    return tuple(found)


def _joined(texts: Iterable[str]) -> str:
    parts: dict[str, None] = {}
    for text in texts:
        paragraphs = (each.strip() for each in text.split("\n\n"))
        parts.update(dict.fromkeys(p for p in paragraphs if len(p) >= PARAGRAPH_CHARS_MIN))
    return "\n\n".join(parts)


def _manual() -> Iterator[str]:
    for topic in sorted(topics):
        yield topics[topic]
    for _, source in sources():
        yield from map(cleandoc, _DOCSTRING.findall(source))


def _comments() -> Iterator[str]:
    for _, source in sources():
        yield from _comments_of(source)


def _comments_of(source: str) -> Iterator[str]:
    for comment in _COMMENT.findall(source):
        yield _MARK.sub("", comment)


def _packages() -> Iterator[str]:
    root = Path(sysconfig.get_path("purelib"))
    for suffix in ("*.py", "*.md", "*.rst", "METADATA"):
        for path in sorted(root.rglob(suffix)):
            text = path.read_text(encoding="utf-8", errors="replace")
            if suffix == "*.py":
                yield from map(cleandoc, _DOCSTRING.findall(text))
                yield from _comments_of(text)
            else:
                yield text


@cache
def sources() -> tuple[tuple[str, str], ...]:
    """Return the modules of the standard library: their paths and their text, sorted by path."""
    root = Path(sysconfig.get_path("stdlib"))
    found = []
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root)
        if not any(part in _LEFT_OUT or part.startswith("config-") for part in inside.parts):
            found.append((inside.as_posix(), path.read_text(encoding="utf-8", errors="replace")))
    return tuple(found)


def passage(start: int, chars: int) -> str:
    """Return so many characters of the prose from a position in it."""
    found = prose()[start : start + chars]
    if len(found) < chars:
        raise AssertionError(f"the documentation of this Python is too short: {len(prose()):,}")
    return found
