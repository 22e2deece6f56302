"""One snapshot as an engine keeps it, and the public facts made of it."""

import pytest

from limpet.core.rows import Row, info_of, pack_ref, unpack_ref
from limpet.errors import Corrupt
from limpet.model import ScopeKey, SnapshotRef
from tests.cases import for_each

SCOPE = ScopeKey("s", "m", "agent")
REF = SnapshotRef(ScopeKey("other", "main", "agent"), "origin")
ROW = Row(
    seq=7,
    id="a",
    rev=2,
    nonce="00000000000000bb",
    kept=True,
    parent_id="p",
    forked_from=None,
    status="completed",
    labels=b'{"k":"v"}',
    metadata=b'{"m":1}',
    created_at=1_000,
    updated_at=2_000,
    saved_at=3_000,
    size=17,
)


def test_a_row_becomes_public_facts_in_containers_of_their_own() -> None:
    row = ROW._replace(forked_from=pack_ref(REF))
    info, again = info_of(SCOPE, row), info_of(SCOPE, row)
    assert (info.scope, info.id, info.parent_id, info.forked_from) == (SCOPE, "a", "p", REF)
    assert (info.labels, info.metadata, info.kept, info.size) == ({"k": "v"}, {"m": 1}, True, 17)
    assert info.revision == "7.2.00000000000000bb"
    info.labels["k"] = "w"
    info.metadata.clear()
    assert (again.labels, again.metadata) == ({"k": "v"}, {"m": 1})


@for_each("packed", [b"[]", b'["a","b","c"]', b"{}", b'["a","b","c",1]', b"x"])
def test_a_stored_address_that_is_none_is_corrupt(packed: bytes) -> None:
    with pytest.raises(Corrupt):
        unpack_ref(packed)
