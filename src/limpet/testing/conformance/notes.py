"""Chapter: notes, small named documents of a scope or a snapshot id."""

from datetime import UTC, datetime, timedelta

import pytest

from limpet import JSON, Conflict, InvalidInput, Note, Scope, Store
from limpet.protocol import Backend
from limpet.testing.conformance._kit import Kit, Stores, present, spelled, unchanged


def _named(notes: "list[Note]") -> list[tuple[str | None, str]]:
    return [(note.snapshot_id, note.name) for note in notes]


class Notes(Kit):
    """`note`, `notes`, `set_note` and `delete_note`."""

    def test_a_note_is_what_was_set(self, scope: Scope) -> None:
        before = datetime.now(UTC) - timedelta(milliseconds=1)
        note = present(scope.set_note("plan", {"a": [1, 2.0]}))

        assert note == scope.note("plan")
        assert list(scope.notes()) == [note]
        assert (note.name, note.value, note.snapshot_id) == ("plan", {"a": [1, 2.0]}, None)
        assert note.updated_at.tzinfo is UTC
        assert before <= note.updated_at <= datetime.now(UTC)
        assert scope.note("other") is None

    def test_a_note_is_replaced(self, scope: Scope) -> None:
        revisions = {present(scope.set_note("n", value)).revision for value in (1, 2, 2)}

        assert len(revisions) == 3
        assert [note.value for note in scope.notes()] == [2]

    def test_a_note_on_an_id_needs_no_snapshot(self, scope: Scope) -> None:
        note = present(scope.set_note("n", 1, on="later"))
        assert note.snapshot_id == "later"

        scope.save(1, id="later")

        assert scope.note("n", on="later") == note
        assert scope.note("n") is None

    def test_notes_of_the_scope_and_on_ids_are_separate(self, scope: Scope) -> None:
        for value, on in enumerate([None, "a", "b"]):
            scope.set_note("n", value, on=on)

        assert [present(scope.note("n", on=on)).value for on in (None, "a", "b")] == [0, 1, 2]
        assert [note.value for note in scope.notes()] == [0]
        assert [note.value for note in scope.notes(on="b")] == [2]
        assert scope.delete_note("n", on="a") == 1
        assert [present(scope.note("n", on=on)).value for on in (None, "b")] == [0, 2]

    def test_notes_come_in_the_order_asked_and_by_name(
        self, scope: Scope, small_pages: int
    ) -> None:
        by_name = sorted(["A", "a", "b", "é", "\uffff", "\U0001f980"])
        for on in ("x", "y", "z", None):
            for name in reversed(by_name):
                scope.set_note(name, 1, on=on)

        expected = [(on, name) for on in ("z", "x") for name in by_name]
        assert _named(list(scope.notes(on=["z", "nothing", "x"]))) == expected
        assert _named(list(scope.notes())) == [(None, name) for name in by_name]

    def test_notes_take_any_iterable_of_ids(self, scope: Scope) -> None:
        scope.set_note("n", 1, on="a")
        scope.set_note("n", 1, on="b")

        assert _named(list(scope.notes(on="a"))) == [("a", "n")]
        assert _named(list(scope.notes(on=(each for each in "ba")))) == [("b", "n"), ("a", "n")]
        assert _named(list(scope.notes(on=["a", "b", "a"]))) == [("a", "n"), ("b", "n")]
        assert list(scope.notes(on=[])) == []

    def test_a_note_holds_any_json(self, scope: Scope) -> None:
        """Values come back exactly; None is stored as null, which is not the same as no note."""
        values: list[JSON] = [None, False, 0, 1.0, "", "\0\U0001f980", [], {}, {"b": 1, "a": 2**70}]
        for value in values:
            written = present(scope.set_note("n", value))
            assert spelled(written.value) == spelled(value)
            assert spelled(present(scope.note("n")).value) == spelled(value)

    def test_expect_compares_the_notes_own_revision(self, store: Store, scope: Scope) -> None:
        """None: there must be none yet. The head's revision has nothing to do with it."""
        head = scope.save(1)
        first = present(scope.set_note("n", 1, expect=None))
        second = present(scope.set_note("n", 2, expect=first.revision))
        with unchanged(store):
            for stale in (None, first.revision, head.revision, "0.0.nonsense"):
                with pytest.raises(Conflict):
                    scope.set_note("n", 3, expect=stale)
            with pytest.raises(Conflict):
                scope.set_note("new", 1, expect=second.revision)
            with pytest.raises(Conflict):
                scope.set_note("n", 1, on=head.id, expect=second.revision)

        scope.delete_note("n")
        again = present(scope.set_note("n", 1, expect=None))
        assert again.revision not in (first.revision, second.revision)

    def test_a_function_gets_the_present_value(self, scope: Scope) -> None:
        """The value alone, None if there is no note; what it returns is stored."""
        seen: list[JSON] = []

        def add(value: JSON) -> JSON:
            seen.append(value)
            return (value or 0) + 1

        for _ in range(3):
            scope.set_note("n", add, on="a")

        assert seen == [None, 1, 2]
        assert present(scope.note("n", on="a")).value == 3

    def test_a_function_that_returns_none_skips(self, store: Store, scope: Scope) -> None:
        assert scope.set_note("n", lambda value: None) is None
        assert list(store.scopes()) == []
        scope.set_note("n", [1])
        with unchanged(store):
            assert scope.set_note("n", lambda value: value.append(2)) is None

    def test_a_function_is_called_again_after_a_concurrent_write(
        self, scope: Scope, rival: Scope
    ) -> None:
        seen: list[JSON] = []

        def add(value: JSON) -> JSON:
            if len(seen) in (0, 2):
                rival.set_note("n", (value or 0) + 10)
            seen.append(value)
            return (value or 0) + 1

        scope.set_note("n", add)
        assert (seen, present(scope.note("n")).value) == ([None, 10], 11)
        scope.set_note("n", add)
        assert (seen[2:], present(scope.note("n")).value) == ([11, 21], 22)

    def test_a_function_with_expect_is_not_called_again(self, scope: Scope, rival: Scope) -> None:
        first = present(scope.set_note("n", 1))

        def disturbed(value: JSON) -> JSON:
            rival.set_note("n", 5)
            return 2

        with pytest.raises(Conflict):
            scope.set_note("n", disturbed, expect=first.revision)
        assert present(scope.note("n")).value == 5
        with pytest.raises(Conflict):
            scope.set_note("n", pytest.fail, expect=first.revision)
        with pytest.raises(Conflict):
            scope.set_note("n", pytest.fail, expect=None)

    def test_delete_note_counts_and_may_be_repeated(self, scope: Scope) -> None:
        scope.set_note("n", 1)

        assert scope.delete_note("n", on="a") == 0
        assert scope.delete_note("n") == 1
        assert scope.delete_note("n") == 0
        assert scope.note("n") is None

    def test_notes_touch_neither_head_nor_history(self, scope: Scope) -> None:
        first = scope.save(1, id="a")
        scope.set_note("n", 1)
        scope.set_note("n", 1, on="a")

        assert scope.info() == first
        assert list(scope.history()) == [first]
        scope.save(2, expect=first.revision)

    def test_delete_snapshot_removes_the_notes_on_it(self, scope: Scope) -> None:
        """All notes on that id go, also when there is no such snapshot; no others do."""
        scope.save(1, id="a")
        for on in ("a", "a2", "ghost", None):
            scope.set_note("m", 1, on=on)
            scope.set_note("n", 1, on=on)

        assert scope.delete_snapshot("a") == 1
        assert scope.delete_snapshot("ghost") == 0
        assert _named(list(scope.notes(on=["a", "ghost", "a2"]))) == [("a2", "m"), ("a2", "n")]
        assert len(list(scope.notes())) == 2

    def test_notes_on_a_replaced_draft_stay(self, scope: Scope) -> None:
        scope.save(1, id="d", keep=False)
        note = scope.set_note("n", 1, on="d")
        scope.save(2)

        assert scope.note("n", on="d") == note
        assert scope.delete_snapshot("d") == 0
        assert scope.note("n", on="d") is None

    def test_notes_stay_with_an_updated_or_overwritten_snapshot(self, scope: Scope) -> None:
        scope.save(1, id="a")
        note = scope.set_note("n", 1, on="a")
        scope.update("a", lambda s: s.with_(state=2))
        scope.save(3, id="a", overwrite=True)

        assert scope.note("n", on="a") == note

    def test_notes_of_scopes_are_separate(self, store: Store) -> None:
        keys = [("s",), ("t",), ("s", "b"), ("s", "main", "graph")]
        for at, key in enumerate(keys):
            store.scope(*key).set_note("n", at)

        assert [present(store.scope(*key).note("n")).value for key in keys] == [0, 1, 2, 3]
        store.scope("s").delete_note("n")
        assert [store.scope(*key).note("n") is None for key in keys] == [True, False, False, False]

    def test_a_note_is_bounded(self, stores: Stores) -> None:
        scope = stores(state_bytes_max=1_000).scope("s")

        scope.set_note("n", "x" * 998)
        with pytest.raises(InvalidInput):
            scope.set_note("n", "x" * 999)
        with pytest.raises(InvalidInput):
            scope.set_note("n", lambda value: value + "x")
        assert present(scope.note("n")).value == "x" * 998

    def test_large_notes_come_back(self, scope: Scope) -> None:
        value = {"text": "é\0" * 100_000}
        scope.set_note("manifest", value)

        assert present(scope.note("manifest")).value == value

    def test_an_undamaged_note_is_not_reported(self, backend: Backend, scope: Scope) -> None:
        for id in ("a", "b" * 300):
            scope.save({"n": id}, id=id)
            scope.set_note("n", 1, on=id)
        scope.set_note("manifest", {"v": 1})
        scope.delete_snapshot("a")
        scope.save(1, keep=False)

        assert backend.list_damage(scope.key) == []
        assert backend.list_damage(scope.key._replace(scope_id="none")) == []
        assert backend.list_unlisted() == []

    def test_the_ids_that_have_notes_are_listed(self, scope: Scope, small_pages: int) -> None:
        """Each once, as `ids` are, whether there is a snapshot or not; none after its notes."""
        ids = [f"id-{n:03}" for n in range(small_pages * 2 + 1)]
        long = "x" * 400
        assert list(scope.noted_ids()) == []
        scope.save(1, id=ids[1])
        scope.set_note("of the scope", 1)
        for each in (*ids, long):
            for name in ("a", "b"):
                scope.set_note(name, 1, on=each)

        assert list(scope.noted_ids()) == [*ids, long]
        assert list(scope.noted_ids(after=ids[2], limit=2)) == ids[3:5]
        assert list(scope.noted_ids(after="id-001x", limit=1)) == [ids[2]]
        scope.delete_snapshot(ids[1])
        scope.delete_note("a", on=ids[0])
        assert list(scope.noted_ids()) == [ids[0], *ids[2:], long]
        assert [n.snapshot_id for n in scope.notes(on=scope.noted_ids(limit=2))] == [
            ids[0],
            *[ids[2]] * 2,
        ]
