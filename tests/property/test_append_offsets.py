"""Where lists end in an encoded state, and appending to it without its bytes."""

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from limpet.core import codec
from limpet.core.commits import appended
from limpet.core.deltas import delta
from limpet.core.deltas.delta import extended
from limpet.protocol import Append, AppendOffsets

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
KEYS = st.sampled_from(["", "messages", "a", 'odd "\\', "ü\n", "]", "}"]) | st.text(max_size=4)
STATES = st.dictionaries(KEYS, st.lists(VALUES, max_size=3) | VALUES, max_size=6)
ANYTHING = 10**9


def known(state: dict[str, Any]) -> tuple[bytes, AppendOffsets]:
    encoded, offsets = codec.encode_state(state)
    assert encoded == orjson.dumps(state)
    assert offsets is not None
    return encoded, offsets


@given(STATES)
def test_every_list_ends_where_it_is_said_to(state: dict[str, Any]) -> None:
    encoded, offsets = known(state)
    assert set(offsets) == set(state)
    for key, value in state.items():
        found = offsets[key]
        if not isinstance(value, list):
            assert found is None
            continue
        assert found is not None
        tail, nonempty = found
        head = encoded[: len(encoded) - tail]
        assert nonempty is bool(value)
        assert encoded[len(head) :].startswith(b"]")
        assert head.endswith(orjson.dumps(key) + b":" + orjson.dumps(value)[:-1])


@given(STATES, st.lists(st.tuples(KEYS, st.lists(VALUES, max_size=3)), max_size=8))
def test_appending_again_and_again_is_what_a_decoder_would_do(
    state: dict[str, Any], additions: list[tuple[str, list[Any]]]
) -> None:
    encoded, offsets = known(state)
    for key, items in additions:
        append = Append(key, codec.encode(items), ANYTHING)
        found = extended(offsets, len(encoded), append)
        if found is None:
            assert not isinstance(state[key], list)
            continue
        step, offsets = found
        expected, _ = appended(append, encoded)
        assert delta.apply(encoded, step) == expected
        assert delta.size_of(step) == len(expected)
        assert codec.decode(expected) == codec.decode(
            orjson.dumps(state | {key: [*state.get(key, []), *items]})
        )
        encoded = expected
        state = codec.decode(expected)
        assert offsets == known(state)[1]


@given(st.lists(st.integers(2**64, 2**70), min_size=1, max_size=3))
def test_wide_integers_are_left_to_the_decoder(items: list[int]) -> None:
    _, offsets = known({"a": [1]})
    assert extended(offsets, 9, Append("a", codec.encode(items), ANYTHING)) is None
    assert codec.encode_state({"a": items})[1] is None


def test_states_without_known_lists() -> None:
    many: list[Any] = [[], [1], "text", 1, None, {str(n): [] for n in range(65)}]
    for state in many:
        assert codec.encode_state(state) == (orjson.dumps(state), None)
    assert codec.encode_state({}) == (b"{}", {})
    assert codec.encode_state({"a": (1, 2)}) == (b'{"a":[1,2]}', {"a": (2, True)})
