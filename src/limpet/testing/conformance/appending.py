"""Chapter: `append`, which adds items to one list of the head's state."""

from collections.abc import Callable

import pytest

from limpet import JSON, Conflict, InvalidInput, Scope, Store
from limpet.testing.conformance._kit import (
    Kit,
    Stores,
    names,
    nested,
    present,
    refused,
    spelled,
    unchanged,
)


class Appending(Kit):
    """`append` is a save of the head's state with more in it."""

    def test_append_adds_to_a_list_of_the_head(self, scope: Scope) -> None:
        first = scope.save({"messages": ["a"], "mood": "calm"})
        second = scope.append("messages", ["b", {"c": [1]}])

        assert present(scope.load()).state == {"messages": ["a", "b", {"c": [1]}], "mood": "calm"}
        assert present(scope.load(first.id)).state == {"messages": ["a"], "mood": "calm"}
        assert second.parent_id == first.id
        assert second == scope.info()
        assert list(scope.history()) == [second, first]

    def test_append_creates_the_scope_and_the_list(self, scope: Scope) -> None:
        scope.append("messages", [1])
        scope.append("files", [2])

        assert spelled(present(scope.load()).state) == "{'messages': [1], 'files': [2]}"

    def test_append_ignores_history_where_there_is_no_head(self, scope: Scope) -> None:
        scope.save({"messages": ["old"]}, id="a", head=False)
        scope.append("messages", ["new"])

        assert present(scope.load()).state == {"messages": ["new"]}

    def test_append_continues_a_draft(self, scope: Scope) -> None:
        kept = scope.save({"messages": []})
        draft = scope.append("messages", [1], keep=False)
        more = scope.append("messages", [2], keep=False)
        last = scope.append("messages", [3])

        assert (draft.kept, more.kept, last.kept) == (False, False, True)
        assert scope.load(draft.id) is None
        assert scope.load(more.id) is None
        assert present(scope.load()).state == {"messages": [1, 2, 3]}
        assert names(scope.history()) == [last.id, kept.id]
        assert last.parent_id == kept.id

    def test_append_has_the_facts_that_are_given(self, scope: Scope) -> None:
        scope.save({"m": []}, status="old", labels={"old": "1"}, metadata={"old": 1})

        plain = scope.append("m", [1])
        rich = scope.append("m", [2], status="new", labels={"n": "1"}, metadata={"n": 1})

        assert (plain.status, plain.labels, plain.metadata) == ("old", {}, {})
        assert (rich.status, rich.labels, rich.metadata) == ("new", {"n": "1"}, {"n": 1})
        assert rich == scope.info(rich.id)

    def test_append_keeps_the_status_of_the_head(self, scope: Scope) -> None:
        assert scope.append("m", [1]).status == ""
        assert scope.append("m", [2], status="waiting").status == "waiting"
        assert scope.append("m", [3], keep=False).status == "waiting"
        assert scope.append("m", [4]).status == "waiting"
        assert scope.append("m", [5], status="").status == ""
        assert scope.append("m", [6]).status == ""

    def test_append_of_nothing_is_a_snapshot(self, scope: Scope) -> None:
        scope.save({"m": [1]})
        scope.append("m", [])
        scope.append("other", [])

        assert present(scope.load()).state == {"m": [1], "other": []}
        assert len(list(scope.history())) == 3

    def test_append_tells_the_size_of_the_whole_state(self, scope: Scope) -> None:
        scope.append("m", [1, 2])
        assert scope.append("m", ["é"]).size == len('{"m":[1,2,"é"]}'.encode())

    def test_append_is_exact(self, scope: Scope) -> None:
        """What append makes is what a save of the same state would make, to the last byte."""
        states: list[dict[str, JSON]] = [
            {"m": [2**70, -(2**65)], "n": 1},
            {"m": [1.0, -0.0, 1e300]},
            {"b": 1, "m": [], "a": {"z": 0, "y": "\0"}},
            {"m": ["]}", '"', "\\", "[", "é\U0001f980"], "]": "}"},
            {"m": [{"m": [1]}], "x": {"m": [2]}},
            {},
            {"a": {"m": [9]}},
            {"": [], "m": [[]]},
        ]
        more: list[list[JSON]] = [[1.0], [2**64], ["\0é\U0001f980"], [{"m": []}, []], [None]]
        for state in states:
            for items in more:
                scope.save(state)
                appended = scope.append("m", items)
                expected = {**state, "m": [*state.get("m", []), *items]}
                assert spelled(present(scope.load()).state) == spelled(expected)
                assert scope.save(expected).size == appended.size

    def test_append_takes_any_key(self, scope: Scope) -> None:
        keys = ["", '"', "\\", "\0", "a/b", "é", "\U0001f980", "__proto__"]
        for key in keys:
            scope.append(key, [key])
            scope.append(key, [1])

        assert present(scope.load()).state == {key: [key, 1] for key in keys}

    def test_append_compares_the_head(self, store: Store, scope: Scope) -> None:
        first = scope.append("m", [1], expect=None)
        second = scope.append("m", [2], expect=first.revision)
        with unchanged(store):
            for stale in (None, first.revision, "0.0.nonsense"):
                with pytest.raises(Conflict):
                    scope.append("m", [3], expect=stale)
        assert second == scope.info()

    def test_append_needs_a_list_in_an_object(self, store: Store, scope: Scope) -> None:
        states: list[JSON] = [None, 1, "text", [], [1], True]
        values: list[JSON] = [None, {}, "text", 0, True]
        for keep in (True, False):
            for state in [*states, *({"m": value, "list": [1]} for value in values)]:
                scope.save(state, id=f"{keep}", keep=keep, overwrite=True)
                with unchanged(store), pytest.raises(InvalidInput):
                    scope.append("m", [1])

    def test_append_is_bounded_in_depth_and_size(self, stores: Stores) -> None:
        store = stores(state_bytes_max=1_000)
        scope = store.scope("s")
        scope.append("m", [nested(198)])
        too_much: list[Callable[[], object]] = [
            lambda: scope.append("m", [nested(199)]),
            lambda: scope.append("m", ["x" * 980]),
            lambda: scope.append("m", ["x" * 600]),
        ]
        scope.append("m", ["x" * 10], keep=False)
        with unchanged(store):
            refused(InvalidInput, too_much)

    def test_many_appends_read_back_exactly(self, scope: Scope) -> None:
        written: dict[str, list[JSON]] = {}
        turns: list[JSON] = []
        for n in range(70):
            turns.append({"n": n, "text": f"turn {n} " * 8})
            info = scope.append("turns", [turns[-1]], keep=n % 3 != 0)
            if info.kept:
                written[info.id] = list(turns)

        assert {s.id: s.state["turns"] for s in scope.load_many(written)} == written
        assert present(scope.load()).state == {"turns": turns}
