"""Chapter: listings. They are lazy, come in pages, hold no lock, and stay inside a prefix."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from limpet import Scope, SnapshotInfo, Store, Unsupported
from limpet.protocol import Backend
from limpet.testing.kit import Kit, finds, names


def _grow(scope: Scope, parents: dict[str, str | None]) -> None:
    """Save one snapshot for each id, in this order, under the parent given."""
    for each, parent in parents.items():
        scope.save({"of": each}, id=each, parent=parent)


class Listing(Kit):
    """What a scope and a store list."""

    def test_reading_creates_nothing(self, store: Store, scope: Scope) -> None:
        scope.load()
        list(scope.history())
        list(scope.notes())
        scope.delete_snapshot("a")
        scope.delete()

        assert list(store.sessions()) == []
        assert list(store.scopes()) == []

    def test_load_many_is_lazy(self, scope: Scope, small_pages: int) -> None:
        taken = 0

        def ids() -> Iterator[str]:
            nonlocal taken
            while True:
                taken += 1
                yield "a"

        scope.save(1, id="a")
        assert next(scope.load_many(ids())).id == "a"
        assert taken <= small_pages

    def test_a_listing_is_lazy_and_holds_no_lock(
        self, store: Store, scope: Scope, plain: Store, rival: Scope, small_pages: int
    ) -> None:
        """What is deleted before its page is read is left out; what is new is not met."""
        for n in range(9):
            scope.save(n, id=f"{n}")
            store.scope(f"{n}").save(1)

        seen: list[str] = []
        for info in scope.history():
            seen.append(info.id)
            rival.save("meanwhile")
            rival.delete_snapshot(info.id)
            rival.delete_snapshot("0")
        assert seen == [str(n) for n in range(8, 0, -1)]

        store.delete_session(scope.session_id)
        listings: list[Callable[[], Iterator[Any]]] = [store.sessions, store.scopes]
        for listing in listings:
            seen = []
            for each in listing():
                seen.append(each if isinstance(each, str) else each.key.session_id)
                plain.delete_session(seen[-1])
                plain.delete_session("8")
            assert seen == [str(n) for n in range(8)]
            for n in range(9):
                store.scope(f"{n}").save(1)

    def test_history_of_all_sessions_needs_an_index(self, backend: Backend, store: Store) -> None:
        store.scope("s").save(1, labels={"run": "1"})
        for walk in (store.history(), store.history(labels={"run": "1"}), store.history(limit=1)):
            if "index" in backend.capabilities:
                assert len(list(walk)) == 1
            else:
                with pytest.raises(Unsupported):
                    list(walk)

    def test_nothing_newer_follows_a_cursor(self, backend: Backend, store: Store) -> None:
        """What is saved once the cursor is gone is newer than it, in this scope or another."""
        if not finds(backend, store):
            return
        store.scope("s").save(0, id="old")
        gone = [store.scope("t").save(n, id=f"{n}") for n in range(5)]
        store.delete_session("t")
        store.scope("u").save(1, id="other")
        store.scope("s").save(2, id="same")
        store.scope("t").save(3, id="again")

        for cursor in gone:
            assert names(store.history(after=cursor)) == ["old"]
        assert names(store.scope("t").history(after=gone[-1])) == []

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
        for length in (2, 3, 4, 10):
            scope = store.scope("s", f"circle of {length}")
            circle = [f"{n}" for n in range(length)]
            _grow(scope, {each: circle[at - 1] for at, each in enumerate(circle)})
            there = length // 2
            _grow(scope, {"tail-1": circle[there], "tail-2": "tail-1"})

            for at in range(length):
                round_once = [*circle[at::-1], *circle[:at:-1]]
                assert names(scope.ancestors(circle[at])) == round_once
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

    def test_a_fork_in_the_session_gets_a_name(self, store: Store) -> None:
        """`<scope_id>~<8 of [a-z0-9]>`. A suffix is replaced, and a long name makes room for it."""
        bases = {
            "planner": "planner", "plan~abcdefgh": "plan", "n" * 512: "n" * 503,
            "x~short": "x~short", "x~toolongname": "x~toolongname", "x~ABCDEFGH": "x~ABCDEFGH",
            "x~abcdefg\n": "x~abcdefg\n", "~abcdefgh": "~abcdefgh",
        }  # fmt: skip
        for name, base in bases.items():
            scope = store.scope("s", name, "graph")
            info: SnapshotInfo = scope.save(1, id="a")
            forks = [scope.fork(info), scope.fork(info, to="s")]
            forks.append(forks[0].fork(next(forks[0].ids())))
            assert len({name, *(fork.scope_id for fork in forks)}) == 4
            for fork in forks:
                assert re.fullmatch(re.escape(base) + r"~[a-z0-9]{8}", fork.scope_id)
                assert (fork.session_id, fork.kind) == ("s", "graph")
            assert scope.fork(info, to="t").key == ("t", name, "graph")
