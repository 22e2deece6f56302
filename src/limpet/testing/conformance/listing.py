"""Chapter: listings and upkeep. They are lazy, come in pages, and hold no lock."""

from collections.abc import Callable, Iterator
from typing import Any

from limpet import Scope, Store
from limpet.protocol import Backend
from limpet.testing.kit import Kit, Stores, Watched, finds, names


class Listing(Kit):
    """What a scope and a store list, count and prune."""

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

    def test_ancestors_end_though_a_circle_is_closed_meanwhile(
        self, scope: Scope, rival: Scope, small_pages: int
    ) -> None:
        for each, parent in zip("abcde", (None, *"abcd"), strict=True):
            scope.save(each, id=each, parent=parent)
        walk = scope.ancestors("e")
        seen = [next(walk).id for _ in range(small_pages)]
        assert seen == ["e", "d", "c"]

        rival.save(1, id="d", parent="e", overwrite=True)
        rival.save(2, id="b", parent="e", overwrite=True)

        rest = names(walk)
        assert rest[0] == "b"
        assert len(rest) <= 5

    # Upkeep

    def test_stats_name_the_largest_sessions(self, store: Store) -> None:
        for n in range(15):
            noise = "".join(chr(33 + (m * m * 31 + n * m * 7) % 90) for m in range(50 * n + 10))
            store.scope(f"s{n:02}").save(noise)

        largest = store.stats().largest
        assert 1 <= len(largest) < 15
        assert [size for _, size in largest] == sorted((size for _, size in largest), reverse=True)
        assert largest[0][0] == "s14"
        assert len(dict(largest)) == len(largest)

    def test_stats_name_the_largest_keys_of_a_session(self, store: Store, small_pages: int) -> None:
        """Of a session: `scope_id:key` by the encoding of its value, in the states shown now."""
        store.scope("s", "a").save({"big": "x" * 100, "gone": "y" * 999})
        store.scope("s", "a").save({"big": "x" * 100, "small": 1, "é": [1, 2]})
        store.scope("s", "b").save({"draft": "x" * 50}, keep=False)
        for n in range(small_pages * 2):
            store.scope("s", f"no-object-{n}").save([n])
        store.scope("s", "only-kept").save({"kept": "x" * 500}, head=False)
        store.scope("t", "a").save({"other": "x" * 999})

        assert store.stats("s").largest == (
            ("a:big", 102),
            ("b:draft", 52),
            ("a:é", 5),
            ("a:small", 1),
        )

    def test_stats_of_a_session_are_bounded(
        self, backend: Backend, stores: Stores, small_pages: int
    ) -> None:
        watched = Watched(backend)
        store = stores(watched.backend)
        for n in range(small_pages * 3):
            store.scope("s", f"{n}").save({f"{m}": "x" * n for m in range(5)})

        largest = store.stats("s").largest
        assert 1 <= len(largest) < small_pages * 3 * 5
        assert {size for _, size in largest[:5]} == {small_pages * 3 + 1}
        assert max(watched.asked) <= small_pages

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

    def test_long_histories_are_pruned_in_pages(
        self, backend: Backend, stores: Stores, small_pages: int
    ) -> None:
        watched = Watched(backend)
        store = stores(watched.backend)
        for keep_last in range(small_pages * 4 + 1):
            scope = store.scope(f"{keep_last}")
            for n in range(small_pages * 4):
                scope.save(n, id=f"{n:02}")
            expected = small_pages * 4 - max(keep_last, 1)
            for dry_run in (True, False):
                assert scope.prune(keep_last=keep_last, dry_run=dry_run).count == expected
            assert names(scope.history()) == [
                f"{n:02}" for n in range(small_pages * 4 - 1, expected - 1, -1)
            ]
        assert max(watched.asked) <= small_pages
        assert max(watched.answered) <= small_pages
