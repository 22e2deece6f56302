"""What a commit does to a scope, decided without storage: the table that all engines share."""

from collections.abc import Callable
from typing import Any

import pytest

from limpet.core.commits import (
    Plan,
    ScopeState,
    check_expect,
    check_fence,
    decide,
    default_parent,
    new_row,
    replaced_row,
)
from limpet.core.ids import mint
from limpet.core.rows import Row, pack_ref, unpack_ref
from limpet.errors import (
    AlreadyExists,
    Conflict,
    LimpetError,
    NotFound,
)
from limpet.model import ANY, ScopeKey, SnapshotRef
from limpet.protocol import Commit, Stamp
from tests.cases import for_each

SCOPE = ScopeKey("s", "m", "agent")
REF = SnapshotRef(ScopeKey("other", "main", "agent"), "origin")
COMMIT = Commit(
    scope=SCOPE,
    body=b'{"secret":"body"}',
    status="completed",
    labels=b'{"k":"v"}',
    metadata=b'{"m":1}',
    stamp=Stamp(5_000_000, "00000000000000aa", 77),
    id="a",
)
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
DRAFT = ROW._replace(kept=False)
HEAD_ROW = ROW._replace(seq=9, id="h", nonce="00000000000000cc")
LINE = ScopeState(head=HEAD_ROW, fence="lease-1")
STALE = "1.0.dd"


def yes() -> bool:
    return True


def no() -> bool:
    return False


def never() -> Any:
    raise AssertionError("this need not be asked")


def judge(
    commit: Commit, scope: ScopeState, existing: Row | None, same_body: Callable[[], bool]
) -> Plan:
    return decide(commit, scope, existing, same_body=same_body, newest_kept=lambda: None)


def is_stored(*asked: Any) -> bool:
    return judge(*asked).is_stored


def is_new(*asked: Any) -> bool:
    return judge(*asked).replaces is None


def is_replaced(*asked: Any) -> bool:
    plan = judge(*asked)
    return plan.replaces is not None and not plan.is_stored


# What is decided. Each case: changes to the commit, what stands under its id, same body?

SAME = [
    ("a repetition", {}, ROW),
    ("a repetition with a parent", {"parent": "p"}, ROW),
    ("a repetition whose expect became stale by it", {"expect": STALE}, ROW),
    ("a repetition that expected no head", {"expect": None}, ROW),
    ("a repetition whose lease has passed", {"fence": "lease-0"}, ROW),
    ("a repetition with overwrite", {"overwrite": True}, ROW),
    ("a repetition that is only kept", {"head": False}, ROW),
    ("a repeated draft", {"keep": False}, DRAFT),
    ("a draft of what is kept already", {"keep": False}, ROW),
    ("a repetition at another time", {"stamp": Stamp(9, "00000000000000ee", 1)}, ROW),
    ("a repetition with another age", {"created_at": 1}, ROW),
]
OTHER = [
    ("another status", {"status": "failed"}),
    ("other labels", {"labels": b"{}"}),
    ("other metadata", {"metadata": b"{}"}),
    ("another parent", {"parent": "q"}),
    ("a root", {"parent": None}),
]


@for_each("changes, existing", [c[1:] for c in SAME])
def test_a_repetition_changes_nothing(changes: dict[str, Any], existing: Row) -> None:
    commit = COMMIT._replace(**changes)
    assert is_stored(commit, LINE, existing, yes)


@for_each("changes", [c[1] for c in OTHER])
@for_each("existing", [ROW, DRAFT])
def test_another_body_under_an_id_needs_overwrite(changes: dict[str, Any], existing: Row) -> None:
    """The body itself, which may be large, is not even looked at when another fact differs."""
    commit = COMMIT._replace(**changes)
    with pytest.raises(AlreadyExists):
        judge(commit, LINE, existing, never)
    assert is_replaced(commit._replace(overwrite=True), LINE, existing, never)


@for_each("existing", [ROW, DRAFT])
def test_another_state_under_an_id_needs_overwrite(existing: Row) -> None:
    with pytest.raises(AlreadyExists):
        judge(COMMIT, LINE, existing, no)
    assert is_replaced(COMMIT._replace(overwrite=True), LINE, existing, no)


def test_a_taken_id_is_reported_before_a_moved_head() -> None:
    """Minting a new id is what helps; reading the head again would not."""
    with pytest.raises(AlreadyExists):
        judge(COMMIT._replace(expect=STALE, fence="lease-0"), LINE, ROW, no)


def test_a_draft_saved_again_to_be_kept_is_promoted() -> None:
    assert is_replaced(COMMIT, LINE, DRAFT, yes)
    with pytest.raises(Conflict):
        judge(COMMIT._replace(expect=STALE), LINE, DRAFT, yes)


