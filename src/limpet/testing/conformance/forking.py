"""Chapter: forks. A new line that begins at an existing snapshot."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from limpet import JSON, AlreadyExists, InvalidInput, NotFound, Scope, ScopeKey, SnapshotRef, Store
from limpet.protocol import Backend
from limpet.testing.conformance._apis import Api
from limpet.testing.conformance._kit import (
    Kit,
    case,
    dump,
    is_durable,
    names,
    present,
    spelled,
    unchanged,
)

_NAME = re.compile(r"planner~[a-z0-9]{8}")


class Forking(Kit):
    """`fork`, in the session and to another one."""

    def test_a_fork_begins_at_a_snapshot(self, scope: Scope) -> None:
        """Its first snapshot has that state, no parent, and says where it came from."""
        scope.save({"n": 1}, id="a")
        scope.save({"n": 2}, id="b")

        fork = scope.fork("a")

        first = present(fork.load())
        assert first.state == {"n": 1}
        assert first.kept
        assert first.parent_id is None
        assert first.forked_from == SnapshotRef(scope.key, "a")
        assert first.id != "a"
        assert names(fork.history()) == names(fork.leaves()) == [first.id]
        assert names(fork.ancestors(first.id)) == [first.id]
        assert fork.save({"n": 9}, id="next").parent_id == first.id
        assert present(scope.load()).state == {"n": 2}

    def test_a_fork_in_the_session_gets_a_name(self, scope: Scope) -> None:
        """`<scope_id>~<8 of [a-z0-9]>` of the same session and kind, each time another."""
        scope.save(1, id="a")

        keys = [scope.fork("a").key for _ in range(5)]
        keys += [scope.fork("a", to=scope.session_id).key]

        assert len(set(keys)) == 6
        for key in keys:
            assert _NAME.fullmatch(key.scope_id)
            assert (key.session_id, key.kind) == (scope.session_id, scope.kind)

    def test_a_fork_of_a_fork_replaces_the_suffix(self, store: Store, scope: Scope) -> None:
        """Names do not grow; only a complete suffix counts as one."""
        scope.save(1, id="a")
        fork = scope.fork("a")
        first = present(fork.info())

        second = fork.fork(first.id)
        third = second.fork(present(second.info()).id)

        for each in (second, third):
            assert _NAME.fullmatch(each.scope_id)
        assert len({scope.key, fork.key, second.key, third.key}) == 4
        assert present(second.info()).forked_from == SnapshotRef(fork.key, first.id)
        for name in ("x~short", "x~toolongname", "x~ABCDEFGH", "x~abcdefg\n", "~abcdefgh"):
            odd = store.scope("s", name)
            odd.save(1, id="a")
            assert re.fullmatch(re.escape(name) + r"~[a-z0-9]{8}", odd.fork("a").scope_id)

    def test_the_longest_name_makes_room_for_the_suffix(self, store: Store) -> None:
        """An id of 512 characters is cut, so that its fork has one too."""
        long = store.scope("s", "n" * 512)
        long.save(1, id="a")

        fork = long.fork("a")
        assert re.fullmatch(r"n{503}~[a-z0-9]{8}", fork.scope_id)
        assert fork.fork(present(fork.info()).id).scope_id[:504] == "n" * 503 + "~"
        assert long.fork("a", to="t").scope_id == "n" * 512

    def test_a_fork_to_another_session_keeps_the_name(self, store: Store) -> None:
        graph = store.scope("alice/1", "plan~abcdefgh", "graph")
        graph.save({"n": 1}, id="a")

        fork = graph.fork("a", to="alice/2")

        assert fork.key == ScopeKey("alice/2", "plan~abcdefgh", "graph")
        assert present(fork.info()).forked_from == SnapshotRef(graph.key, "a")
        named = graph.fork("a", to="alice/2", scope_id="mine")
        assert named.key == ScopeKey("alice/2", "mine", "graph")
        assert graph.fork("a", scope_id="b").key == ScopeKey("alice/1", "b", "graph")

    def test_a_fork_to_another_session_is_self_contained(
        self, backend: Backend, store: Store, scope: Scope, reopen: Callable[[], Store]
    ) -> None:
        state = {"turns": [f"turn {n} " * 20 for n in range(50)], "z": 1.0, "a": None}
        scope.save({"turns": state["turns"][:-1]})  # type: ignore[index]
        scope.save(state, id="a", metadata={"m": 1}, labels={"l": "1"})
        scope.append("turns", ["more"])

        fork = scope.fork("a", to="other")
        assert store.delete_session(scope.session_id) == 3
        store.compact()

        shown = [fork, *([reopen().scope(*fork.key)] if is_durable(backend) else [])]
        for each in shown:
            first = present(each.load())
            assert spelled(first.state) == spelled(state)
            assert (first.metadata, first.labels) == ({"m": 1}, {"l": "1"})
            assert first.forked_from == SnapshotRef(scope.key, "a")
        assert list(store.sessions()) == ["other"]

    def test_a_taken_name_already_exists(self, store: Store, scope: Scope) -> None:
        scope.save(1, id="a")
        hold: dict[str, Callable[[Scope], object]] = {
            "head": lambda taken: taken.save(2),
            "kept": lambda taken: taken.save(2, head=False),
            "draft": lambda taken: taken.save(2, keep=False),
            "note": lambda taken: taken.set_note("n", None),
            "note on an id": lambda taken: taken.set_note("n", 1, on="later"),
        }
        for held, fill in hold.items():
            fill(store.scope(scope.session_id, held))
            fill(store.scope(held, scope.scope_id))
            attempts: list[dict[str, Any]] = [{"scope_id": held}, {"to": held}]
            with case(held), unchanged(store, on=["later"]):
                for options in (*attempts, {"scope_id": scope.scope_id}):
                    with pytest.raises(AlreadyExists):
                        scope.fork("a", **options)

    def test_a_name_that_holds_nothing_any_more_is_free(self, store: Store, scope: Scope) -> None:
        scope.save(1, id="a")
        used = store.scope(scope.session_id, "used")
        used.save(2, id="b")
        used.save(3, id="c", keep=False)
        used.set_note("n", 1)
        for empty in (used.delete_note("n"), used.delete_snapshot("c"), used.delete_snapshot("b")):
            assert empty == 1
        assert used.load() is None

        assert present(scope.fork("a", scope_id="used").load()).state == 1
        other = store.scope("other", scope.scope_id)
        other.save(1)
        other.delete()
        assert present(scope.fork("a", to="other").load()).state == 1

    def test_a_name_of_another_kind_or_session_is_free(self, store: Store, scope: Scope) -> None:
        scope.save(1, id="a")
        store.scope(scope.session_id, "x", "graph").save(2)
        store.scope("elsewhere", "x").save(2)

        assert scope.fork("a", scope_id="x").key == ScopeKey(scope.session_id, "x")

    def test_facts_are_copied_unless_given(self, scope: Scope) -> None:
        scope.save(
            1, id="a", status="paused", labels={"l": "1", "b": ""}, metadata={"z": 1, "a": 2}
        )

        plain = present(scope.fork("a").info())
        assert (plain.status, plain.labels) == ("paused", {"l": "1", "b": ""})
        assert spelled(plain.metadata) == spelled({"z": 1, "a": 2})
        given = present(scope.fork("a", labels={"l": "2"}, metadata={"new": []}).info())
        assert (given.status, given.labels, given.metadata) == ("paused", {"l": "2"}, {"new": []})
        empty = present(scope.fork("a", labels={}, metadata={}).info())
        assert (empty.labels, empty.metadata) == ({}, {})
        source = present(scope.info("a"))
        assert (source.labels, source.metadata) == ({"l": "1", "b": ""}, {"z": 1, "a": 2})

    def test_notes_are_not_copied(self, scope: Scope) -> None:
        scope.save(1, id="a")
        scope.set_note("n", 1)
        scope.set_note("n", 2, on="a")

        fork = scope.fork("a")
        first = present(fork.info())
        assert list(fork.notes()) == list(fork.notes(on=["a", first.id])) == []

    def test_a_mapping_replaces_top_level_keys(self, scope: Scope) -> None:
        """Keys that exist keep their position, new ones come last; nothing is merged deeper."""
        scope.save({"z": 1, "deep": {"x": 1, "y": 2}, "a": 3}, id="a")

        patch: dict[str, JSON] = {"new": None, "deep": {"y": 9}}
        first = present(scope.fork("a", patch=patch).load())

        assert spelled(first.state) == spelled({"z": 1, "deep": {"y": 9}, "a": 3, "new": None})
        assert first.size == len('{"z":1,"deep":{"y":9},"a":3,"new":null}')
        patch["deep"]["y"] = 10
        assert present(scope.load("a")).state == {"z": 1, "deep": {"x": 1, "y": 2}, "a": 3}
        assert present(scope.fork("a", patch={}).load()).state["deep"] == {"x": 1, "y": 2}

    def test_a_mapping_patches_only_objects(self, store: Store, scope: Scope) -> None:
        for state in (None, [], [1], "text", 7, True):
            source = scope.save(state)
            for patch in ({"a": 1}, {}):
                with unchanged(store), pytest.raises(InvalidInput):
                    scope.fork(source.id, patch=patch)

    def test_a_function_maps_the_state(self, scope: Scope) -> None:
        """It gets a copy of its own, and whatever JSON it returns is the state, null too."""
        scope.save({"items": [1]}, id="a")

        def extend(state: JSON) -> JSON:
            state["items"].append(2)
            return state

        assert present(scope.fork("a", patch=extend).load()).state == {"items": [1, 2]}
        assert present(scope.load("a")).state == {"items": [1]}
        answers: list[JSON] = [None, [], "text", {"z": 1.0, "a": 1}]
        for answer in answers:
            fork = scope.fork("a", patch=lambda state, answer=answer: answer)  # type: ignore[misc]
            assert spelled(present(fork.load()).state) == spelled(answer)

    def test_an_async_function_is_awaited_by_the_async_api(
        self, api: Api, store: Store, scope: Scope
    ) -> None:
        scope.save({"n": 1}, id="a")
        before = dump(store)

        async def add(state: JSON) -> JSON:
            return {"n": state["n"] + 1}

        fork: Callable[[], Scope] = lambda: scope.fork("a", patch=add)  # noqa: E731
        if api == "sync":
            with pytest.raises(InvalidInput, match=r"store\.aio"):
                fork()
            assert dump(store) == before
        else:
            assert present(fork().load()).state == {"n": 2}

    def test_the_functions_own_error_passes_through(self, store: Store, scope: Scope) -> None:
        scope.save({"n": 1}, id="a")
        with unchanged(store), pytest.raises(ZeroDivisionError):
            scope.fork("a", patch=lambda state: state["n"] / 0)

    def test_a_fork_of_nothing_is_not_found(self, store: Store, scope: Scope) -> None:
        scope.save(1, id="a")
        scope.save(2, id="draft", keep=False)
        scope.save(3, id="b")
        with unchanged(store):

            def never(state: JSON) -> JSON:
                raise AssertionError("a function was asked about nothing")

            for missing in ("no", "draft"):
                with pytest.raises(NotFound):
                    scope.fork(missing, patch=never)
                with pytest.raises(NotFound):
                    scope.fork(missing, to="other")
            with pytest.raises(NotFound):
                store.scope("nowhere").fork("a")

    def test_a_fork_of_a_draft_is_kept(self, scope: Scope) -> None:
        scope.save({"n": 1}, id="a")
        scope.save({"n": 2}, id="draft", keep=False)

        fork = scope.fork("draft")
        scope.save({"n": 3}, id="b")

        first = present(fork.load())
        assert (first.state, first.kept) == ({"n": 2}, True)
        assert first.forked_from == SnapshotRef(scope.key, "draft")
        assert names(fork.history()) == [first.id]

    def test_promise_05_kept_means_kept_for_forks(
        self, backend: Backend, scope: Scope, reopen: Callable[[], Store]
    ) -> None:
        """Whatever happens to the source never changes the fork, and the other way round."""
        turns = [f"turn {n} " * 9 for n in range(40)]
        model: dict[tuple[ScopeKey, str], JSON] = {}
        for n in range(40):
            state = {"turns": turns[: n + 1]}
            model[scope.key, scope.save(state, id=f"{n:02}").id] = state
        forks = []
        for n in (0, 13, 14, 31, 39):
            for to in (None, "other"):
                fork = scope.fork(f"{n:02}", to=to, scope_id=f"fork-{n}")
                forks.append(fork)
                model[fork.key, present(fork.info()).id] = {"turns": turns[: n + 1]}
                more = fork.append("turns", ["of the fork"])
                model[fork.key, more.id] = {"turns": [*turns[: n + 1], "of the fork"]}

        for n in (0, 14, 31):
            scope.update(f"{n:02}", lambda s: s.with_(state="changed"))
            model[scope.key, f"{n:02}"] = "changed"
        for n in (13, 39):
            scope.delete_snapshot(f"{n:02}")
            del model[scope.key, f"{n:02}"]
        first = next(iter(forks[2].ids()))
        forks[2].update(first, lambda s: s.with_(state="changed too"))
        model[forks[2].key, first] = "changed too"
        forks[4].delete()
        for at in [at for at in model if at[0] == forks[4].key]:
            del model[at]
        scope.prune(keep_last=20)
        for at in [at for at in model if at[0] == scope.key and at[1] < "19"]:
            del model[at]

        opened = reopen() if is_durable(backend) else None
        for each in [scope, *forks]:
            for shown in [each, *([] if opened is None else [opened.scope(*each.key)])]:
                states = {s.id: s.state for s in shown.load_many(list(shown.ids()))}
                assert states == {at[1]: v for at, v in model.items() if at[0] == each.key}

    def test_a_fork_uses_what_its_source_has_become(self, scope: Scope, rival: Scope) -> None:
        """While a slow function thinks, the source is updated: it is asked again."""
        scope.save({"n": 1}, id="a", labels={"l": "1"})
        seen: list[Any] = []

        def slow(state: JSON) -> JSON:
            seen.append(state["n"])
            if len(seen) == 1:
                rival.update("a", lambda s: s.with_(state={"n": 2}, labels={"l": "2"}))
            return {"n": state["n"] * 10}

        fork = scope.fork("a", patch=slow)

        first = present(fork.load())
        assert seen == [1, 2]
        assert (first.state, first.labels) == ({"n": 20}, {"l": "2"})
        assert names(fork.history()) == [first.id]

    def test_a_source_deleted_meanwhile_is_not_found(
        self, store: Store, scope: Scope, rival: Scope
    ) -> None:
        scope.save({"n": 1}, id="a")
        scope.save({"n": 2}, id="b")
        scope.save({"n": 3}, id="c")
        gone: list[tuple[str, Callable[[], object], dict[str, Any]]] = [
            ("a", lambda: rival.delete_snapshot("a"), {}),
            ("b", lambda: rival.prune(keep_last=1), {"to": "other"}),
            ("c", lambda: rival.delete(), {"scope_id": "mine"}),
        ]
        for source, delete, options in gone:

            def slow(state: JSON, delete: Callable[[], object] = delete) -> JSON:
                delete()
                return state

            with pytest.raises(NotFound):
                scope.fork(source, patch=slow, **options)
        assert dump(store) == [[], []]

    def test_a_name_taken_meanwhile_already_exists(
        self, store: Store, scope: Scope, plain: Store
    ) -> None:
        scope.save({"n": 1}, id="a")

        def slow(state: JSON) -> JSON:
            plain.scope("other", scope.scope_id).save("first", id="x")
            return state

        with pytest.raises(AlreadyExists):
            scope.fork("a", to="other", patch=slow)
        assert names(store.scope("other", scope.scope_id).history()) == ["x"]
