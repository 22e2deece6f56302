"""What `InMemoryStore` does with the same operations is done by `LimpetStore`."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

import limpet
from limpet import Store
from limpet.compat.langgraph import LimpetStore
from tests.compat.langgraph_store.kit import keys

NAMESPACES = st.sampled_from([("a",), ("a", "b"), ("ab",), ("b", "a"), ("a", "b", "c")])
KEYS = st.sampled_from(["k", "l", "m"])
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.5, 1.0, "x"]))
VALUES = st.dictionaries(
    st.sampled_from("pqr"),
    st.one_of(SCALARS, st.lists(SCALARS, max_size=2), st.dictionaries(st.just("s"), SCALARS)),
)
ORDERS = st.sampled_from(["$eq", "$ne"])
FILTERS = st.dictionaries(
    st.sampled_from("pqr"),
    st.one_of(
        SCALARS,
        st.lists(SCALARS, max_size=2),
        st.dictionaries(st.just("s"), SCALARS),
        st.dictionaries(ORDERS, SCALARS, min_size=1),
    ),
    max_size=2,
)
PATHS = st.sampled_from([(), ("a",), ("*", "b"), ("a", "*"), ("b",)])
CONDITIONS: Any = st.lists(
    st.one_of(
        PATHS.map(lambda path: MatchCondition("prefix", path)),
        PATHS.map(lambda path: MatchCondition("suffix", path)),
    ),
    max_size=2,
)
DEPTHS = st.one_of(st.none(), st.integers(1, 2))
OPS = st.one_of(
    st.tuples(NAMESPACES, KEYS, st.one_of(st.none(), VALUES, VALUES)).map(lambda op: PutOp(*op)),
    st.tuples(NAMESPACES, KEYS).map(lambda op: GetOp(*op)),
    st.tuples(st.one_of(st.just(()), NAMESPACES), FILTERS).map(lambda op: SearchOp(*op, limit=99)),
    st.tuples(CONDITIONS.map(tuple), DEPTHS).map(lambda op: ListNamespacesOp(*op)),
)


class Oracle(InMemoryStore):
    """LangGraph's store in memory, but a namespace without items is not listed."""

    def batch(self, ops: Any) -> list[Any]:
        for empty in [each for each, held in self._data.items() if not held]:
            del self._data[empty]
        return super().batch(ops)


def plain(result: Any) -> Any:
    """Return a result without its times; searches in no order."""
    if isinstance(result, list) and result and not isinstance(result[0], tuple):
        return sorted((each.namespace, each.key, repr(each.value)) for each in result)
    if result is None or isinstance(result, list):
        return result or None
    return result.namespace, result.key, result.value


def check_alike(store: Store, batches: list[list[Any]]) -> None:
    ours, theirs = LimpetStore(store), Oracle()
    for ops in batches:
        # Apart, since in the other store a get makes an empty namespace.
        gets = [op for op in ops if not isinstance(op, ListNamespacesOp)]
        lists = [op for op in ops if isinstance(op, ListNamespacesOp)]
        for each in (lists, gets):
            assert [*map(plain, ours.batch(each))] == [*map(plain, theirs.batch(each))]
    everything = ours.search((), limit=100)
    assert keys(everything[1:3]) == keys(ours.search((), limit=2, offset=1))
    times = [each.updated_at for each in everything]
    assert times == sorted(times, reverse=True)


@settings(max_examples=60, deadline=None)
@given(batches=st.lists(st.lists(OPS, max_size=6), max_size=5))
def test_it_does_what_the_store_in_memory_does(batches: list[list[Any]]) -> None:
    with limpet.open("memory:") as store:
        check_alike(store, batches)
