"""What the rules of a commit promise beyond what the conformance suite can see of them."""

from typing import Any

import pytest

from limpet.core.commits import Plan, ScopeState, decide
from limpet.core.ids import mint
from limpet.core.rows import Row, unpack_ref
from limpet.errors import AlreadyExists, Corrupt
from limpet.model import ScopeKey
from limpet.protocol import Commit, Stamp
from tests.cases import for_each

COMMIT = Commit(
    scope=ScopeKey("s", "m", "agent"),
    body=b'{"secret":"body"}',
    status="completed",
    labels=b'{"k":"v"}',
    metadata=b'{"m":1}',
    stamp=Stamp(5_000_000, "00000000000000aa", 77),
    id="a",
)
ROW = Row(
    *(7, "a", 2, "00000000000000bb", True, "p", None, "completed", b'{"k":"v"}', b'{"m":1}'),
    *(1_000, 2_000, 3_000, 17),
)
HEAD = ROW._replace(seq=9, id="h", nonce="00000000000000cc")
SCOPE = ScopeState(head=HEAD, fence="lease-1", next_seq=12)
STALE = "1.0.dd"


def never() -> Any:
    raise AssertionError("this need not be asked")


def planned(
    existing: Row | None = None, scope: ScopeState = SCOPE, is_same: bool = False, **changes: Any
) -> Plan:
    same_body = (lambda: is_same) if existing else never
    commit = COMMIT._replace(**changes)
    return decide(commit, scope, existing, same_body=same_body, newest_kept=never)


def test_a_repetition_needs_nothing_that_may_have_passed() -> None:
    passed: list[dict[str, Any]] = [{"expect": STALE}, {"fence": "lease-0"}, {"created_at": 1}]
    for changes in passed:
        assert planned(ROW, is_same=True, **changes).is_stored


@for_each("changes", [{"status": "x"}, {"labels": b"{}"}, {"metadata": b"{}"}, {"parent": None}])
def test_a_body_is_not_compared_if_another_fact_differs(changes: dict[str, Any]) -> None:
    commit = COMMIT._replace(**changes)
    with pytest.raises(AlreadyExists):
        decide(commit, SCOPE, ROW, same_body=never, newest_kept=never)


def test_a_taken_id_is_reported_before_a_moved_head() -> None:
    """Minting a new id is what helps; reading the head again would not."""
    with pytest.raises(AlreadyExists):
        planned(ROW, expect=STALE, fence="lease-0")


@for_each("next_saved_at, saved_at", [(0, 5_000_000), (6_000_000, 6_000_000)])
def test_commit_time_never_steps_back(next_saved_at: int, saved_at: int) -> None:
    row = planned(scope=SCOPE._replace(next_saved_at=next_saved_at)).row
    assert (row.seq, row.saved_at, row.updated_at) == (12, saved_at, 5_000_000)


def test_an_id_is_minted_above_the_floor() -> None:
    scope = SCOPE._replace(floor=mint(9_000_000, 5, ""))
    plan = planned(scope=scope, id=None)
    assert plan.floor == plan.row.id == mint(5_000_000, 77, scope.floor) > scope.floor
    assert planned(scope=scope).floor == scope.floor


@for_each("packed", [b"[]", b'["a","b","c"]', b"{}", b'["a","b","c",1]', b"x"])
def test_a_stored_address_that_is_none_is_corrupt(packed: bytes) -> None:
    with pytest.raises(Corrupt):
        unpack_ref(packed)
