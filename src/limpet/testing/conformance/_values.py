"""Values to test with: JSON of every kind, and ids that are awkward for file systems."""

import uuid
from collections import OrderedDict
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from typing import Any, Final

from hypothesis import strategies as st

from limpet import JSON


def json_values() -> st.SearchStrategy[JSON]:
    """Return a strategy for any JSON value: wide integers, NUL, astral characters, any nesting."""
    texts = st.text(st.characters(codec="utf-8"), max_size=20)
    edge = st.sampled_from([2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**40])
    numbers = st.integers() | edge | st.floats(allow_nan=False, allow_infinity=False)
    odd = st.sampled_from([0.0, -0.0, 1.0, 1e16, 5e-324, "\0", "\U0001f980", "", "null", "NaN"])
    leaves = st.none() | st.booleans() | numbers | texts | odd
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=5) | st.dictionaries(texts, inner, min_size=0, max_size=5)
        ),
        max_leaves=20,
    )


EXACT: Final[tuple[JSON, ...]] = (
    {"z": 1, "a": 2, "m": {"y": 1, "b": 2}},
    [0, -1, 2**63, 2**64, 2**64 + 1, -(2**64), 10**100, 10**4299],
    [1, 1.0, True, 0, 0.0, -0.0, False, None],
    [1e22, 1e-7, 1.7976931348623157e308, 5e-324, 0.1, 1 / 3, 123456789.123456789],
    ["\0", "a\0b", "\x7f", "\u2028", "\ufeff", "\uffff", "\U0001f980", "\U0010ffff"],
    ["é", "e\u0301", '"', "\\", "</script>", "\n\r\t", " ", ""],
    [[], {}, [[]], [{}], {"": {}}, {"a": []}],
    {"": 0, "\0": 1, "é": 2, '"': 3, "\U0001f980": 4, "a b": 5, "__proto__": 6},
    [float(2**53), 2**53, 2**53 + 1, -(2**53) - 1],
    ["NaN", "Infinity", "null", "0x10", {"$ref": "#"}, {"$type": "x"}],
)
"""Values that careless storage changes."""


class _Color(Enum):
    RED = "red"


NOT_JSON: Final[dict[str, tuple[Any, str]]] = {
    "nan": ({"a": [1, float("nan")]}, "/a/1"),
    "inf": ({"a/b~c": {"d": float("inf")}}, "/a~1b~0c/d"),
    "minus inf": ([[], [float("-inf")]], "/1/0"),
    "nan alone": (float("nan"), ""),
    "nan next to null": ({"x": None, "y": float("nan")}, "/y"),
    "nan in a tuple": ({"t": (1, float("nan"))}, "/t/1"),
    "nan next to a wide integer": ([2**70, float("nan")], "/1"),
    "lone surrogate": ({"t": ["ok", "\ud800"]}, "/t/1"),
    "lone surrogate in a key": ({"k": {"\udc00": 1}}, "/k/"),
    "bytes": ({"b": b"x"}, "/b"),
    "bytearray": ([bytearray(b"x")], "/0"),
    "memoryview": ({"m": memoryview(b"x")}, "/m"),
    "set": ({"s": {1}}, "/s"),
    "integer key": ({"m": {1: "x"}}, "/m"),
    "none key": ({"m": [{None: "x"}]}, "/m/0"),
    "boolean key": ({True: 1}, ""),
    "float key": ({"deep": {"er": {1.5: 1}}}, "/deep/er"),
    "bytes key": ({"m": {b"k": 1}}, "/m"),
    "datetime": ({"at": datetime(2000, 1, 1, tzinfo=UTC)}, "/at"),
    "uuid": ({"id": uuid.UUID(int=0)}, "/id"),
    "decimal": ({"d": Decimal("1.5")}, "/d"),
    "complex": ({"c": 1j}, "/c"),
    "enum": ({"e": _Color.RED}, "/e"),
    "path": ({"p": PurePosixPath("x")}, "/p"),
    "object": ({"o": object()}, "/o"),
    "class": ({"o": dict}, "/o"),
    "generator": ({"g": (each for each in [1])}, "/g"),
    "range": ({"r": range(3)}, "/r"),
    "ellipsis": ([...], "/0"),
    "endless integer": ({"i": 10**4300}, "/i"),
    "inside an ordered dict": (OrderedDict(a=OrderedDict(b=float("nan"))), "/a/b"),
}
"""Values that are not JSON, and the JSON Pointer of what is wrong in them."""

STRANGE_IDS: Final[tuple[str, ...]] = (
    *("a", "A", "aa", "a1", "a.", ".a", " a", "a ", "a/b", "a\\b", "a:b", "a~b", "a+b", "a%b"),
    *(".", "..", "../a", "../../a", "/", "/a", "//", "a/", "a/../a", "a/./b", "~", "~a", "-", "_"),
    *("a_", "%", "%41", "+41", "+61", "a%2Fb", "a+2fb", "*", "?", "[a]", "{a}", "$a", "`a`", "|"),
    *("con", "CON", "nul", "a\nb", "\n", "\t", "\x1b", "\x7f", "'", "''", '"', "a';--", "#", "&"),
    *("é", "e\u0301", "\u200b", "\u202e", "ﬁ", "ß", "SS", "\u0131", "I", "\ufeff", "\uffff"),
    *("\U0001f980", "snapshot_a.json", "manifest.json", ".limpet", "latest", "main", "null"),
    *("0", "00", "x" * 512),
    *("x" * 511, "é" * 512, "\U0001f980" * 512, "X" * 512, "a" * 200, "a" * 201, "é" * 100),
)
"""Ids that must stay apart and stay inside, also on a file system that ignores case."""

# The last code point, and the one before the surrogates, have no ordinary successor: an engine
# that turns a prefix into a range must know where such a range ends.
AWKWARD_PREFIXES: Final = (
    "a%",
    "a_",
    "a[b]*",
    "a?",
    "a\U0010ffff",
    "a\ud7ff",
    "\U0010ffff",
    "a'",
    "a\\",
)
AWKWARD_SESSIONS: Final = (
    *("a", "ab", "abc", "axb", "A%", "b", "a\ue000", "\U0010fffe"),
    *(prefix + end for prefix in AWKWARD_PREFIXES for end in ("", "x", "\U0010ffff")),
)
"""Sessions inside and outside of these, though an engine that takes them for patterns is misled."""
