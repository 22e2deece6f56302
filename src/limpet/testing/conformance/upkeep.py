"""Chapter: upkeep. `stats`, `compact`, `check` and `repair`."""

from collections.abc import Callable

import pytest

from limpet import Scope, Store
from limpet.protocol import Backend
from limpet.testing.kit import Kit, Stores, Watched, dump, is_durable, names, unchanged


class Upkeep(Kit):
    """What keeps a store in order changes nothing that anybody reads."""

    @pytest.fixture
    def furnished(self, store: Store, scope: Scope) -> Scope:
        """A scope with a bit of everything in it, and other scopes."""
        scope.save({"n": 1, "items": ["x" * 500]}, id="a", labels={"l": "1"}, metadata={"m": 1})
        scope.append("items", ["y" * 500])
        scope.save({"n": 2}, id="b", parent="a", head=False)
        scope.save({"n": 3}, keep=False)
        scope.set_note("n", {"v": 1})
        scope.set_note("n", {"v": 2}, on="a")
        scope.fork("a", scope_id="forked")
        store.scope("other").save(1, id="a")
        store.scope("only-a-note").set_note("n", 1, on="later")
        return scope

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

    def test_compact_changes_nothing(
        self, backend: Backend, store: Store, furnished: Scope, reopen: Callable[[], Store]
    ) -> None:
        for n in range(30):
            store.scope("big").save({"text": "".join(chr(40 + (m * n) % 80) for m in range(9_000))})
        store.delete_session("big")
        with unchanged(store, on=["later"]):
            given_back = store.compact()
            assert type(given_back) is int
            assert given_back >= 0
        assert store.compact() >= 0
        assert furnished.save({"n": 4}).kept
        if is_durable(backend):
            assert dump(reopen(), on=["later"]) == dump(store, on=["later"])

    def test_a_healthy_store_has_no_findings(
        self, store: Store, furnished: Scope, small_pages: int
    ) -> None:
        assert list(store.check()) == []
        for n in range(small_pages * 3):
            furnished.save({"n": n}, id=f"{n}", parent=None)
            store.scope(f"s{n}").set_note("n", n)
        furnished.update("0", lambda s: s.with_(labels={"new": "1"}, state="new"))
        furnished.delete_snapshot("b")
        furnished.prune(keep_last=5)
        store.delete_session("s1")
        store.scope("s2").delete_note("n")
        with unchanged(store, on=["later", "a"]):
            assert list(store.check()) == []
            assert list(store.repair()) == []
        assert list(store.check()) == []

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
