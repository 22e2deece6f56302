"""Chapter: the same id again. Repetition is harmless; another body needs `overwrite`."""

from datetime import UTC, datetime

import pytest

from limpet import JSON, AlreadyExists, Conflict, Scope, SnapshotInfo, Store
from limpet.protocol import Backend
from limpet.testing.conformance._kit import Kit, assert_labelled, names, present, unchanged


class Repeating(Kit):
    """`save` under an id that exists."""

    def test_the_same_body_again_changes_nothing(self, store: Store, scope: Scope) -> None:
        def save(labels: dict[str, str]) -> SnapshotInfo:
            return scope.save({"a": 1}, id="x", status="s", labels=labels, metadata={"m": [1]})

        first = save({"b": "1", "a": "2"})
        scope.save(2, id="y")
        with unchanged(store):
            assert save({"b": "1", "a": "2"}) == first
            assert save({"a": "2", "b": "1"}) == first

    def test_the_same_body_again_whatever_else_is_asked(self, store: Store, scope: Scope) -> None:
        """Neither `expect`, `created_at`, `head`, `keep` nor `overwrite` make it another body."""
        scope.save(0, id="root")
        first = scope.save(1, id="x", expect=present(scope.info()).revision)
        with unchanged(store):
            stale = present(scope.info("root")).revision
            assert scope.save(1, id="x", expect=stale) == first
            assert scope.save(1, id="x", expect=None) == first
            assert scope.save(1, id="x", created_at=datetime(2000, 1, 1, tzinfo=UTC)) == first
            assert scope.save(1, id="x", head=False) == first
            assert scope.save(1, id="x", keep=False) == first
            assert scope.save(1, id="x", overwrite=True) == first

    def test_the_same_body_again_does_not_move_the_head(self, scope: Scope) -> None:
        scope.save(1, id="old")
        head = scope.save(2, id="new")

        scope.save(1, id="old")

        assert scope.info() == head
        assert names(scope.history()) == ["new", "old"]

    def test_the_parent_counts_if_given(self, scope: Scope) -> None:
        """The same parent given again is a repetition; another one, or None, is another body."""
        scope.save(0, id="root")
        first = scope.save(1, id="x")

        assert scope.save(1, id="x", parent="root") == first
        for other in (None, "elsewhere"):
            with pytest.raises(AlreadyExists):
                scope.save(1, id="x", parent=other)
        assert scope.info("x") == first

    def test_another_state_is_another_body(self, scope: Scope) -> None:
        """States are compared as they are encoded, so even the order of keys counts."""
        pairs: list[tuple[JSON, JSON]] = [
            *((1, 1.0), (1, True), (0.0, -0.0), (None, {}), ([], {}), (2**64, float(2**64))),
            *(({"a": 1, "b": 2}, {"b": 2, "a": 1}), ("é", "e\u0301")),
        ]
        for n, (state, other) in enumerate(pairs):
            first = scope.save(state, id=f"{n}")
            with pytest.raises(AlreadyExists):
                scope.save(other, id=f"{n}")
            assert scope.save(state, id=f"{n}") == first

    def test_other_facts_are_another_body(self, store: Store, scope: Scope) -> None:
        scope.save(1, id="x", labels={"a": "1"}, metadata={"m": 1})
        with unchanged(store):
            with pytest.raises(AlreadyExists):
                scope.save(1, id="x", labels={"a": "1"}, metadata={"m": 1}, status="failed")
            with pytest.raises(AlreadyExists):
                scope.save(1, id="x", labels={"a": "2"}, metadata={"m": 1})
            with pytest.raises(AlreadyExists):
                scope.save(1, id="x", labels={"a": "1"}, metadata={"m": 1.0})
            with pytest.raises(AlreadyExists):
                scope.save(1, id="x")

    def test_another_body_is_already_exists_also_when_expect_is_stale(self, scope: Scope) -> None:
        """The id is compared first, then the head."""
        scope.save(1, id="x")

        with pytest.raises(AlreadyExists):
            scope.save(2, id="x", expect="0.0.0000000000000000")

    def test_overwrite_replaces_in_place(self, scope: Scope) -> None:
        first = scope.save(1, id="a", labels={"l": "1"}, metadata={"m": 1})
        second = scope.save(2, id="b")
        third = scope.save(3, id="c")

        again = scope.save(
            "new",
            id="b",
            overwrite=True,
            status="edited",
            labels={"l": "2"},
            metadata={"m": 2},
            created_at=datetime(2000, 1, 1, tzinfo=UTC),
        )

        assert again.created_at == second.created_at
        assert again.updated_at >= second.updated_at
        assert again.revision != second.revision
        assert (again.status, again.labels, again.metadata) == ("edited", {"l": "2"}, {"m": 2})
        assert list(scope.history()) == [third, again, first]
        assert present(scope.load("b")).state == "new"

    def test_overwrite_never_moves_the_head(self, scope: Scope) -> None:
        scope.save(1, id="a")
        head = scope.save(2, id="b")

        scope.save(9, id="a", overwrite=True)
        assert scope.info() == head
        scope.save(8, id="b", overwrite=True, head=False)
        assert present(scope.load()).state == 8

    def test_overwrite_of_nothing_is_a_save(self, scope: Scope) -> None:
        saved = scope.save(1, id="a", overwrite=True)

        assert scope.info() == saved
        assert names(scope.history()) == ["a"]

    def test_overwrite_keeps_the_parent_unless_another_is_given(self, scope: Scope) -> None:
        scope.save(0, id="root")
        scope.save(1, id="x")
        scope.save(2, id="y")

        assert scope.save(3, id="x", overwrite=True).parent_id == "root"
        assert scope.save(4, id="x", overwrite=True, parent="other").parent_id == "other"
        assert scope.save(5, id="x", overwrite=True, parent=None).parent_id is None

    def test_overwrite_compares_the_head(self, store: Store, scope: Scope) -> None:
        first = scope.save(1, id="a")
        head = scope.save(2, id="b")
        with unchanged(store), pytest.raises(Conflict):
            scope.save(3, id="a", overwrite=True, expect=first.revision)
        scope.save(3, id="a", overwrite=True, expect=head.revision)
        assert present(scope.load("a")).state == 3

    def test_overwritten_labels_are_found(self, backend: Backend, scope: Scope) -> None:
        scope.save(1, id="a", labels={"run_id": "r1", "gone": "x"})
        scope.save(2, id="a", overwrite=True, labels={"run_id": "r2"})

        assert_labelled(backend, scope, {"run_id": "r1"}, [])
        assert_labelled(backend, scope, {"gone": "x"}, [])
        assert_labelled(backend, scope, {"run_id": "r2"}, ["a"])

    def test_an_id_is_free_again_after_it_was_deleted(self, scope: Scope) -> None:
        scope.save(1, id="a")
        scope.save(2, id="b")
        scope.delete_snapshot("a")

        again = scope.save(3, id="a")

        assert again.parent_id == "b"
        assert names(scope.history()) == ["a", "b"]
        assert present(scope.load("a")).state == 3
