"""Chapter: the twelve promises of Limpet, each by name."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings

from limpet import JSON, AlreadyExists, Conflict, Corrupt, Scope, Snapshot, Store
from limpet.protocol import Backend
from limpet.testing._lockstep import Twins
from limpet.testing.conformance._values import (
    AWKWARD_PREFIXES,
    AWKWARD_SESSIONS,
    EXACT,
    STRANGE_IDS,
    json_values,
)
from limpet.testing.conformance.programs import Both, Paired
from limpet.testing.kit import (
    Spoiled,
    Stores,
    Watched,
    dump,
    finds,
    is_durable,
    names,
    outcome,
    present,
    read_during,
    refused,
    spelled,
    together,
    unchanged,
)

PROMISES: Final = MappingProxyType(
    {
        1: "acknowledged_is_durable",
        2: "whole_or_absent",
        3: "the_loser_leaves_nothing",
        4: "a_lost_acknowledgement_is_harmless",
        5: "kept_means_kept",
        6: "atomic_update",
        7: "strict_order",
        8: "isolation",
        9: "exact_round_trip",
        10: "bad_data_is_contained",
        11: "ids_cannot_escape",
        12: "bounded",
    }
)
"""The promises by number; the tests of each are named `test_promise_<number>_<name>…`."""


class Promises(Paired):
    """The promises. What an engine does not claim to do, it must be seen not to do."""

    def test_promise_01_acknowledged_is_durable(
        self, backend: Backend, store: Store, scope: Scope, reopen: Callable[[], Store]
    ) -> None:
        """What was acknowledged is there after re-opening, without any close.

        An engine that is not durable begins empty instead: it does not half remember.
        """
        scope.save({"n": 1}, id="a", labels={"l": "1"}, metadata={"m": 1})
        scope.append("items", [1])
        scope.save({"n": 2}, keep=False)
        scope.update("a", lambda s: s.with_(state={"n": 3}))
        scope.save({"n": 4}, id="b", head=False)
        scope.set_note("n", 1, on="a")
        scope.set_note("m", 2)
        scope.save(5, id="doomed", head=False)
        scope.delete_snapshot("doomed")
        shown = dump(store)

        assert dump(reopen()) == (shown if is_durable(backend) else [[], []])
        store.close()
        assert dump(reopen()) == (shown if is_durable(backend) else [[], []])

    def test_promise_02_whole_or_absent(self, scope: Scope) -> None:
        """A reader sees one whole version or another; a kept head is in history."""
        scope.save({"n": 0, "items": [0] * 50, "again": 0}, metadata={"n": 0})

        def write() -> None:
            for n in range(1, 16):
                state = {"n": n, "items": [n] * 50, "again": n}
                info = scope.save(state, metadata={"n": n}, keep=n % 3 != 0)
                state = {"n": -n, "items": [-n] * 50, "again": -n}
                scope.update(
                    info.id,
                    lambda s, state=state: s.with_(  # type: ignore[misc]
                        state=state, metadata={"n": state["n"]}
                    ),
                )

        def read() -> None:
            seen = present(scope.load())
            n = seen.state["n"]
            assert seen.state == {"n": n, "items": [n] * 50, "again": n}
            assert seen.metadata == {"n": n}
            assert not seen.kept or seen.id in names(scope.history())

        read_during(write, read)

    def test_promise_03_the_loser_leaves_nothing(
        self, backend: Backend, store: Store, scope: Scope, reopen: Callable[[], Store]
    ) -> None:
        """Nothing of a losing write appears: not now, not in the next save, not when re-opened."""
        first = scope.save({"turns": ["a"]}, id="a")
        scope.save({"turns": ["a", "b"]}, id="b")
        for _ in range(3):
            with unchanged(store), pytest.raises(Conflict):
                scope.save({"turns": ["lost"] * 50}, expect=first.revision)
        scope.append("turns", ["c"])

        assert present(scope.load()).state == {"turns": ["a", "b", "c"]}
        if is_durable(backend):
            assert dump(reopen()) == dump(store)

    def test_promise_04_a_lost_acknowledgement_is_harmless(
        self, store: Store, scope: Scope
    ) -> None:
        """To re-issue a save with its own id and body succeeds and changes nothing."""
        root = scope.save(0)
        save: Callable[[], object] = lambda: scope.save(  # noqa: E731
            {"n": 1}, id="mine", labels={"l": "1"}, metadata={"m": 1}, expect=root.revision
        )
        answer = save()
        with unchanged(store):
            assert [save(), save()] == [answer, answer]
        scope.save(2)
        with unchanged(store):
            assert save() == answer

    def test_promise_05_kept_means_kept(self, both: Both, twins: Twins) -> None:
        """Whatever happens around it, a kept snapshot stays as it was; a deleted one stays away."""
        turns: list[str] = []
        for n in range(60):
            turns.append(f"turn {n}: " + "word " * (n % 7))
            state = {"counter": n, "turns": list(turns), "files": {str(n % 5): "x" * n}}
            if n % 4 == 3:
                twins.at(both.key, lambda scope, its: scope.append("turns", ["appended"]))
            else:
                mode = {"keep": False} if n % 5 == 4 else {"head": n % 6 != 5}
                twins.save(both.key, state, id=f"{n}", **mode)
            if n % 9 == 8:
                both.delete_snapshot(f"{n // 3}")
            if n % 7 == 6:
                both.update(f"{n // 4}", lambda s, n=n: s.with_(state={"rewritten": n}))
            if n % 11 == 10:
                both.save(["overwritten", n], id=f"{n // 5}", overwrite=True)
        twins.compare_reopened()

    def test_promise_05_kept_means_kept_for_forks(self, both: Both, twins: Twins) -> None:
        """Whatever happens to the source never changes the fork, and the other way round."""
        turns = [f"turn {n} " * 9 for n in range(40)]
        for n in range(40):
            twins.save(both.key, {"turns": turns[: n + 1]}, id=f"{n:02}")
        forks = []
        for n in (0, 13, 14, 31, 39):
            for to in (None, "other"):
                options = {"to": to, "scope_id": f"fork-{n}"}
                fork = twins.at(both.key, lambda s, its, n=n, o=options: s.fork(f"{n:02}", **o).key)  # type: ignore[misc]
                twins.at(fork.model, lambda scope, its: scope.append("turns", ["of the fork"]))
                forks.append(Both(twins, fork.model))

        for n in (0, 14, 31):
            both.update(f"{n:02}", lambda s: s.with_(state="changed"))
        for n in (13, 39):
            both.delete_snapshot(f"{n:02}")
        forks[2].update(twins.id_of(forks[2].key, 1), lambda s: s.with_(state="changed too"))
        forks[4].delete()
        both.prune(keep_last=20)
        twins.compare_reopened()

    def test_promise_06_atomic_update(self, scope: Scope) -> None:
        """N concurrent updates apply exactly N times, and each sees what the others wrote."""
        scope.save({"n": 0, "by": []}, id="a")
        scope.save("head")

        def add(who: int) -> Callable[[], None]:
            def change(snapshot: Snapshot) -> Snapshot:
                state = snapshot.state
                return snapshot.with_(state={"n": state["n"] + 1, "by": [*state["by"], who]})

            def run() -> None:
                for _ in range(6):
                    scope.update("a", change)

            return run

        together([add(who) for who in range(4)])

        state = present(scope.load("a")).state
        assert state["n"] == 24
        assert sorted(state["by"]) == sorted([0, 1, 2, 3] * 6)

    def test_promise_07_strict_order(self, both: Both, twins: Twins) -> None:
        """The last saved is the latest on clocks that stop, step back or jump ahead.

        Minted ids grow all the same, also when the newest was deleted in between, or all were.
        """
        both.set_note("n", 1)
        for n, seconds in enumerate((0, 0, 0, -1, 5, -9, 9, 0, -5, 0)):
            twins.set_clock(seconds * 1_000_000)
            saved = both.save(n, keep=n != 5)
            if n in (2, 9):
                both.delete_snapshot(saved.model.id)
            if n == 7:
                for snapshot in both.history().model:
                    both.delete_snapshot(snapshot.id)

    def test_promise_07_strict_order_has_no_place_twice(self, store: Store, scope: Scope) -> None:
        """A position in history is never reused, not even after everything was deleted."""
        forgets: list[Callable[[], int]] = [
            lambda: scope.delete(),
            lambda: store.delete_session(scope.session_id),
        ]
        for forget in forgets:
            scope.save(1)
            last = scope.save(2)
            forget()
            scope.save(3)
            assert list(scope.history(after=last)) == []

    def test_promise_08_isolation(self, scope: Scope) -> None:
        """Neither what was passed in nor what was given out is tied to what is stored."""
        state = {"items": [{"deep": [1]}]}
        labels, metadata, value = {"l": "1"}, {"m": [1]}, {"v": [1]}
        saved = scope.save(state, id="a", labels=labels, metadata=metadata)
        scope.set_note("n", value)
        appended: list[JSON] = [{"deep": [2]}]
        scope.append("items", appended)

        state["items"][0]["deep"].append(9)
        labels["l"], metadata["m"][0], value["v"][0] = "9", 9, 9
        appended[0]["deep"].append(9)
        for _ in range(2):
            first, head = present(scope.load("a")), present(scope.load())
            info, note = present(scope.info("a")), present(scope.note("n"))
            listed = list(scope.history())[-1]
            assert first.state == {"items": [{"deep": [1]}]}
            assert head.state == {"items": [{"deep": [1]}, {"deep": [2]}]}
            for facts in (first, info, listed):
                assert (facts.labels, facts.metadata) == ({"l": "1"}, {"m": [1]})
            assert note.value == {"v": [1]}
            for loaded in (first, head):
                loaded.state["items"][0]["deep"].append(8)
            for facts in (first, info, listed, saved):
                facts.labels["l"] = "8"
                facts.metadata["m"].append(8)
            note.value["v"].append(8)

    def test_promise_09_exact_round_trip(self, scope: Scope) -> None:
        """Order of keys, wide integers, 1.0, -0.0, NUL, astral characters: all come back."""
        for value in EXACT:
            info = scope.save(value, metadata={"m": value})
            note = present(scope.set_note("n", value))
            loaded = present(scope.load(info.id))
            assert spelled(loaded.state) == spelled(value)
            assert spelled(loaded.metadata) == spelled(info.metadata) == spelled({"m": value})
            assert spelled(note.value) == spelled(present(scope.note("n")).value) == spelled(value)

    # The suite is inherited, so one test runs in several classes; and each example saves more to
    # the same store, which is what a store is for.
    @settings(
        max_examples=20,
        deadline=None,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,
            HealthCheck.differing_executors,
            HealthCheck.too_slow,
        ],
    )
    @given(value=json_values())
    def test_promise_09_exact_round_trip_of_anything(self, scope: Scope, value: JSON) -> None:
        """Any JSON comes back as it was, alone or inside a state that grows."""
        kept = scope.save(value)
        assert spelled(present(scope.load(kept.id)).state) == spelled(value)
        scope.save({"items": [value]}, keep=False)
        scope.append("items", [value, value])

        assert spelled(present(scope.load()).state) == spelled({"items": [value] * 3})
        assert spelled(present(scope.load(kept.id)).state) == spelled(value)

    def test_promise_09_exact_round_trip_of_appends(self, scope: Scope) -> None:
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

    def test_promise_10_bad_data_is_contained(self, backend: Backend, stores: Stores) -> None:
        """Bytes that are not JSON are Corrupt when asked for by id, and break nothing else."""
        store = stores(Spoiled(backend, "bad").backend)
        scope = store.scope("s")
        scope.save({"n": 1}, id="good")
        scope.save({"n": 2}, id="bad")

        attempts: list[Callable[[], object]] = [
            lambda: scope.load("bad"),
            lambda: scope.load(),
            lambda: list(scope.load_many(["good", "bad"])),
            lambda: scope.update("bad", lambda s: s),
        ]
        refused(Corrupt, attempts)
        assert present(scope.load("good")).state == {"n": 1}
        assert names(scope.history()) == ["bad", "good"]
        assert list(store.sessions()) == ["s"]

    def test_promise_10_bad_data_is_contained_on_storage(
        self, place: Path, backend: Backend, store: Store, reopen: Callable[[], Store]
    ) -> None:
        """A stored snapshot that was spoiled behind the engine's back is reported, not believed.

        An engine that is not durable has nothing to spoil.
        """
        text = "spoil-me-9f3b7c51e20d"
        bad = store.scope("bad")
        bad.save({"text": text}, id="x")
        good = store.scope("good").save({"n": 1}, id="x")
        store.close()
        spoiled = self.damage(place, text.encode())
        if not is_durable(backend):
            assert spoiled == 0
            return
        assert spoiled > 0, "the text was not found in the folder: override Suite.damage"

        again = reopen()
        bad = again.scope("bad")
        attempts: list[Callable[[], object]] = [
            lambda: bad.load("x"),
            lambda: bad.load(),
            lambda: list(bad.load_many(["x"])),
            lambda: bad.append("items", [1]),
            lambda: bad.update("x", lambda s: s.with_(state=1)),
        ]
        for attempt in attempts:
            assert isinstance(outcome(attempt), Corrupt)
        for state in (1, {"text": text}):
            # It is neither overwritten silently nor acknowledged as already stored.
            answer = outcome(lambda state=state: bad.save(state, id="x"))  # type: ignore[misc]
            assert isinstance(answer, Corrupt | AlreadyExists)
        assert isinstance(outcome(bad.load), Corrupt)
        assert list(again.sessions()) == ["bad", "good"]
        assert len(list(again.scopes())) == 2
        assert names(bad.history()) in (["x"], [])
        assert again.scope("good").info() == good
        assert present(again.scope("good").load()).state == {"n": 1}
        assert again.scope("new").save(1).kept
        assert bad.delete_snapshot("x") == 1
        assert bad.load() is None

    def test_promise_11_ids_cannot_escape(self, place: Path, store: Store) -> None:
        """Strange ids of every sort stay apart, come back as they were, and stay inside."""
        for each in STRANGE_IDS:
            scope = store.scope(each, each)
            scope.save({"of": each}, id=each, labels={each[:256]: each[:256]})
            scope.set_note(each, each, on=each)

        assert list(store.sessions()) == sorted(STRANGE_IDS, key=self.folder_order)
        for each in STRANGE_IDS:
            scope = store.scope(each, each)
            loaded = present(scope.load(each))
            assert (loaded.state, loaded.id, loaded.scope) == ({"of": each}, each, scope.key)
            assert [note.value for note in scope.notes(on=each)] == [each]
            assert list(scope.ids()) == [each]
        assert list(place.parent.iterdir()) == [place]

    def test_promise_11_ids_cannot_escape_their_scope(self, store: Store, scope: Scope) -> None:
        """The same in one scope: as snapshot ids and note names, none touches another."""
        for each in STRANGE_IDS:
            scope.save(each, id=each)
            scope.set_note(each, each)

        assert list(scope.ids()) == sorted(STRANGE_IDS)
        assert [note.name for note in scope.notes()] == sorted(STRANGE_IDS)
        assert names(scope.history()) == list(STRANGE_IDS)[::-1]
        left = list(STRANGE_IDS)
        for each in STRANGE_IDS[::7]:
            assert scope.delete_snapshot(each) == 1
            assert scope.delete_note(each) == 1
            left.remove(each)
        assert [snapshot.state for snapshot in scope.load_many(left)] == left
        assert [note.value for note in scope.notes()] == sorted(left)

    def test_promise_11_ids_cannot_escape_deletion(self, store: Store) -> None:
        """To delete one session touches no other, whatever they are called."""
        for each in STRANGE_IDS:
            store.scope(each).save(each, id="x")
        left = sorted(STRANGE_IDS, key=self.folder_order)
        for each in STRANGE_IDS[::5]:
            assert store.delete_session(each) == 1
            left.remove(each)

        assert list(store.sessions()) == left
        assert [present(store.scope(each).load()).state for each in left] == left

    def test_promise_11_ids_cannot_escape_a_prefix(self, backend: Backend, store: Store) -> None:
        """No query with a prefix sees a session outside it: a prefix is no pattern."""
        sessions = list(dict.fromkeys([*STRANGE_IDS, *AWKWARD_SESSIONS]))
        for each in sessions:
            store.scope(each).save(each, id="x", labels={"l": "1"})
        prefixes = ("a", "A", "a%", "a_", ".", "../", "%", "_", "é", "x" * 511, "a/")
        for prefix in (*prefixes, *AWKWARD_PREFIXES):
            saved = [each for each in sessions if each.startswith(prefix)]
            inside = sorted(saved, key=self.folder_order)
            assert list(store.sessions(prefix=prefix)) == inside
            assert [info.key.session_id for info in store.scopes(prefix=prefix)] == inside
            if finds(backend, store):
                assert present(store.find("x", prefix=prefix)).session_id == saved[-1]
                for labels in (None, {"l": "1"}):
                    found = store.history(prefix=prefix, labels=labels)
                    assert [info.session_id for info in found] == saved[::-1]

    def test_promise_12_bounded(self, backend: Backend, stores: Stores, small_pages: int) -> None:
        """Every listing asks for a page at a time, gets no more, and no sooner than needed."""
        watched = Watched(backend)
        store = stores(watched.backend)
        scope = store.scope("s")
        for n in range(small_pages * 3):
            scope.save(n, id=f"{n}")
            scope.set_note(f"{n}", n)
            store.scope(f"s{n}").set_note("n", n)

        listings: list[Callable[[], Iterator[object]]] = [
            *(scope.history, scope.ids, scope.notes, store.sessions, store.scopes),
            *([store.history] if "index" in backend.capabilities else []),
        ]
        for listing in listings:
            watched.asked.clear()
            watched.answered.clear()
            items = listing()
            assert watched.asked == [], "a listing that is not iterated makes no request"
            next(items)
            assert len(watched.asked) == 1, "one page is enough for the first item"
            assert len(list(items)) >= small_pages * 3 - 1
            assert max(watched.asked) <= small_pages
            assert max(watched.answered) <= small_pages
        watched.asked.clear()
        assert len(list(scope.load_many(str(n) for n in range(9)))) == 9
        assert max(watched.asked) < small_pages
        watched.asked.clear()
        assert len(list(scope.history(limit=2))) == 2
        assert watched.asked == [2]
        for n in range(small_pages):
            scope.save(n, id=f"{n}", parent=None, overwrite=True)
        watched.asked.clear()
        assert names(scope.leaves()) == ["8", "1", "0"]
        assert max(watched.asked) <= small_pages
        scope.delete_snapshot("0")
        watched.asked.clear()
        assert len(list(scope.history())) == 8
        assert watched.asked == [3, 3, 3], "a page that is not full is the last"

    def test_promise_12_bounded_deletion(self, store: Store, scope: Scope) -> None:
        """Much more than a page is counted and removed by one call."""
        for n in range(300):
            scope.append("n", [n], keep=n % 100 != 0)
        kept = 300 - 3
        assert len(list(scope.history())) == kept
        assert scope.delete() == kept
        assert list(store.sessions()) == []
