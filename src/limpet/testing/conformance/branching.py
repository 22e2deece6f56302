"""Chapter: branches of history. Branches by `parent=`, `ancestors`, `leaves`, `diff`, `restore`."""

from collections.abc import Callable

import pytest

from limpet import Conflict, InvalidInput, NotFound, Scope, SnapshotInfo, Store
from limpet.protocol import Backend
from limpet.testing.conformance._kit import Kit, Stores, names, present, unchanged
from limpet.testing.conformance._layers import Watched


def _grow(scope: Scope, parents: dict[str, str | None]) -> None:
    """Save one snapshot for each id, in this order, under the parent given."""
    for each, parent in parents.items():
        scope.save({"of": each}, id=each, parent=parent)


# Two branches of a root, one of which branches again; and a root of its own.
_TREE: dict[str, str | None] = {
    "root": None,
    "left": "root",
    "right": "root",
    "left-1": "left",
    "left-2": "left",
    "right-1": "right",
    "alone": None,
}


class Branching(Kit):
    """The forest that `parent_id` makes of a history."""

    def test_a_branch_begins_at_the_parent_given(self, scope: Scope) -> None:
        scope.save(1, id="a")
        scope.save(2, id="b")
        branch = scope.save(3, id="c", parent="a")
        after = scope.save(4, id="d")

        assert (branch.parent_id, after.parent_id) == ("a", "c")
        assert present(scope.info()).id == "d"
        assert names(scope.history()) == ["d", "c", "b", "a"]
        assert names(scope.ancestors("d")) == ["d", "c", "a"]
        assert names(scope.ancestors("b")) == ["b", "a"]
        assert names(scope.leaves()) == ["d", "b"]

    def test_a_branch_that_is_only_kept_leaves_the_head(self, scope: Scope) -> None:
        scope.save(1, id="a")
        scope.save(2, id="b")
        scope.save(3, id="c", parent="a", head=False)
        scope.save(4, id="d", parent="c", head=False)

        assert scope.save(5, id="e").parent_id == "b"
        assert names(scope.ancestors("d")) == ["d", "c", "a"]
        assert names(scope.leaves()) == ["e", "d"]

    def test_ancestors_are_itself_first(self, scope: Scope) -> None:
        _grow(scope, _TREE)

        for start, line in {
            "left-2": ["left-2", "left", "root"],
            "right-1": ["right-1", "right", "root"],
            "root": ["root"],
            "alone": ["alone"],
        }.items():
            found = list(scope.ancestors(start))
            assert names(found) == line
            assert found == [scope.info(each) for each in line]
            assert all(type(each) is SnapshotInfo for each in found)

    def test_ancestors_of_nothing_are_not_found(self, store: Store, scope: Scope) -> None:
        _grow(scope, _TREE)
        scope.delete_snapshot("left")
        with unchanged(store):
            for there, missing in ((scope, "left"), (scope, "no"), (store.scope("s"), "root")):
                with pytest.raises(NotFound):
                    next(there.ancestors(missing))

    def test_ancestors_stop_at_a_missing_parent(self, scope: Scope) -> None:
        _grow(scope, {"a": None, "b": "a", "c": "b", "d": "c", "early": "later"})
        scope.delete_snapshot("b")

        assert names(scope.ancestors("d")) == ["d", "c"]
        assert names(scope.ancestors("early")) == ["early"]
        scope.save(1, id="later", parent="a")
        assert names(scope.ancestors("early")) == ["early", "later", "a"]
        scope.save(2, id="b", parent=None)
        assert names(scope.ancestors("d")) == ["d", "c", "b"]

    def test_ancestors_stay_in_their_scope(self, store: Store, scope: Scope) -> None:
        store.scope(scope.session_id, "other").save(1, id="a")
        store.scope(scope.session_id, scope.scope_id, "graph").save(1, id="a")
        scope.save(2, id="b", parent="a")

        assert names(scope.ancestors("b")) == ["b"]

    def test_ancestors_of_a_draft(self, scope: Scope) -> None:
        _grow(scope, {"a": None, "b": "a"})
        scope.save(3, id="draft", keep=False)

        assert names(scope.ancestors("draft")) == ["draft", "b", "a"]
        scope.save(4, id="c")
        assert names(scope.ancestors("c")) == ["c", "b", "a"]
        with pytest.raises(NotFound):
            next(scope.ancestors("draft"))

    def test_ancestors_of_parents_saved_later(self, scope: Scope, small_pages: int) -> None:
        line = [f"{n}" for n in range(small_pages * 3 + 1)]
        parents = dict(zip(line, [*line[1:], None], strict=True))
        mixed = [*line[::2], *reversed(line[1::2])]
        for at, order in enumerate((line, line[::-1], mixed)):
            prefixed = {
                f"{at}/{each}": None if parents[each] is None else f"{at}/{parents[each]}"
                for each in order
            }
            _grow(scope, prefixed)
            assert names(scope.ancestors(f"{at}/0")) == [f"{at}/{each}" for each in line]

    def test_ancestors_in_a_circle_end(self, store: Store, small_pages: int) -> None:
        """Parents may form a circle, since they are statements: each is met once, then it ends."""
        for length in (2, 3, 4, 7, 10):
            scope = store.scope("s", f"circle of {length}")
            circle = [f"{n}" for n in range(length)]
            _grow(scope, {each: circle[at - 1] for at, each in enumerate(circle)})
            _grow(scope, {"tail-1": circle[length // 2], "tail-2": "tail-1"})

            for at in range(length):
                round_once = [*circle[at::-1], *circle[:at:-1]]
                assert names(scope.ancestors(circle[at])) == round_once
            there = length // 2
            inside = [*circle[there::-1], *circle[:there:-1]]
            assert names(scope.ancestors("tail-2")) == ["tail-2", "tail-1", *inside]

    def test_ancestors_end_though_a_circle_is_closed_meanwhile(
        self, scope: Scope, rival: Scope, small_pages: int
    ) -> None:
        _grow(scope, {"a": None, "b": "a", "c": "b", "d": "c", "e": "d"})
        walk = scope.ancestors("e")
        seen = [next(walk).id for _ in range(small_pages)]
        assert seen == ["e", "d", "c"]

        rival.save(1, id="d", parent="e", overwrite=True)
        rival.save(2, id="b", parent="e", overwrite=True)

        rest = names(walk)
        assert rest[0] == "b"
        assert len(rest) <= 5

    def test_ancestors_come_in_pages(self, backend: Backend, stores: Stores) -> None:
        scope = stores(backend).scope("s")
        for n in range(600):
            scope.save(n, id=f"{n:03}")

        walk = scope.ancestors("599")
        first = next(walk)
        scope.delete_snapshot("010")
        assert [first.id, *names(walk)] == [f"{n:03}" for n in range(599, 10, -1)]

    def test_leaves_are_what_nothing_follows(self, scope: Scope) -> None:
        assert list(scope.leaves()) == []
        _grow(scope, _TREE)

        found = list(scope.leaves())
        assert names(found) == ["alone", "right-1", "left-2", "left-1"]
        assert found == [scope.info(each.id) for each in found]

    def test_leaves_come_in_pages(self, backend: Backend, stores: Stores, small_pages: int) -> None:
        watched = Watched(backend)
        scope = stores(watched.backend).scope("s")
        scope.save(0, id="root")
        for n in range(small_pages * 3):
            scope.save(n, id=f"{n}", parent="root")

        leaves = scope.leaves()
        assert watched.asked == []
        assert next(leaves).id == f"{small_pages * 3 - 1}"
        assert len(watched.asked) == 1
        assert names(leaves) == [f"{n}" for n in reversed(range(small_pages * 3 - 1))]
        assert max(watched.answered) <= small_pages

    def test_a_draft_is_no_child(self, scope: Scope) -> None:
        _grow(scope, {"a": None, "b": "a"})
        scope.save(3, id="draft", keep=False)

        assert names(scope.leaves()) == ["b"]
        scope.save(3, id="draft")
        assert names(scope.leaves()) == ["draft"]

    def test_deleting_in_the_middle_makes_no_leaves(self, scope: Scope) -> None:
        _grow(scope, _TREE)
        scope.delete_snapshot("left")
        assert names(scope.leaves()) == ["alone", "right-1", "left-2", "left-1"]

        scope.delete_snapshot("root")
        assert names(scope.leaves()) == ["alone", "right-1", "left-2", "left-1"]

        scope.delete_snapshot("right-1")
        assert names(scope.leaves()) == ["alone", "left-2", "left-1", "right"]

    def test_leaves_of_children_saved_before_their_parents(self, scope: Scope) -> None:
        scope.save(1, id="child", parent="parent")
        assert names(scope.leaves()) == ["child"]
        scope.save(0, id="parent", parent=None)
        assert names(scope.leaves()) == ["child"]
        scope.delete_snapshot("child")
        assert names(scope.leaves()) == ["parent"]

    def test_leaves_see_an_overwritten_parent(self, scope: Scope) -> None:
        _grow(scope, {"a": None, "b": "a", "c": "a"})
        scope.save({"of": "c"}, id="c", parent="b", overwrite=True)
        scope.save({"of": "b"}, id="b", parent=None, overwrite=True)

        assert names(scope.leaves()) == ["c", "a"]

    def test_leaves_stay_in_their_scope(self, store: Store, scope: Scope) -> None:
        scope.save(1, id="a")
        store.scope(scope.session_id, "other").save(2, id="b", parent="a")
        store.scope(scope.session_id, scope.scope_id, "graph").save(2, id="b", parent="a")

        assert names(scope.leaves()) == ["a"]
        assert list(store.scope("nowhere").leaves()) == []

    def test_diff_tells_what_changed(self, store: Store, scope: Scope) -> None:
        scope.save({"n": 1, "gone": 0, "same": []}, id="a")
        scope.save({"n": 2, "same": [], "new": None}, id="b")
        with unchanged(store):
            found = scope.diff("a", "b")
            assert found
            assert {(c.kind, c.path, c.before, c.after) for c in found.changes} == {
                ("changed", "/n", 1, 2),
                ("removed", "/gone", 0, None),
                ("added", "/new", None, None),
            }
            back = {(c.kind, c.path) for c in scope.diff("b", "a").changes}
            assert {("changed", "/n"), ("added", "/gone"), ("removed", "/new")} <= back

    def test_diff_of_equal_states_is_falsy(self, scope: Scope) -> None:
        scope.save({"n": [1, {"x": None}]}, id="a", status="one", labels={"l": "1"})
        scope.save({"n": [1, {"x": None}]}, id="b", status="two", metadata={"m": 1})
        scope.save({"n": [1.0, {"x": None}]}, id="c")

        for a, b in (("a", "a"), ("a", "b"), ("b", "a")):
            assert not scope.diff(a, b)
            assert scope.diff(a, b).changes == ()
            assert scope.diff(a, b).to_json_patch() == []
        assert scope.diff("a", "c")

    def test_diff_needs_both(self, store: Store, scope: Scope) -> None:
        scope.save(1, id="a")
        scope.save(2, id="draft", keep=False)
        store.scope("other").save(3, id="b")

        assert scope.diff("a", "draft")
        scope.save(3, id="c")
        missing: list[Callable[[], object]] = [
            lambda: scope.diff("a", "b"),
            lambda: scope.diff("b", "a"),
            lambda: scope.diff("a", "draft"),
            lambda: store.scope("nowhere").diff("a", "a"),
        ]
        for attempt in missing:
            with pytest.raises(NotFound):
                attempt()

    def test_a_restored_state_is_a_new_head(self, scope: Scope) -> None:
        """It follows the snapshot it came from, and everything else stays in history."""
        first = scope.save({"n": 1}, status="odd", labels={"l": "1"}, metadata={"m": 1})
        second = scope.save({"n": 2})
        info = scope.restore(first.id)

        assert scope.info() == info
        assert info.kept
        assert info.parent_id == first.id
        assert info.id not in (first.id, second.id)
        assert present(scope.load()).state == {"n": 1}
        assert (info.status, info.labels, info.metadata) == ("odd", {"l": "1"}, {"m": 1})
        assert list(scope.history()) == [info, second, first]
        assert names(scope.leaves()) == [info.id, second.id]
        other = scope.restore(second.id, labels={}, metadata={"why": "x"}, expect=info.revision)
        assert (other.labels, other.metadata) == ({}, {"why": "x"})
        assert present(scope.load()).state == {"n": 2}

    def test_a_restored_draft_is_kept(self, scope: Scope) -> None:
        """A draft is gone when the head moves, so that nothing can follow it but its parent."""
        kept = scope.save(1)
        draft = scope.save(2, keep=False)
        info = scope.restore(draft.id)

        assert info.parent_id == kept.id
        assert names(scope.history()) == [info.id, kept.id]
        assert present(scope.load()).state == 2

    def test_a_restore_compares_and_refuses(self, store: Store, scope: Scope) -> None:
        first = scope.save(1)
        scope.save(2)
        with unchanged(store):
            with pytest.raises(Conflict):
                scope.restore(first.id, expect=first.revision)
            with pytest.raises(Conflict):
                scope.restore(first.id, expect=None)
            with pytest.raises(NotFound):
                scope.restore("nowhere")
            with pytest.raises(InvalidInput):
                scope.restore(first.id, labels={"a": 1})  # type: ignore[dict-item]
