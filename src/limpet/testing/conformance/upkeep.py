"""Chapter: upkeep. `stats`, `compact`, `check` and `repair`."""

from collections.abc import Callable

import pytest

from limpet import Scope, Stats, Store
from limpet.protocol import Backend
from limpet.testing.conformance._kit import Kit, Stores, dump, is_durable, unchanged
from limpet.testing.conformance._layers import Watched


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

    def test_stats_count_what_the_store_holds(self, store: Store) -> None:
        assert store.stats() == Stats(0, 0, 0, 0, 0, ())
        sizes = [
            store.scope("s").save("x" * 10, id="a").size,
            store.scope("s").save("x" * 20, id="b", head=False).size,
            store.scope("s", "main", "graph").save("x" * 30, keep=False).size,
            store.scope("t").save(None).size,
        ]
        store.scope("u").set_note("n", "not a state")

        found = store.stats()
        assert (found.sessions, found.scopes, found.snapshots) == (3, 4, 4)
        assert found.logical_bytes == sum(sizes) == 12 + 22 + 32 + 4
        assert found.stored_bytes >= 0
        assert all(type(each) is int for each in (found.stored_bytes, found.logical_bytes))

    def test_stats_of_a_session(self, store: Store) -> None:
        store.scope("s").save("x" * 10, id="a")
        store.scope("s", "b").save("x" * 20, id="b")
        store.scope("s1").save("x" * 30)
        store.scope("s/1").save("x" * 40)

        found = store.stats("s")
        assert (found.sessions, found.scopes, found.snapshots) == (1, 2, 2)
        assert found.logical_bytes == 12 + 22
        assert store.stats("nowhere") == Stats(0, 0, 0, 0, 0, ())
        assert store.stats().logical_bytes == 12 + 22 + 32 + 42

    def test_stats_follow_what_goes(self, store: Store, furnished: Scope) -> None:
        furnished.save("x", keep=False)
        furnished.save("xx", id="a", overwrite=True)
        furnished.prune(keep_last=0)
        store.delete_session("other")
        store.scope(furnished.session_id, "forked").delete()

        assert store.stats().snapshots == 1
        assert store.stats().logical_bytes == store.stats(furnished.session_id).logical_bytes == 3
        assert store.stats().sessions == 2
        furnished.delete()
        store.scope("only-a-note").delete_note("n", on="later")
        assert store.stats() == Stats(0, 0, 0, 0, 0, ())

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

    def test_a_missing_parent_is_nothing_wrong(self, store: Store, scope: Scope) -> None:
        """A parent that was deleted or pruned is not reported: its child still names it."""
        for n in range(6):
            scope.save(n, id=f"{n}", parent="to-come" if n == 1 else None)
            scope.save(n, id=f"child-{n}", parent=f"{n}", head=False)
        scope.delete_snapshot("2")
        scope.prune(keep_last=5)
        with unchanged(store):
            for findings in (store.check(), store.repair()):
                assert list(findings) == []

    def test_an_empty_store_has_no_findings(self, store: Store) -> None:
        assert list(store.check()) == list(store.repair()) == []
        assert store.compact() >= 0
        assert list(store.sessions()) == []
