"""Chapter: comfort. What serves as an id, and what values and errors say by themselves."""

import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

import limpet
from limpet import (
    AlreadyExists,
    Conflict,
    InvalidInput,
    NotFound,
    Scope,
    SnapshotInfo,
    SnapshotRef,
    Store,
)
from limpet.protocol import Backend
from limpet.testing.kit import (
    Api,
    Kit,
    Stores,
    case,
    names,
    present,
    refused,
    states,
    unchanged,
)

# What each verb answers for a snapshot, however that is given. Those that write undo it.
TAKES_A_SNAPSHOT: Final[dict[str, Callable[[Any, Any], Any]]] = {
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
ONLY_IN_ITS_SCOPE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    **{name: call for name, call in TAKES_A_SNAPSHOT.items() if name != "diff"},
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
            for verb, call in TAKES_A_SNAPSHOT.items():
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
            for verb, call in ONLY_IN_ITS_SCOPE.items():
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

    def test_default_makes_json_of_what_is_not(self, stores: Stores) -> None:
        scope = stores(default=limpet.jsonable).scope("s")
        moment = datetime(2026, 3, 1, tzinfo=UTC)
        text = moment.isoformat()

        scope.save({"at": moment}, id="a", metadata={"tags": {"y", "x"}})
        found = present(scope.load("a"))
        assert (found.state, found.metadata) == ({"at": text}, {"tags": ["x", "y"]})
        scope.append("list", [moment], metadata={"at": moment})
        assert present(scope.load()).state == {"at": text, "list": [text]}
        assert present(scope.info()).metadata == {"at": text}
        scope.update("a", lambda s: s.with_(state=[moment], metadata={"b": b"x"}))
        found = present(scope.load("a"))
        assert (found.state, found.metadata) == ([text], {"b": "eA=="})
        scope.set_note("n", {"at": moment})
        assert present(scope.note("n")).value == {"at": text}
        scope.set_note("n", lambda value: [value, moment])
        assert present(scope.note("n")).value == [{"at": text}, text]
        fork = scope.fork(scope.append("m", [1]), patch={"at": moment}, metadata={"at": moment})
        assert present(fork.load()).state["at"] == text
        assert present(fork.info()).metadata == {"at": text}
        scope.restore("a", metadata={"at": moment})
        assert present(scope.info()).metadata == {"at": text}

    def test_without_default_the_message_names_it(self, scope: Scope) -> None:
        for attempt in (
            lambda: scope.save({"s": {1}}),
            lambda: scope.save(1, metadata={"s": {1}}),
            lambda: scope.set_note("n", {"s": {1}}),
        ):
            with pytest.raises(InvalidInput, match=r"default=limpet\.jsonable") as caught:
                attempt()
            assert caught.value.path == "/s"

    def test_errors_have_what_they_say_as_fields(self, store: Store, scope: Scope) -> None:
        first = scope.save(1, id="a")
        second = scope.save(2)

        with pytest.raises(Conflict) as moved:
            scope.save(3, expect=first.revision)
        assert (moved.value.expected, moved.value.found) == (first.revision, second.revision)
        assert moved.value.scope == scope.key
        with pytest.raises(Conflict) as taken:
            scope.save(3, expect=None)
        assert (taken.value.expected, taken.value.found) == (None, second.revision)
        note = present(scope.set_note("n", 1))
        with pytest.raises(Conflict) as noted:
            scope.set_note("n", 2, expect=None)
        assert (noted.value.expected, noted.value.found) == (None, note.revision)
        with pytest.raises(AlreadyExists) as exists:
            scope.save(5, id="a")
        assert (exists.value.scope, exists.value.id) == (scope.key, "a")
        with pytest.raises(NotFound) as absent:
            scope.update("no", lambda s: s)
        assert (absent.value.scope, absent.value.id) == (scope.key, "no")
        with pytest.raises(InvalidInput) as invalid:
            scope.save({"a": [float("nan")]})
        assert invalid.value.path == "/a/0"
        with (
            scope.claim(owner="worker-1", ttl_s=60),
            pytest.raises(Conflict) as held,
            scope.claim(owner="worker-2"),
        ):
            pass
        assert held.value.owner == "worker-1"
        left = present(held.value.expires_at) - datetime.now(UTC)
        assert timedelta(0) < left < timedelta(seconds=70)
        for caught in (moved, exists, absent, invalid, held):
            again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
            assert (type(again), str(again)) == (type(caught.value), str(caught.value))
            assert vars(again) == vars(caught.value)

    def test_a_claim_without_a_block_says_so(self, scope: Scope, api: Api) -> None:
        claim: Any = getattr(scope, "_target", scope).claim(owner="worker-1")

        word = "with" if api == "sync" else "async with"
        for name in ("save", "load", "key", "token"):
            with pytest.raises(InvalidInput, match=f"write `{word} scope.claim"):
                getattr(claim, name)
        assert not hasattr(claim, "no_such_name")
        assert scope.info() is None
