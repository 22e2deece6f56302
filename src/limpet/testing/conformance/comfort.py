"""Chapter: comfort. What serves as an id, and what values and errors say by themselves."""

from collections.abc import Callable
from typing import Any, Final

from limpet import InvalidInput, Scope, SnapshotInfo, SnapshotRef, Store
from limpet.protocol import Backend
from limpet.testing.conformance._kit import Kit, case, names, present, refused, states, unchanged

# What each verb answers for a snapshot, however that is given. Those that write undo it.
_TAKES_A_SNAPSHOT: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "load": lambda scope, one: scope.load(one).state,
    "load_many": lambda scope, one: states(scope.load_many([one, "first"])),
    "info": lambda scope, one: scope.info(one),
    "history": lambda scope, one: names(scope.history(after=one)),
    "ids": lambda scope, one: list(scope.ids(after=one)),
    "noted_ids": lambda scope, one: list(scope.noted_ids(after=one)),
    "ancestors": lambda scope, one: names(scope.ancestors(one)),
    "update": lambda scope, one: scope.update(one, lambda snapshot: None),
    "note": lambda scope, one: scope.note("n", on=one).value,
    "notes": lambda scope, one: [note.value for note in scope.notes(on=one)],
    "notes of many": lambda scope, one: [note.value for note in scope.notes(on=[one])],
    "set_note": lambda scope, one: scope.set_note("n", lambda value: None, on=one),
    "delete_note": lambda scope, one: (
        scope.set_note("other", 1, on=one) and scope.delete_note("other", on=one)
    ),
    "diff": lambda scope, one: bool(scope.diff(one, "middle")),
    "watch": lambda scope, one: next(scope.watch(one, timeout_s=5)).id,
    "fork": lambda scope, one: scope.fork(one, to="away").delete(),
}
_ONLY_IN_ITS_SCOPE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    **{name: call for name, call in _TAKES_A_SNAPSHOT.items() if name != "diff"},
    "restore": lambda scope, one: scope.restore(one),
    "delete_snapshot": lambda scope, one: scope.delete_snapshot(one),
    "parent": lambda scope, one: scope.save(1, parent=one),
}


def _ways(info: SnapshotInfo, scope: Scope) -> list[Any]:
    return [info, present(scope.load(info.id)), SnapshotRef(info.scope, info.id)]


class Comfort(Kit):
    """The first hour should be pleasant."""

    def _furnished(self, scope: Scope) -> SnapshotInfo:
        scope.save({"n": 1}, id="first")
        info = scope.save({"n": 2}, id="middle")
        scope.save({"n": 3}, id="newest")
        scope.set_note("n", "on it", on="middle")
        return info

    def test_an_info_a_snapshot_or_a_ref_serves_as_an_id(self, store: Store, scope: Scope) -> None:
        info = self._furnished(scope)

        with unchanged(store):
            for verb, call in _TAKES_A_SNAPSHOT.items():
                expected = call(scope, info.id)
                for given in _ways(info, scope):
                    with case(f"{verb} of a {type(given).__name__}"):
                        assert call(scope, given) == expected
        for given in _ways(info, scope):
            assert scope.save(4, parent=given).parent_id == "middle"
        assert scope.restore(info).parent_id == "middle"
        assert scope.delete_snapshot(info) == 1
        assert scope.info("middle") is None

    def test_a_snapshot_of_another_scope_is_not_mistaken(self, store: Store, scope: Scope) -> None:
        """Its id may exist here as well, and name something else."""
        self._furnished(scope)
        elsewhere = store.scope("other")
        info = self._furnished(elsewhere)

        with unchanged(store):
            for verb, call in _ONLY_IN_ITS_SCOPE.items():
                for given in _ways(info, elsewhere):
                    with case(f"{verb} of a {type(given).__name__}"):
                        refused(InvalidInput, [lambda: call(scope, given)])  # noqa: B023

    def test_diff_compares_across_scopes(self, store: Store, scope: Scope) -> None:
        scope.save({"n": 1}, id="a")
        there = store.scope("other", "else", "graph").save({"n": 5}, id="a")

        for given in _ways(there, store.scope(*there.scope)):
            (change,) = scope.diff("a", given).changes
            assert (change.path, change.before, change.after) == ("/n", 1, 5)
            assert not scope.diff(given, there)
            (back,) = scope.diff(given, "a").changes
            assert (back.before, back.after) == (5, 1)

    def test_a_store_finds_and_watches_that_very_snapshot(
        self, store: Store, scope: Scope, backend: Backend
    ) -> None:
        info = scope.save(1, id="a")
        store.scope("other").save(2, id="a")

        for given in _ways(info, scope):
            assert store.find(given) == info
            assert store.find(given, prefix="chat") == info
            assert store.find(given, prefix="other") is None
            assert next(iter(store.watch(snapshot_id=given, timeout_s=5))) == info
            refused(InvalidInput, [lambda: store.watch(snapshot_id=given, prefix="x")])  # noqa: B023
        if "index" in backend.capabilities:
            newest, oldest = store.history()
            assert list(store.history(after=SnapshotRef(newest.scope, newest.id))) == [oldest]
