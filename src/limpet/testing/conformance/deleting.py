"""Chapter: forgetting. `delete_snapshot`, `delete` and `delete_session`."""

import pytest

from limpet import Conflict, Scope, Store
from limpet.protocol import Backend
from limpet.testing.conformance._kit import (
    Kit,
    assert_labelled,
    finds,
    names,
    present,
    states,
    unchanged,
)


class Deleting(Kit):
    """What is deleted is gone, and nothing else is."""

    def test_delete_snapshot_counts_and_may_be_repeated(self, scope: Scope) -> None:
        scope.save(1, id="a")

        assert scope.delete_snapshot("a") == 1
        assert scope.delete_snapshot("a") == 0
        assert scope.delete_snapshot("never") == 0
        assert scope.load("a") is None
        assert list(scope.history()) == []
        assert list(scope.ids()) == []

    def test_deleting_the_head_uncovers_the_newest_kept(self, scope: Scope) -> None:
        """The newest kept snapshot becomes the head, whatever its parent; else there is none."""
        first = scope.save(1, id="a")
        scope.save(2, id="b")
        side = scope.save(3, id="side", head=False, parent=None)

        scope.delete_snapshot("b")
        assert scope.info() == side
        scope.delete_snapshot("side")
        assert scope.info() == first
        scope.delete_snapshot("a")
        assert scope.info() is None

    def test_deleting_a_draft_uncovers_the_newest_kept(self, scope: Scope) -> None:
        kept = scope.save(1)
        draft = scope.save(2, keep=False)

        assert scope.delete_snapshot(draft.id) == 1
        assert scope.info() == kept
        assert scope.load(draft.id) is None

    def test_the_uncovered_head_has_its_own_revision(self, scope: Scope) -> None:
        first = scope.save(1)
        second = scope.save(2)
        scope.delete_snapshot(second.id)

        with pytest.raises(Conflict):
            scope.save(3, expect=second.revision)
        assert scope.save(3, expect=first.revision).parent_id == first.id

    def test_deleting_another_leaves_the_head(self, scope: Scope) -> None:
        scope.save(1, id="a")
        head = scope.save(2, id="b")
        scope.save(3, id="c", head=False)

        scope.delete_snapshot("a")
        scope.delete_snapshot("c")

        assert scope.info() == head

    def test_deleting_changes_no_other_snapshot(self, scope: Scope) -> None:
        for n in range(40):
            scope.save({"turns": [f"turn {m} " * 8 for m in range(n)]}, id=f"{n:02}")
        before = {s.id: s for s in scope.load_many(list(scope.ids()))}

        for doomed in ("00", "17", "16", "39", "30"):
            scope.delete_snapshot(doomed)
            del before[doomed]

        assert {s.id: s for s in scope.load_many(list(scope.ids()))} == before
        assert names(scope.history()) == sorted(before, reverse=True)
        assert present(scope.info("18")).parent_id == "17"
        assert present(scope.info()).id == "38"

    def test_delete_removes_the_scope(self, store: Store, scope: Scope) -> None:
        """Snapshots, draft and notes go; kept and draft snapshots are counted, notes are not."""
        scope.save(1, id="a")
        scope.save(2, id="b", head=False)
        scope.save(3, keep=False)
        scope.set_note("n", 1)
        scope.set_note("n", 1, on="a")
        scope.set_note("n", 1, on="elsewhere")

        assert scope.delete() == 3
        assert scope.delete() == 0
        assert scope.load() is None
        assert list(scope.history()) == []
        assert list(scope.notes()) == list(scope.notes(on=["a", "elsewhere"])) == []
        assert list(store.scopes()) == []

    def test_delete_leaves_the_other_scopes(self, store: Store, scope: Scope) -> None:
        keys = [("chat-42", "planner2"), ("chat-42", "planner", "graph"), ("chat-4", "planner")]
        for key in keys:
            store.scope(*key).save(1, id="a")
            store.scope(*key).set_note("n", 1, on="a")
        with unchanged(store):
            scope.save(1, id="a")
            scope.set_note("n", 1, on="a")

            assert scope.delete() == 1

    def test_delete_compares_the_head(self, store: Store, scope: Scope) -> None:
        first = scope.save(1)
        second = scope.save(2)
        with unchanged(store):
            for stale in (first.revision, None, "0.0.nonsense"):
                with pytest.raises(Conflict):
                    scope.delete(expect=stale)
        assert scope.delete(expect=second.revision) == 2

    def test_delete_expecting_no_head(self, store: Store, scope: Scope) -> None:
        assert scope.delete(expect=None) == 0
        with pytest.raises(Conflict):
            scope.delete(expect="0.0.0000000000000000")
        scope.save(1, head=False)
        scope.set_note("n", 1)
        assert scope.delete(expect=None) == 1
        assert list(store.scopes()) == []

    def test_delete_session_removes_all_of_its_scopes(self, store: Store) -> None:
        for kind in ("agent", "graph"):
            for scope_id in ("a", "b"):
                scope = store.scope("s", scope_id, kind)
                scope.save(1)
                scope.save(2, keep=False)
                scope.set_note("n", 1)
        store.scope("s", "note").set_note("n", 1)

        assert store.delete_session("s") == 8
        assert store.delete_session("s") == 0
        assert list(store.sessions()) == []
        assert list(store.scopes()) == []
        assert store.scope("s", "a").load() is None
        assert store.scope("s", "note").note("n") is None

    def test_delete_session_leaves_the_others(self, store: Store) -> None:
        for each in ("s1", "s/1", "S", "s ", "t", "s%", "_"):
            store.scope(each).save(each, id="x")
            store.scope(each).set_note("n", each, on="x")
        with unchanged(store):
            store.scope("s").save(1, id="x")
            store.scope("s").set_note("n", 1, on="x")

            assert store.delete_session("s") == 1

    def test_a_deleted_session_begins_empty_again(self, store: Store, scope: Scope) -> None:
        scope.save({"old": 1}, id="a", labels={"l": "1"})
        scope.set_note("n", "old", on="a")
        store.delete_session("chat-42")

        scope.save({"new": 1}, id="b", expect=None)

        assert names(scope.history()) == ["b"]
        assert present(scope.info("b")).parent_id is None
        assert scope.note("n", on="a") is None
        assert scope.append("items", [1]).parent_id == "b"

    def test_what_is_deleted_is_not_found(
        self, backend: Backend, store: Store, scope: Scope
    ) -> None:
        scope.save(1, id="a", labels={"l": "1"})
        scope.save(2, id="b", labels={"l": "1"})
        scope.delete_snapshot("b")

        assert_labelled(backend, scope, {"l": "1"}, ["a"])
        if finds(backend, store):
            assert store.find("b") is None
            assert present(store.find("a")).id == "a"
            store.delete_session("chat-42")
            assert store.find("a") is None

    def test_deleting_between_saves_keeps_states_apart(self, scope: Scope) -> None:
        turns: list[str] = []
        kept: dict[str, list[str]] = {}
        for n in range(30):
            turns.append(f"turn {n} " * 8)
            info = scope.save({"turns": turns}, keep=n % 4 != 1)
            if n % 3 == 0:
                scope.delete_snapshot(info.id)
            elif info.kept:
                kept[info.id] = list(turns)

        assert states(scope.load_many(kept)) == [{"turns": each} for each in kept.values()]
        assert names(scope.history()) == list(kept)[::-1]
