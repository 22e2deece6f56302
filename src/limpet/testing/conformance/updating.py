"""Chapter: `update`, the atomic read-change-write of one snapshot."""

import pytest

from limpet import JSON, Conflict, NotFound, Scope, Snapshot, Store
from limpet.protocol import Backend
from limpet.testing.conformance._kit import Kit, assert_labelled, names, present, unchanged


class _Whim(Exception):
    """An error of the caller's own."""


def _never(snapshot: Snapshot) -> None:
    pytest.fail("there is nothing to ask about")


class Updating(Kit):
    """`update` replaces the content of a snapshot."""

    def test_an_error_of_the_function_is_the_callers(self, scope: Scope, rival: Scope) -> None:
        """Also if it is a Conflict, and the snapshot has moved meanwhile: it is not retried."""
        scope.save({"n": 0}, id="a")
        asked: list[int] = []

        def refuse(snapshot: Snapshot) -> Snapshot:
            asked.append(1)
            rival.save({"n": len(asked)}, id="a", overwrite=True)
            raise Conflict("mine")

        with pytest.raises(Conflict, match="mine"):
            scope.update("a", refuse)
        assert asked == [1]

    def test_update_changes_what_is_replaced(self, scope: Scope) -> None:
        before = scope.save(
            {"n": 1}, id="a", parent="p", status="s", labels={"l": "1"}, metadata={"m": 1}
        )

        state = present(scope.update("a", lambda s: s.with_(state={"n": 2})))
        assert (state.status, state.labels, state.metadata) == ("s", {"l": "1"}, {"m": 1})
        facts = present(
            scope.update("a", lambda s: s.with_(status="t", labels={"k": "2"}, metadata={}))
        )

        loaded = present(scope.load("a"))
        assert (loaded.state, loaded.status) == ({"n": 2}, "t")
        assert (loaded.labels, loaded.metadata) == ({"k": "2"}, {})
        assert (facts.id, facts.parent_id) == ("a", "p")
        assert facts.created_at == before.created_at
        assert facts.updated_at >= state.updated_at >= before.updated_at
        assert len({before.revision, state.revision, facts.revision}) == 3
        assert facts == scope.info("a")

    def test_update_gives_the_snapshot_as_it_is(self, scope: Scope) -> None:
        scope.save({"n": 1}, id="a", labels={"l": "1"})
        seen: list[Snapshot] = []

        scope.update("a", seen.append)

        assert seen == [scope.load("a")]

    def test_update_that_returns_none_changes_nothing(self, store: Store, scope: Scope) -> None:
        scope.save({"n": [1]}, id="a", labels={"l": "1"})
        with unchanged(store):

            def spoil(snapshot: Snapshot) -> None:
                snapshot.state["n"].append(2)
                snapshot.labels["l"] = "2"

            assert scope.update("a", spoil) is None

    def test_update_that_returns_a_snapshot_always_writes(self, scope: Scope) -> None:
        """Even an equal snapshot makes a new revision: only `None` means no change."""
        before = scope.save(1, id="a")

        after = present(scope.update("a", lambda s: s))

        assert after.revision != before.revision
        assert scope.info("a") == after

    def test_update_may_change_its_copy_in_place(self, scope: Scope) -> None:
        scope.save({"n": [1]}, id="a")

        def extend(snapshot: Snapshot) -> Snapshot:
            snapshot.state["n"].append(2)
            return snapshot

        scope.update("a", extend)
        assert present(scope.load("a")).state == {"n": [1, 2]}

    def test_update_moves_neither_the_head_nor_the_order(self, scope: Scope) -> None:
        for n in range(3):
            scope.save(n, id=f"{n}")
        head = scope.info()

        scope.update("0", lambda s: s.with_(state="new"))

        assert scope.info() == head
        assert names(scope.history()) == ["2", "1", "0"]

    def test_update_of_the_head_is_seen_at_the_head(self, scope: Scope) -> None:
        scope.save(1, id="a")
        updated = scope.update("a", lambda s: s.with_(state=2))

        assert scope.info() == updated
        assert present(scope.load()).state == 2

    def test_update_of_a_draft_leaves_it_a_draft(self, scope: Scope) -> None:
        draft = scope.save(1, keep=False)
        updated = present(scope.update(draft.id, lambda s: s.with_(state=2)))

        assert not updated.kept
        assert present(scope.load()).state == 2
        assert list(scope.history()) == []

    def test_update_of_nothing_is_not_found(self, store: Store, scope: Scope) -> None:
        scope.save(1, id="a")
        draft = scope.save(2, id="d", keep=False)
        scope.save(3, id="b")
        with unchanged(store):
            for missing in ("missing", draft.id):
                with pytest.raises(NotFound):
                    scope.update(missing, _never)
            with pytest.raises(NotFound):
                store.scope("chat-42", "other").update("a", _never)

    def test_update_calls_the_function_again_after_a_concurrent_write(
        self, scope: Scope, rival: Scope
    ) -> None:
        scope.save({"n": 0}, id="a")
        calls: list[int] = []

        def add(snapshot: Snapshot) -> Snapshot:
            if not calls:
                rival.update("a", lambda s: s.with_(state={"n": 10}))
            calls.append(snapshot.state["n"])
            return snapshot.with_(state={"n": snapshot.state["n"] + 1})

        scope.update("a", add)

        assert calls == [0, 10]
        assert present(scope.load("a")).state == {"n": 11}

    def test_update_sees_an_overwrite_in_between(self, scope: Scope, rival: Scope) -> None:
        """An overwrite in between counts as a change, even one back to an equal body."""
        scope.save(0, id="a")
        calls: list[int] = []

        def add(snapshot: Snapshot) -> Snapshot:
            calls.append(snapshot.state)
            if len(calls) == 1:
                rival.save(1, id="a", overwrite=True)
                rival.save(0, id="a", overwrite=True)
            return snapshot.with_(state=snapshot.state + 1)

        scope.update("a", add)

        assert calls == [0, 0]
        assert present(scope.load("a")).state == 1

    def test_update_holds_nothing_while_the_function_runs(
        self, store: Store, scope: Scope, plain: Store
    ) -> None:
        scope.save(0, id="a")

        def write_meanwhile(snapshot: Snapshot) -> Snapshot:
            for key in (scope.key, ("chat-42", "other"), ("another",)):
                plain.scope(*key).save("meanwhile")
            return snapshot.with_(state=1)

        scope.update("a", write_meanwhile)

        assert present(scope.load("a")).state == 1
        assert present(scope.load()).state == "meanwhile"
        assert len(list(store.scopes())) == 3

    def test_update_of_what_is_deleted_meanwhile_is_not_found(
        self, scope: Scope, rival: Scope
    ) -> None:
        scope.save(0, id="a")
        scope.save(1, id="b")

        def delete(snapshot: Snapshot) -> Snapshot:
            rival.delete_snapshot("a")
            return snapshot

        with pytest.raises(NotFound):
            scope.update("a", delete)
        assert scope.load("a") is None
        assert names(scope.history()) == ["b"]

    def test_update_lets_the_functions_own_error_through(self, store: Store, scope: Scope) -> None:
        scope.save(0, id="a")
        with unchanged(store):

            def raise_it(snapshot: Snapshot) -> Snapshot:
                raise _Whim

            with pytest.raises(_Whim):
                scope.update("a", raise_it)

    def test_updated_labels_and_status_are_found(self, backend: Backend, scope: Scope) -> None:
        scope.save(1, id="a", labels={"run": "1"}, status="running")
        scope.update("a", lambda s: s.with_(labels={"run": "2"}, status="done"))

        assert_labelled(backend, scope, {"run": "1"}, [])
        assert_labelled(backend, scope, {"run": "2"}, ["a"])
        assert names(scope.history(status="running")) == []
        assert names(scope.history(status="done")) == ["a"]

    def test_update_leaves_the_others_alone(self, scope: Scope) -> None:
        texts: list[dict[str, JSON]] = [
            {"turns": [f"turn {n} " * 9 for n in range(last)]} for last in range(40)
        ]
        for n, state in enumerate(texts):
            scope.save(state, id=f"{n:02}")
        for n in (0, 7, 39, 20, 0):
            texts[n] = {"rewritten": n, "turns": texts[n].get("turns", [])[:1]}
            scope.update(f"{n:02}", lambda s, n=n: s.with_(state=texts[n]))  # type: ignore[misc]

        assert [s.state for s in scope.load_many(f"{n:02}" for n in range(40))] == texts
