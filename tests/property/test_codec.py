"""Exact JSON for any JSON: what `encode` takes comes back as it was, or is refused by its path."""

import copy
import json
import random
import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limpet.core.codec import decode, encode
from limpet.errors import Corrupt, InvalidInput
from tests.effort import times

moderate = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

# Much that is easily lost, often: NUL, DEL, ÿ, quotes, the edges of planes, and letters that are
# type codes of marshal.
texts = st.text(max_size=20) | st.text(alphabet='\0\x7fÿg"\\/~é\u2028\uffff😀\U0010ffff')
integers = (
    st.integers(-300, 300)
    | st.integers(-(2**65), 2**65)
    | st.integers(-(10**60), 10**60)
    | st.sampled_from([2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1])
)
floats = st.floats(allow_nan=False, allow_infinity=False)
leaves = st.none() | st.booleans() | integers | floats | texts
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(texts, inner, max_size=8),
    max_leaves=25,
)

nonfinite = (
    st.integers(0, 2**53 - 1)
    .map(lambda bits: ((bits >> 52) << 63) | (0x7FF << 52) | (bits & (2**52 - 1)))
    .map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0])
)
lone_surrogates = st.builds(
    "{}{}{}".format, texts, st.characters(categories=["Cs"]), st.text("ab", max_size=3)
)
not_json: st.SearchStrategy[Any] = (
    nonfinite
    | lone_surrogates
    | st.binary(max_size=20)
    | st.builds(bytearray, st.binary(max_size=20))
    | st.binary(max_size=20).map(lambda held: memoryview(held))
    | st.uuids()
    | st.datetimes()
    | st.decimals()
    | st.complex_numbers()
    | st.sets(st.integers())
    | st.just(10**4300)
    | st.dictionaries(st.integers() | st.none() | st.binary(), st.none(), min_size=1)
)


def poisoned(value: Any, poison: Any, chance: random.Random) -> tuple[Any, str]:
    """Return a copy of `value` with `poison` somewhere in it, and the pointer to it."""
    if isinstance(value, list):
        at = chance.randrange(len(value) + 1)
        if at < len(value) and chance.random() < 0.7:
            inner, path = poisoned(value[at], poison, chance)
            return [*value[:at], inner, *value[at + 1 :]], f"/{at}{path}"
        return [*value[:at], poison, *value[at:]], f"/{at}"
    if isinstance(value, dict):
        pairs = list(value.items())
        at = chance.randrange(len(pairs) + 1)
        if at < len(pairs) and chance.random() < 0.7:
            key = pairs[at][0]
            inner, path = poisoned(pairs[at][1], poison, chance)
        else:
            key, (inner, path) = "poi/s~on", (poison, "")
            pairs = [pair for pair in pairs if pair[0] != key]
        pairs[at : at + 1] = [(key, inner)]
        pointer = key.replace("~", "~0").replace("/", "~1")
        return dict(pairs), f"/{pointer}{path}"
    return poison, ""


@moderate
@given(values)
def test_any_json_comes_back_as_it_was(value: Any) -> None:
    """`repr` tells 1, 1.0 and True apart, and -0.0, the kinds of containers and key order too."""
    before = repr(value)
    encoded = encode(value)
    assert repr(value) == before
    assert repr(decode(encoded)) == before
    assert repr(json.loads(encoded)) == before
    assert encode(decode(encoded)) == encoded


@moderate
@given(values)
def test_equal_states_have_equal_encodings(value: Any) -> None:
    """However its parts are shared."""
    assert encode(copy.deepcopy(value)) == encode(value)
    assert encode([value, value]) == encode([value, copy.deepcopy(value)])


@moderate
@given(values, values)
def test_different_states_have_different_encodings(one: Any, other: Any) -> None:
    assert (repr(one) == repr(other)) == (encode(one) == encode(other))


@settings(moderate, max_examples=times(60, full=150))
@given(values, not_json, st.randoms(use_true_random=False))
def test_what_is_not_json_is_refused_wherever_it_hides(
    value: Any, bad: Any, chance: random.Random
) -> None:
    state, path = poisoned(value, bad, chance)
    with pytest.raises(InvalidInput) as caught:
        encode(state)
    assert str(caught.value).endswith(f" path=`{path}`")


@moderate
@given(st.binary(max_size=40) | values.map(encode), st.sampled_from([b"", b" "]))
def test_any_bytes_are_read_or_corrupt(stored: bytes, mark: bytes) -> None:
    try:
        value = decode(mark + stored)
    except Corrupt:
        return
    assert repr(decode(encode(value))) == repr(value)
