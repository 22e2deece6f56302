"""Chapter: the twelve promises of Limpet, each at least once by name."""

from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest

from limpet import JSON, Conflict, Corrupt, Scope, Snapshot, Store
from limpet.protocol import Backend
from limpet.testing.conformance._kit import (
    Kit,
    Stores,
    dump,
    is_durable,
    names,
    present,
    refused,
    spelled,
    together,
    unchanged,
)
from limpet.testing.conformance._layers import Clocked, Spoiled, Watched
from limpet.testing.conformance._values import EXACT, STRANGE_IDS

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


class Promises(Kit):
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
        done: list[bool] = []

        def write() -> None:
            try:
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
            finally:
                done.append(True)

        def read() -> None:
            last = False
            while not last:
                last = bool(done)
                seen = present(scope.load())
                n = seen.state["n"]
                assert seen.state == {"n": n, "items": [n] * 50, "again": n}
                assert seen.metadata == {"n": n}
                assert not seen.kept or seen.id in names(scope.history())

        together([write, read, read])

    def test_promise_03_the_loser_leaves_nothing(self, store: Store, scope: Scope) -> None:
        """After Conflict everything is exactly as it was, whichever verb lost."""
        first = scope.save(1, id="a")
        scope.set_note("n", 1)
        scope.save(2, id="b", keep=False)
        losers: list[Callable[[], object]] = [
            lambda: scope.save(9, id="lost", expect=first.revision),
            lambda: scope.save(9, id="lost", expect=None),
            lambda: scope.save(9, id="lost", keep=False, expect=first.revision),
            lambda: scope.save(9, id="lost", head=False, expect=first.revision),
            lambda: scope.save(9, id="a", overwrite=True, expect=first.revision),
            lambda: scope.append("lost", [1], expect=first.revision),
            lambda: scope.delete(expect=first.revision),
            lambda: scope.set_note("n", 9, expect=None),
            lambda: scope.set_note("n", 9, on="lost", expect=first.revision),
        ]

        for lose in losers:
            with unchanged(store, on=["lost"]), pytest.raises(Conflict):
                lose()
        assert scope.info("lost") is None

    def test_promise_03_the_loser_leaves_nothing_behind_the_last(
        self, backend: Backend, store: Store, scope: Scope, reopen: Callable[[], Store]
    ) -> None:
        """Nothing of a losing write appears later: not in the next save, not when re-opened."""
        first = scope.save({"turns": ["a"]}, id="a")
        scope.save({"turns": ["a", "b"]}, id="b")
        for _ in range(3):
            with pytest.raises(Conflict):
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

    def test_promise_05_kept_means_kept(
        self, backend: Backend, scope: Scope, reopen: Callable[[], Store]
    ) -> None:
        """Whatever happens around it, a kept snapshot stays as it was; a deleted one stays away."""
        turns: list[str] = []
        model: dict[str, JSON] = {}
        for n in range(60):
            turns.append(f"turn {n}: " + "word " * (n % 7))
            state = {"counter": n, "turns": list(turns), "files": {str(n % 5): "x" * n}}
            if n % 4 == 3:
                state = present(scope.load()).state
                state.setdefault("turns", []).append("appended")
                model[scope.append("turns", ["appended"]).id] = state
            elif n % 5 == 4:
                scope.save(state, keep=False)
            else:
                model[scope.save(state, head=n % 6 != 5).id] = state
            if n % 9 == 8:
                doomed = list(model)[n // 3]
                assert scope.delete_snapshot(doomed) == 1
                del model[doomed]
            if n % 7 == 6:
                changed = list(model)[n // 4]
                model[changed] = {"rewritten": n}
                scope.update(changed, lambda s, n=n: s.with_(state={"rewritten": n}))  # type: ignore[misc]
            if n % 11 == 10:
                overwritten = list(model)[n // 5]
                model[overwritten] = ["overwritten", n]
                scope.save(["overwritten", n], id=overwritten, overwrite=True)

        for shown in [scope, *([reopen().scope(*scope.key)] if is_durable(backend) else [])]:
            assert {s.id: s.state for s in shown.load_many(list(shown.ids()))} == model
            assert names(shown.history()) == list(model)[::-1]

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

    def test_promise_07_strict_order(self, backend: Backend, stores: Stores) -> None:
        """The last saved is the latest on clocks that stop, step back or jump ahead.

        Minted ids grow all the same, also when the newest was deleted in between.
        """
        times = [5_000_000, 5_000_000, 5_000_000, 4_000_000, 9_000_000, 0, 8_999_999, 9_000_000]
        scope = stores(Clocked(backend, times).backend).scope("s")
        saved = []
        for n in range(len(times)):
            saved.append(scope.save(n, keep=n != 5))
            assert present(scope.load()).state == n
            if n == 2:
                scope.delete_snapshot(saved[n].id)

        assert [info.id for info in saved] == sorted(info.id for info in saved)
        assert len({info.id for info in saved}) == len(saved)
        kept = [saved[n] for n in (0, 1, 3, 4, 6, 7)]
        assert list(scope.history()) == kept[::-1]

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

    def test_promise_12_bounded(self, backend: Backend, stores: Stores, small_pages: int) -> None:
        """Every listing asks for a page at a time, gets no more, and no sooner than needed."""
        watched = Watched(backend)
        store = stores(watched.backend)
        scope = store.scope("s")
        for n in range(small_pages * 3):
            scope.save(n, id=f"{n}")
            scope.set_note(f"{n}", n)
            store.scope(f"s{n}").set_note("n", n)

        for listing in (scope.history, scope.ids, scope.notes, store.sessions, store.scopes):
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
        scope.delete_snapshot("0")
        watched.asked.clear()
        assert len(list(scope.history())) == 8
        assert watched.asked == [3, 3, 3], "a page that is not full is the last"