@for_each(
    "expect, head, agrees",
    [
        (ANY, None, True),
        (ANY, HEAD_ROW, True),
        (None, None, True),
        (None, HEAD_ROW, False),
        (HEAD_ROW.revision, HEAD_ROW, True),
        (HEAD_ROW.revision, None, False),
        (HEAD_ROW.revision, HEAD_ROW._replace(rev=3), False),
        (HEAD_ROW.revision, HEAD_ROW._replace(nonce="0"), False),
        (STALE, HEAD_ROW, False),
        ("", HEAD_ROW, False),
        ("", None, False),
    ],
)
@for_each("id", [None, "new"])
def test_expect_compares_the_head(expect: Any, head: Row | None, agrees: bool, id: str) -> None:
    commit, line = COMMIT._replace(id=id, expect=expect), ScopeState(head=head)
    if agrees:
        assert is_new(commit, line, None, never)
        check_expect(expect, head, SCOPE)
        assert is_replaced(commit._replace(overwrite=True), line, ROW, no)
        return
    with pytest.raises(Conflict):
        judge(commit, line, None, never)
    with pytest.raises(Conflict):
        check_expect(expect, head, SCOPE)
    with pytest.raises(Conflict):
        judge(commit._replace(overwrite=True), line, ROW, no)


@for_each(
    "fence, found, agrees",
    [
        (None, None, True),
        (None, "lease-1", True),  # a lease shuts out other claimants, not plain writers
        ("lease-1", "lease-1", True),
        ("lease-1", "lease-2", False),
        ("lease-1", None, False),
        ("", None, False),
    ],
)
def test_a_fence_must_be_that_of_the_scope(
    fence: str | None, found: str | None, agrees: bool
) -> None:
    line = ScopeState(fence=found)
    fresh = COMMIT._replace(fence=fence)
    update = fresh._replace(replaces=ROW.revision)
    if agrees:
        assert is_new(fresh, line, None, never)
        assert is_replaced(update, line, ROW, never)
        check_fence(fence, found, SCOPE)
        return
    for attempt in (
        lambda: judge(fresh, line, None, never),
        lambda: judge(update, line, ROW, never),
        lambda: check_fence(fence, found, SCOPE),
    ):
        with pytest.raises(Conflict):
            attempt()


def test_an_update_replaces_exactly_the_version_it_read() -> None:
    update = COMMIT._replace(replaces=ROW.revision)
    assert is_replaced(update, LINE, ROW, never)
    assert is_replaced(update, LINE, DRAFT, never)
    # Even when nothing differs: what was read before is known to be what is replaced.
    assert is_replaced(update._replace(status="failed"), LINE, ROW, never)
    for moved in (ROW._replace(rev=3), ROW._replace(nonce="0"), ROW._replace(seq=8)):
        with pytest.raises(Conflict):
            judge(update, LINE, moved, never)
    with pytest.raises(NotFound):
        judge(update, LINE, None, never)


def test_no_message_holds_a_body() -> None:
    hopeless = [
        (COMMIT, ROW),
        (COMMIT._replace(expect=STALE), None),
        (COMMIT._replace(fence="lease-0"), None),
        (COMMIT._replace(replaces=STALE), ROW),
        (COMMIT._replace(replaces=STALE), None),
    ]
    for commit, existing in hopeless:
        with pytest.raises(LimpetError, match="session=`s` scope=`m` kind=`agent`") as caught:
            judge(commit, LINE, existing, no)
        assert "secret" not in str(caught.value)


# The rows.


def test_a_new_row_takes_the_next_place() -> None:
    line = LINE._replace(next_seq=12, next_saved_at=0)
    row = new_row(COMMIT, line, size=99, newest_kept=never)
    assert row == Row(
        seq=12,
        id="a",
        rev=0,
        nonce="00000000000000aa",
        kept=True,
        parent_id="h",
        forked_from=None,
        status="completed",
        labels=b'{"k":"v"}',
        metadata=b'{"m":1}',
        created_at=5_000_000,
        updated_at=5_000_000,
        saved_at=5_000_000,
        size=99,
    )
    assert row.revision == "c.0.00000000000000aa"


TIMES = [(0, 5_000_000), (5_000_000, 5_000_000), (6_000_000, 6_000_000)]


@for_each("next_saved_at, saved_at", TIMES)
def test_commit_time_never_steps_back(next_saved_at: int, saved_at: int) -> None:
    row = new_row(COMMIT, LINE._replace(next_saved_at=next_saved_at), size=1, newest_kept=never)
    assert (row.saved_at, row.updated_at, row.created_at) == (saved_at, 5_000_000, 5_000_000)


def test_an_import_keeps_its_age_and_nothing_else_of_it() -> None:
    plain = new_row(COMMIT, LINE, size=1, newest_kept=never)
    imported = new_row(COMMIT._replace(created_at=-5), LINE, size=1, newest_kept=never)
    assert imported == plain._replace(created_at=-5)


