"""The length of what JavaScript writes, compared with what JavaScript says."""

import json
import random
import struct
import subprocess
from pathlib import Path
from typing import Any

from limpet.compat.agentos.javascript import length_of
from tests.cases import for_each
from tests.interop.node import find_runtime

ASK = """
const values = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(values.map((value) => JSON.stringify(value).length)));
"""


@for_each(
    ("value", "written"),
    [
        (1.0, "1"),
        (-0.0, "0"),
        (0.5, "0.5"),
        (-1.25, "-1.25"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5e300, "1.5e+300"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (1.5e-7, "1.5e-7"),
        (5e-324, "5e-324"),
        (2**53 + 1, "9007199254740992"),
        (2**70, "1.1805916207174113e+21"),
        (10**400, "null"),
        ('\0\x1f\x7f\b\t\n\f\r"\\/', r"\u0000\u001f?\b\t\n\f\r\"\\/" + "''"),
        ("é", "'é'"),
        ("\U0001f600", "'??'"),
        ("\u2028", "'?'"),
        ({}, "{}"),
        ([], "[]"),
        ([None, True, False], "[null,true,false]"),
        ({"a": 1, "é": [{}, "x"]}, '{"a":1,"é":[{},"x"]}'),
    ],
)
def test_a_value_is_as_long_as_javascript_writes_it(value: Any, written: str) -> None:
    assert length_of(value) == len(written)


def test_numbers_and_texts_by_the_thousand_are_as_long_as_in_node() -> None:
    rng = random.Random(4)
    values: list[Any] = [
        number
        for number in (struct.unpack("d", rng.randbytes(8))[0] for _ in range(2_000))
        if abs(number) < float("inf")
    ]
    values += [rng.uniform(-1, 1) * 10 ** rng.randint(-10, 25) for _ in range(2_000)]
    values += [float(rng.randint(-(10**22), 10**22)) for _ in range(500)]
    values += [rng.randint(-(2**80), 2**80) for _ in range(500)]
    letters = [*map(chr, range(0x100)), "\u2028", "\ufffd", "\U0001f600"]
    values += [{"".join(rng.choices(letters, k=9)): [text]} for text in letters]
    done = subprocess.run(
        [find_runtime().node, "-e", ASK],
        input=json.dumps(values, ensure_ascii=False).encode(),
        capture_output=True,
        check=True,
        cwd=Path(__file__).parent,
    )
    lengths = json.loads(done.stdout)
    pairs = zip(values, lengths, strict=True)
    assert [value for value, length in pairs if length_of(value) != length] == []


def test_a_state_may_be_as_deep_as_the_store_takes_it() -> None:
    value: Any = 1
    for _ in range(5_000):
        value = [value]
    assert length_of(value) == 10_001
