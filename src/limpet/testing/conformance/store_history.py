"""Chapter: the history of all sessions. `store.history`, by labels, status and prefix."""

from typing import Any

import pytest

from limpet import InvalidInput, SnapshotInfo, Store, Unsupported
from limpet.protocol import Backend
from limpet.testing.conformance._kit import Kit, Stores, names, present
from limpet.testing.conformance._layers import Watched
from limpet.testing.conformance.listing import AWKWARD_PREFIXES, AWKWARD_SESSIONS


class StoreHistory(Kit):
    """`store.history`. An engine without an index refuses it, and is seen to do so."""

    @staticmethod
    def _refuses(backend: Backend, store: Store) -> bool:
        """Return whether the engine has no index; if so, see that every such query is refused."""
        if "index" in backend.capabilities:
            return False
        store.scope("s").save(1, labels={"run": "1"})
        for walk in (store.history(), store.history(labels={"run": "1"}), store.history(limit=1)):
            with pytest.raises(Unsupported):
                list(walk)
        return True

    def test_history_of_all_sessions(
        self, backend: Backend, store: Store, small_pages: int
    ) -> None:
        if self._refuses(backend, store):
            return
        assert list(store.history()) == []
        saved = [
            store.scope(*key).save(n, head=n % 2 == 0)
            for n in range(small_pages * 2 + 1)
            for key in (("s", "main"), ("s", "main", "graph"), ("t", "b"))
        ]

        assert list(store.history()) == saved[::-1]
        assert all(type(info) is SnapshotInfo for info in store.history())

    def test_history_of_all_sessions_has_no_drafts(self, backend: Backend, store: Store) -> None:
        """A draft is in no history; one that is promoted has the position of its first save."""
        if self._refuses(backend, store):
            return
        store.scope("s").save(1, id="a")
        store.scope("s").save(2, id="draft", keep=False, labels={"l": "1"})
        store.scope("t").save(3, id="b")

        assert names(store.history()) == ["b", "a"]
        assert names(store.history(labels={"l": "1"})) == []
        store.scope("s").save(2, id="draft", labels={"l": "1"})
        assert names(store.history()) == ["b", "draft", "a"]
        assert names(store.history(labels={"l": "1"})) == ["draft"]

    def test_history_of_all_sessions_keeps_positions(self, backend: Backend, store: Store) -> None:
        if self._refuses(backend, store):
            return
        for session, each in (("s", "a"), ("t", "b"), ("s", "c"), ("u", "d")):
            store.scope(session).save(1, id=each, labels={"l": "old"})
        store.scope("s").update("a", lambda s: s.with_(labels={"l": "new"}))
        store.scope("t").save(2, id="b", overwrite=True)

        assert names(store.history()) == ["d", "c", "b", "a"]
        assert names(store.history(labels={"l": "old"})) == ["d", "c"]
        assert names(store.history(labels={"l": "new"})) == ["a"]
        store.scope("s").delete_snapshot("c")
        store.delete_session("u")
        assert names(store.history()) == ["b", "a"]
        assert names(store.history(labels={"l": "old"})) == []

    def test_history_by_labels_and_status(
        self, backend: Backend, store: Store, small_pages: int
    ) -> None:
        if self._refuses(backend, store):
            return
        for n in range(12):
            store.scope(f"s{n % 3}").save(
                n,
                id=f"{n:02}",
                labels={"run": f"{n % 2}", "node": f"{n % 3}"},
                status="done" if n % 4 else "",
            )

        evens = [f"{n:02}" for n in range(10, -1, -2)]
        assert names(store.history(labels={"run": "0"})) == evens
        assert names(store.history(labels={"run": "0", "node": "1"})) == ["10", "04"]
        assert names(store.history(labels={"node": "1", "run": "0"}, limit=1)) == ["10"]
        assert names(store.history(labels={"run": "0"}, status="done")) == ["10", "06", "02"]
        assert names(store.history(status="")) == ["08", "04", "00"]
        assert names(store.history(status="", limit=2)) == ["08", "04"]
        for labels in ({"run": "2"}, {"RUN": "0"}, {"run": "0", "more": ""}, {"0": "run"}):
            assert names(store.history(labels=labels)) == []
        assert len(names(store.history(labels={}))) == 12
        assert names(store.history(status="Done")) == []

    def test_history_by_prefix_sees_nothing_outside(self, backend: Backend, store: Store) -> None:
        if self._refuses(backend, store):
            return
        for session in ("alice/1", "bob/1", "alice/2", "alicf", "al", "alice"):
            store.scope(session).save(1, id=session, labels={"l": "1"}, status="done")

        filters: list[dict[str, Any]] = [{}, {"labels": {"l": "1"}}, {"status": "done"}]
        for options in filters:
            found = store.history(prefix="alice/", **options)
            assert names(found) == ["alice/2", "alice/1"]
            assert names(store.history(prefix="nobody", **options)) == []
        last = present(store.scope("alicf").info())
        assert names(store.history(prefix="alice/", after=last, limit=1)) == ["alice/2"]

    def test_history_takes_a_prefix_literally(self, backend: Backend, store: Store) -> None:
        if self._refuses(backend, store):
            return
        for each in AWKWARD_SESSIONS:
            store.scope(each).save(1, labels={"l": "1"})

        for prefix in AWKWARD_PREFIXES:
            inside = [each for each in AWKWARD_SESSIONS if each.startswith(prefix)]
            for labels in (None, {"l": "1"}):
                found = store.history(prefix=prefix, labels=labels)
                assert [info.session_id for info in found] == inside[::-1]

    def test_history_of_all_sessions_goes_on_after_a_cursor(
        self, backend: Backend, store: Store, small_pages: int
    ) -> None:
        if self._refuses(backend, store):
            return
        saved = [store.scope(f"s{n % 2}").save(n, labels={"l": f"{n % 3}"}) for n in range(9)]
        newest_first = saved[::-1]

        for at, info in enumerate(newest_first):
            rest = newest_first[at + 1 :]
            assert list(store.history(after=info)) == rest
            assert list(store.history(after=info, limit=4)) == rest[:4]
            assert list(store.history(after=info, prefix="s1")) == [
                each for each in rest if each.session_id == "s1"
            ]
            assert list(store.history(after=info, labels={"l": "0"})) == [
                each for each in rest if each.labels == {"l": "0"}
            ]
        assert list(store.history(limit=0)) == []

    def test_a_cursor_survives_its_snapshot(self, backend: Backend, store: Store) -> None:
        if self._refuses(backend, store):
            return
        saved = [store.scope(f"s{n % 3}").save(n, id=f"{n}") for n in range(9)]
        store.scope("s1").update("4", lambda s: s.with_(state="new"))
        assert names(store.history(after=saved[4])) == ["3", "2", "1", "0"]
        store.scope("s2").delete_snapshot("5")
        assert names(store.history(after=saved[5])) == ["4", "3", "2", "1", "0"]
        store.delete_session("s0")
        assert names(store.history(after=saved[6])) == ["4", "2", "1"]

    def test_nothing_newer_follows_a_cursor(self, backend: Backend, store: Store) -> None:
        """What is saved once the cursor is gone is newer than it, in this scope or another."""
        if self._refuses(backend, store):
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

    def test_history_of_all_sessions_is_lazy_and_bounded(
        self, backend: Backend, stores: Stores, small_pages: int
    ) -> None:
        watched = Watched(backend)
        store = stores(watched.backend)
        if self._refuses(backend, store):
            return
        for n in range(small_pages * 3):
            store.scope(f"s{n}").save(n, id=f"{n}")

        walk = store.history()
        assert watched.asked == []
        seen = [next(walk).id]
        assert watched.asked == [small_pages]
        for info in walk:
            seen.append(info.id)
            store.delete_session(info.session_id)
            store.scope("new").save("new")
            store.delete_session("s0")
        assert seen == [f"{n}" for n in reversed(range(1, small_pages * 3))]
        assert max(watched.answered) <= small_pages

    def test_history_of_all_sessions_checks_its_arguments(
        self, backend: Backend, store: Store
    ) -> None:
        info = store.scope("s").save(1, id="a")
        bad: list[dict[str, Any]] = [
            {"after": "a"},
            {"after": 7},
            {"after": info.revision},
            {"after": ("s", "main", "agent")},
            {"limit": -1},
            {"limit": "1"},
            {"limit": True},
            {"labels": ["a"]},
            {"labels": {"a": 1}},
            {"labels": {"": "a"}},
            {"status": 7},
            {"status": "a\0"},
            {"prefix": None},
            {"prefix": "a\0"},
            {"prefix": "\ud800"},
        ]
        for options in bad:
            with pytest.raises(InvalidInput):
                store.history(**options)
