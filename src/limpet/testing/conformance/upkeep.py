"""Chapter: upkeep. `stats`, `compact`, `check` and `repair`, and bad input to what is new here."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from limpet.api.scope import Scope
from limpet.api.store import Store
from limpet.errors import InvalidInput, LimpetError, NotFound
from limpet.model import Stats
from limpet.protocol import Backend
from limpet.testing.conformance._kit import Kit, Stores, dump, is_durable
from limpet.testing.conformance._layers import Watched

_BAD_IDS: Final[tuple[Any, ...]] = ("", "x" * 513, "a\0b", "a\ud800", 7, b"a")
_TAKES_AN_ID: Final[dict[str, Callable[[Store, Scope, Any], object]]] = {
    "ancestors": lambda store, scope, bad: scope.ancestors(bad),
    "fork": lambda store, scope, bad: scope.fork(bad),
    "fork to": lambda store, scope, bad: scope.fork("a", to=bad),
    "fork to a scope": lambda store, scope, bad: scope.fork("a", scope_id=bad),
    "diff from": lambda store, scope, bad: scope.diff(bad, "a"),
    "diff to": lambda store, scope, bad: scope.diff("a", bad),
    "stats": lambda store, scope, bad: store.stats(bad),
}
_BAD_FORKS: Final[dict[str, dict[str, Any]]] = {
    "patch as a list": {"patch": [("n", 1)]},
    "patch as text": {"patch": "n"},
    "patch as a number": {"patch": 0},
    "patch with NaN": {"patch": {"n": float("nan")}},
    "patch with a number as key": {"patch": {1: "a"}},
    "patch with bytes": {"patch": {"n": b"x"}},
    "patch to what is not JSON": {"patch": lambda state: {"n": {1, 2}}},
    "labels as list": {"labels": ["a"]},
    "label as number": {"labels": {"a": 1}},
    "too many labels": {"labels": {str(n): "" for n in range(65)}},
    "metadata as list": {"metadata": [1]},
    "metadata with NaN": {"metadata": {"m": float("nan")}},
    "metadata too large": {"metadata": {"m": "x" * 65_536}},
}


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
        """Sessions, scopes and snapshots, drafts too; the bytes of their encoded states."""
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
        """The same numbers for one session alone, exactly that one; none for one that is not."""
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
        """Deleted, pruned and overwritten states count no longer, replaced drafts neither."""
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
        """Of a store: sessions by what is stored, the biggest first, at most a few."""
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
        """Scopes are gone through a page at a time, and no more keys are named than a few."""
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
        """It returns how many bytes it freed, at least 0, and everything reads as before."""
        for n in range(30):
            store.scope("big").save({"text": "".join(chr(40 + (m * n) % 80) for m in range(9_000))})
        store.delete_session("big")
        before = dump(store, on=["later"])

        given_back = store.compact()
        assert type(given_back) is int
        assert given_back >= 0
        assert dump(store, on=["later"]) == before
        assert store.compact() >= 0
        assert furnished.save({"n": 4}).kept
        if is_durable(backend):
            assert dump(reopen(), on=["later"]) == dump(store, on=["later"])

    def test_a_healthy_store_has_no_findings(
        self, store: Store, furnished: Scope, small_pages: int
    ) -> None:
        """`check` and `repair` find nothing wrong, whatever was done, and change nothing."""
        assert list(store.check()) == []
        for n in range(small_pages * 3):
            furnished.save({"n": n}, id=f"{n}", parent=None)
            store.scope(f"s{n}").set_note("n", n)
        furnished.update("0", lambda s: s.with_(labels={"new": "1"}, state="new"))
        furnished.delete_snapshot("b")
        furnished.prune(keep_last=5)
        store.delete_session("s1")
        store.scope("s2").delete_note("n")
        before = dump(store, on=["later", "a"])

        assert list(store.check()) == []
        assert list(store.repair()) == []
        assert dump(store, on=["later", "a"]) == before
        assert list(store.check()) == []

    def test_a_missing_parent_is_nothing_wrong(self, store: Store, scope: Scope) -> None:
        """A missing parent may be reported, and is not mended: its child still names it."""
        for n in range(6):
            scope.save(n, id=f"{n}", parent="to-come" if n == 1 else None)
            scope.save(n, id=f"child-{n}", parent=f"{n}", head=False)
        scope.delete_snapshot("2")
        scope.prune(keep_last=5)
        before = dump(store)

        for findings in (store.check(), store.repair()):
            assert {(each.severity, each.repaired) for each in findings} <= {("info", False)}
        assert dump(store) == before

    def test_an_empty_store_has_no_findings(self, store: Store) -> None:
        """There is nothing to find, nothing to mend, and nothing to give back."""
        assert list(store.check()) == list(store.repair()) == []
        assert store.compact() >= 0
        assert list(store.sessions()) == []

    @pytest.mark.parametrize("name", _TAKES_AN_ID)
    @pytest.mark.parametrize("bad", _BAD_IDS, ids=lambda bad: ascii(bad)[:12])
    def test_a_bad_id_is_refused_here_too(
        self, store: Store, furnished: Scope, name: str, bad: Any
    ) -> None:
        """At the call, before anything is read or written."""
        before = dump(store, on=["later"])

        with pytest.raises(InvalidInput):
            _TAKES_AN_ID[name](store, furnished, bad)
        assert dump(store, on=["later"]) == before

    @pytest.mark.parametrize("name", _BAD_FORKS)
    def test_a_bad_fork_is_refused(self, store: Store, furnished: Scope, name: str) -> None:
        """InvalidInput, here or elsewhere, and no trace of the attempt."""
        before = dump(store, on=["later"])

        for options in (_BAD_FORKS[name], {**_BAD_FORKS[name], "to": "new"}):
            with pytest.raises(InvalidInput):
                furnished.fork("a", **options)
        assert dump(store, on=["later"]) == before

    def test_a_fork_has_a_largest_size_too(self, stores: Stores) -> None:
        """A patched state may not exceed `state_bytes_max`, and metadata not theirs."""
        store = stores(state_bytes_max=100)
        scope = store.scope("s")
        scope.save({"x": "x" * 80}, id="a")
        before = dump(store)

        bad: list[Callable[[], object]] = [
            lambda: scope.fork("a", patch={"x": "x" * 99}),
            lambda: scope.fork("a", patch=lambda state: "x" * 99),
            lambda: scope.fork("a", metadata={"strands": "x" * 65_536}),
        ]
        for attempt in bad:
            with pytest.raises(InvalidInput):
                attempt()
        assert dump(store) == before

    def test_messages_hold_no_state_here_either(self, furnished: Scope) -> None:
        """An error may be logged anywhere, so it shows no value of a state or a patch."""
        secret = "sk-0123456789"  # noqa: S105
        furnished.save(secret, id="text")
        bad: list[Callable[[], object]] = [
            lambda: furnished.fork("a", patch={"key": secret, "x": float("nan")}),
            lambda: furnished.fork("a", patch=secret),  # type: ignore[arg-type]
            lambda: furnished.fork("a", patch=lambda state: {secret.encode()}),
            lambda: furnished.fork("text", patch={"a": 1}),
            lambda: furnished.fork("text", scope_id="forked"),
            lambda: furnished.diff("text", "no"),
        ]
        for attempt in bad:
            with pytest.raises(LimpetError) as caught:
                attempt()
            assert secret not in str(caught.value)
            assert str(caught.value)[:1].islower()
        with pytest.raises(NotFound, match="id=`no`"):
            furnished.diff("text", "no")