def test_an_id_is_minted_above_the_floor() -> None:
    scope = LINE._replace(floor=mint(9_000_000, 5, ""))
    plan = judge(COMMIT._replace(id=None), scope, None, never)
    assert plan.floor == plan.row.id == mint(5_000_000, 77, scope.floor) > scope.floor
    assert judge(COMMIT, scope, None, never).floor == scope.floor


@for_each("head", [True, False])
def test_a_new_head_covers_a_draft(head: bool) -> None:
    commit = COMMIT._replace(head=head, parent=None)
    draft = LINE._replace(head=HEAD_ROW._replace(kept=False))
    assert judge(commit, draft, None, never).covers == (draft.head if head else None)
    assert judge(commit, LINE, None, never).covers is None


def test_a_row_says_where_it_was_forked() -> None:
    row = new_row(COMMIT._replace(forked_from=REF, keep=False), LINE, size=1, newest_kept=never)
    assert unpack_ref(row.forked_from) == REF
    assert row.kept is False


@for_each(
    "parent, head, newest, found",
    [
        ("x", HEAD_ROW, never, "x"),
        (None, HEAD_ROW, never, None),
        (None, None, never, None),
    ],
)
def test_a_parent_that_is_given_counts(
    parent: str | None, head: Row | None, newest: Any, found: str | None
) -> None:
    commit = COMMIT._replace(parent=parent)
    assert new_row(commit, ScopeState(head=head), size=1, newest_kept=newest).parent_id == found


# Head (id, kept, its parent), own id, newest kept, answer. "never": it must not be asked.
PARENTS = [
    ("an empty scope", None, "a", None, None),
    ("only history", None, "a", "n", "n"),
    ("a kept head", ("h", True, "p"), "a", "never", "h"),
    ("a kept root", ("h", True, None), "a", "never", "h"),
    ("a draft with a parent", ("d", False, "p"), "a", "never", "p"),
    ("a draft without one", ("d", False, None), "a", "n", "n"),
    ("a draft alone", ("d", False, None), "a", None, None),
    ("a minted id", ("h", True, None), None, "never", "h"),
    ("a minted id on nothing", None, None, None, None),
    ("a draft on what is saved again", ("d", False, "a"), "a", "n", "n"),
    ("a draft on what is saved again, alone", ("d", False, "a"), "a", None, None),
    ("the newest kept is itself", None, "a", "a", None),
]


@for_each("head, own_id, newest, found", [c[1:] for c in PARENTS])
def test_the_default_parent_is_one_that_stays(
    head: tuple[str, bool, str | None] | None,
    own_id: str | None,
    newest: str | None,
    found: str | None,
) -> None:
    ask = never if newest == "never" else lambda: newest
    row = None
    if head is not None:
        row = ROW._replace(id=head[0], kept=head[1], parent_id=head[2])
    assert default_parent(own_id, row, ask) == found
    made = new_row(COMMIT._replace(id=own_id), ScopeState(head=row), size=1, newest_kept=ask)
    assert made.parent_id == found


def test_a_replaced_row_keeps_its_place_and_age() -> None:
    changed = COMMIT._replace(status="failed", labels=b"{}", metadata=b'{"n":2}', overwrite=True)
    assert replaced_row(changed, ROW, size=3) == ROW._replace(
        rev=3,
        nonce="00000000000000aa",
        status="failed",
        labels=b"{}",
        metadata=b'{"n":2}',
        updated_at=5_000_000,
        size=3,
    )
    aged = replaced_row(changed._replace(created_at=-5), ROW, size=3)
    assert (aged.created_at, aged.saved_at, aged.seq, aged.id) == (1_000, 3_000, 7, "a")


@for_each(
    "existing, changes, kept",
    [
        (ROW, {}, True),
        (ROW, {"keep": False}, True),
        (DRAFT, {}, True),
        (DRAFT, {"keep": False}, False),
        (DRAFT, {"replaces": DRAFT.revision}, False),
        (ROW, {"replaces": ROW.revision}, True),
    ],
)
def test_what_is_kept_stays_kept_and_an_update_keeps_nothing(
    existing: Row, changes: dict[str, Any], kept: bool
) -> None:
    assert replaced_row(COMMIT._replace(**changes), existing, size=1).kept is kept


def test_an_overwrite_may_change_parent_and_origin() -> None:
    assert replaced_row(COMMIT, ROW, size=1).parent_id == "p"
    assert replaced_row(COMMIT._replace(parent="q"), ROW, size=1).parent_id == "q"
    assert replaced_row(COMMIT._replace(parent=None), ROW, size=1).parent_id is None
    origin = pack_ref(REF)
    assert replaced_row(COMMIT, ROW._replace(forked_from=origin), size=1).forked_from == origin
    assert replaced_row(COMMIT._replace(forked_from=REF), ROW, size=1).forked_from == origin
