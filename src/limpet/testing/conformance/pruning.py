"""Chapter: pruning. What `prune` drops, what it never drops, and what it counts."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from limpet import InvalidInput, Pruned, Scope, Store
from limpet.protocol import Backend
from limpet.testing.conformance._kit import Kit, Stores, is_durable, names, present, unchanged
from limpet.testing.conformance._layers import Watched

_DAY = timedelta(days=1)


def _import(scope: Scope, ages_in_days: Mapping[str, float]) -> dict[str, int]:
    """Save one snapshot of each age, in this order; return their sizes."""
    now = datetime.now(UTC)
    return {
        each: scope.save({"of": each}, id=each, created_at=now - age * _DAY).size
        for each, age in ages_in_days.items()
    }


class Pruning(Kit):
    """`prune`."""

    def test_keep_last_keeps_the_newest(self, store: Store) -> None:
        for keep_last, left in ((0, 1), (1, 1), (2, 2), (5, 5), (6, 5)):
            scope = store.scope("s", f"{keep_last}")
            infos = [scope.save("x" * n, id=f"{n}") for n in range(5)]
            kept, gone = infos[5 - left :], infos[: 5 - left]

            pruned = scope.prune(keep_last=keep_last)

            assert pruned == Pruned(len(gone), sum(info.size for info in gone))
            assert list(scope.history()) == kept[::-1]
            assert present(scope.info()).id == "4"

    def test_older_than_goes_by_created_at(self, scope: Scope) -> None:
        sizes = _import(scope, {"new": 1, "old": 9, "newer": 0, "oldest": 99, "head": 5})

        pruned = scope.prune(older_than=7 * _DAY)

        assert pruned == Pruned(2, sizes["old"] + sizes["oldest"])
        assert names(scope.history()) == ["head", "newer", "new"]

    def test_an_update_does_not_change_the_age(self, scope: Scope) -> None:
        """An update or overwrite keeps `created_at`, and so the age."""
        _import(scope, {"a": 9, "b": 9, "c": 9, "head": 0})
        scope.update("a", lambda s: s.with_(state="new"))
        scope.save("new", id="b", overwrite=True, created_at=datetime.now(UTC))

        assert scope.prune(older_than=7 * _DAY).count == 3
        assert names(scope.history()) == ["head"]

    def test_prune_drops_what_is_outside_both_limits(self, scope: Scope) -> None:
        """Only what is outside `keep_last` and also older than `older_than` goes."""
        ages = {"old-1": 9, "new-1": 1, "old-2": 9, "new-2": 1, "old-3": 9, "head": 0}
        sizes = _import(scope, ages)

        pruned = scope.prune(keep_last=2, older_than=7 * _DAY)

        assert pruned == Pruned(2, sizes["old-1"] + sizes["old-2"])
        assert names(scope.history()) == ["head", "old-3", "new-2", "new-1"]
        assert scope.prune(keep_last=9, older_than=timedelta(0)) == Pruned(0, 0)
        assert scope.prune(keep_last=0, older_than=99 * _DAY) == Pruned(0, 0)

    def test_prune_never_drops_the_head(self, scope: Scope) -> None:
        _import(scope, {"a": 9, "head": 99})
        for n in range(3):
            scope.save(n, id=f"{n}", head=False)

        scope.prune(older_than=7 * _DAY)
        assert names(scope.history()) == ["2", "1", "0", "head"]
        scope.prune(keep_last=1)
        assert names(scope.history()) == ["2", "head"]
        scope.prune(keep_last=0)
        assert names(scope.history()) == ["head"]
        assert present(scope.info()).id == "head"
        assert scope.prune(keep_last=0) == Pruned(0, 0)

    def test_prune_may_drop_everything_where_there_is_no_head(
        self, store: Store, scope: Scope
    ) -> None:
        for n in range(4):
            scope.save(n, id=f"{n}", head=False)

        assert scope.prune(keep_last=1) == Pruned(3, 3)
        assert names(scope.history()) == ["3"]
        assert scope.prune(keep_last=0) == Pruned(1, 1)
        assert list(store.sessions()) == []

    def test_prune_neither_counts_nor_drops_a_draft(self, scope: Scope) -> None:
        old = datetime.now(UTC) - 99 * _DAY
        scope.save(1, id="a", created_at=old)
        scope.save(2, id="b", created_at=old)
        draft = scope.save(3, id="draft", keep=False, created_at=old)

        assert scope.prune(keep_last=1) == Pruned(1, 1)
        assert scope.prune(older_than=_DAY) == Pruned(1, 1)
        assert list(scope.history()) == []
        assert scope.info() == draft
        assert draft.parent_id == "b"

    @pytest.mark.parametrize(
        "limits",
        [
            {"keep_last": 2},
            {"older_than": 7 * _DAY},
            {"keep_last": 2, "older_than": 7 * _DAY},
            {"keep_last": 0},
            {"older_than": timedelta(0)},
        ],
        ids=str,
    )
    def test_a_dry_run_counts_the_same_and_changes_nothing(
        self, store: Store, scope: Scope, small_pages: int, limits: dict[str, Any]
    ) -> None:
        ages = {f"{n}": 9.0 * (n % 2) + n / 10 + 1 for n in range(small_pages * 3 + 1)}
        _import(scope, ages)
        scope.save("only kept", head=False)
        scope.set_note("n", 1, on="1")
        with unchanged(store, on=["1"]):
            planned = scope.prune(**limits, dry_run=True)
        assert planned.count > 0
        history = {info.id: info.size for info in scope.history()}

        assert scope.prune(**limits) == planned
        for left in names(scope.history()):
            del history[left]
        assert planned == Pruned(len(history), sum(history.values()))
        assert scope.prune(**limits, dry_run=True) == Pruned(0, 0)

    def test_prune_removes_the_notes_on_what_it_drops(self, scope: Scope) -> None:
        for n in range(3):
            scope.save(n, id=f"{n}")
            scope.set_note("n", n, on=f"{n}")
        scope.set_note("n", "scope")
        scope.set_note("n", "elsewhere", on="not-there")

        scope.prune(keep_last=1)

        left = scope.notes(on=["0", "1", "2", "not-there"])
        assert [note.value for note in left] == [2, "elsewhere"]
        assert [note.value for note in scope.notes()] == ["scope"]

    def test_prune_changes_nothing_else(
        self, backend: Backend, store: Store, scope: Scope, reopen: Callable[[], Store]
    ) -> None:
        for n in range(40):
            state = {"turns": [f"turn {m} " * 8 for m in range(n)]}
            for key in (scope.key, ("chat-42", "planner2"), ("chat-42", "planner", "graph")):
                store.scope(*key).save(state, id=f"{n:02}")
        before = [s for s in scope.load_many(list(scope.ids())) if s.id >= "33"]
        others = [list(store.scope("chat-42", "planner2").history())]

        assert scope.prune(keep_last=7).count == 33

        shown = [scope, *([reopen().scope(*scope.key)] if is_durable(backend) else [])]
        for each in shown:
            assert list(each.load_many(list(each.ids()))) == before
            assert present(each.info("33")).parent_id == "32"
            assert names(each.leaves()) == ["39"]
        assert [list(store.scope("chat-42", "planner2").history())] == others
        assert len(list(store.scope("chat-42", "planner", "graph").ids())) == 40

    def test_what_is_pruned_stays_away(self, backend: Backend, scope: Scope) -> None:
        for n in range(4):
            scope.save(n, id=f"{n}", labels={"l": "1"})
        scope.prune(keep_last=2)

        assert scope.load("0") is None
        assert list(scope.ids()) == ["2", "3"]
        assert names(scope.ancestors("3")) == ["3", "2"]
        assert scope.delete_snapshot("1") == 0
        assert scope.save("again", id="0").parent_id == "3"

    def test_an_empty_scope_has_nothing_to_prune(self, store: Store, scope: Scope) -> None:
        assert scope.prune(keep_last=0) == Pruned(0, 0)
        assert scope.prune(older_than=timedelta(0)) == Pruned(0, 0)
        assert list(store.scopes()) == []

    def test_long_histories_are_pruned_in_pages(
        self, backend: Backend, stores: Stores, small_pages: int
    ) -> None:
        watched = Watched(backend)
        store = stores(watched.backend)
        for keep_last in range(small_pages * 4 + 1):
            scope = store.scope(f"{keep_last}")
            for n in range(small_pages * 4):
                scope.save(n, id=f"{n:02}")
            expected = small_pages * 4 - max(keep_last, 1)
            for dry_run in (True, False):
                assert scope.prune(keep_last=keep_last, dry_run=dry_run).count == expected
            assert names(scope.history()) == [
                f"{n:02}" for n in range(small_pages * 4 - 1, expected - 1, -1)
            ]
        assert max(watched.asked) <= small_pages
        assert max(watched.answered) <= small_pages

    def test_a_prune_needs_a_limit(self, store: Store, scope: Scope) -> None:
        _import(scope, {"a": 9, "b": 5, "c": 0})
        with unchanged(store):
            bad: list[dict[str, Any]] = [
                {},
                {"dry_run": True},
                {"keep_last": -1},
                {"keep_last": True},
                {"keep_last": 1.0},
                {"keep_last": "1"},
                {"older_than": -_DAY},
                {"older_than": timedelta(microseconds=-1)},
                {"older_than": 7},
                {"older_than": datetime.now(UTC)},
                {"keep_last": -1, "older_than": _DAY},
                {"keep_last": 1, "older_than": -_DAY},
                {"keep_last": 0, "dry_run": 1},
                {"keep_last": 0, "dry_run": None},
            ]
            for limits in bad:
                with pytest.raises(InvalidInput):
                    scope.prune(**limits)

    def test_an_age_beyond_all_time_is_fine(self, scope: Scope) -> None:
        early = datetime(1, 1, 1, tzinfo=UTC)
        scope.save(1, id="a", created_at=early)
        scope.save(2, id="b")

        assert scope.prune(older_than=timedelta.max) == Pruned(0, 0)
        assert scope.prune(older_than=timedelta(days=365 * 1000)) == Pruned(1, 1)
