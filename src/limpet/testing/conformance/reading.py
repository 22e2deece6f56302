"""Chapter: reading one scope. `load`, `load_many`, `info`, `history` and `ids`."""

from collections.abc import Iterator

import pytest

from limpet import InvalidInput, NotFound, Scope, Store
from limpet.protocol import Backend
from limpet.testing.conformance._kit import Kit, assert_labelled, names, present, states


class Reading(Kit):
    """What a scope shows."""

    def test_load_of_nothing_is_none(self, scope: Scope) -> None:
        assert scope.load() is None
        assert scope.load("a") is None
        assert scope.info() is None
        assert scope.info("a") is None
        assert list(scope.history()) == []
        assert list(scope.ids()) == []
        assert list(scope.load_many(["a"])) == []
        scope.save(1, id="a")
        assert scope.load("b") is None
        assert scope.info("b") is None

    def test_reading_creates_nothing(self, store: Store, scope: Scope) -> None:
        scope.load()
        list(scope.history())
        list(scope.notes())
        scope.delete_snapshot("a")
        scope.delete()

        assert list(store.sessions()) == []
        assert list(store.scopes()) == []

    def test_load_many_keeps_the_order_asked(self, scope: Scope, small_pages: int) -> None:
        for n in range(8):
            scope.save({"n": n}, id=f"{n}")

        asked = ["7", "missing", "0", "3", "gone", "5", "1", "2", "x", "y", "z", "6"]
        found = list(scope.load_many(asked))

        assert names(found) == ["7", "0", "3", "5", "1", "2", "6"]
        assert states(found) == [{"n": int(snapshot.id)} for snapshot in found]
        assert [scope.load(snapshot.id) for snapshot in found] == found

    def test_load_many_takes_any_iterable(self, scope: Scope) -> None:
        scope.save(1, id="a")
        scope.save(2, id="b")

        assert names(scope.load_many(each for each in ("b", "a"))) == ["b", "a"]
        assert names(scope.load_many(("a",))) == ["a"]
        assert names(scope.load_many([])) == []
        assert names(scope.load_many(["a", "b", "a"])) == ["a", "b", "a"]

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

    def test_history_is_newest_first(self, scope: Scope, small_pages: int) -> None:
        saved = [scope.save(n) for n in range(small_pages * 3 + 1)]

        assert list(scope.history()) == saved[::-1]

    def test_limits_are_exact_on_the_edge_of_a_page(self, scope: Scope, small_pages: int) -> None:
        """At most `limit` items, at any limit, also on the edge of a page; 0 yields nothing."""
        saved = [scope.save(n, id=f"{n}") for n in range(7)]

        for limit in (0, 1, 2, 3, 4, 6, 7, 8, 100):
            assert list(scope.history(limit=limit)) == saved[::-1][:limit]
            assert list(scope.ids(limit=limit)) == [str(n) for n in range(7)][:limit]

    def test_history_goes_on_after_the_last_one_seen(self, scope: Scope) -> None:
        saved = [scope.save(n, id=f"{n}") for n in range(5)]

        for at in range(5):
            expected = saved[:at][::-1]
            assert list(scope.history(after=f"{at}")) == expected
            assert list(scope.history(after=saved[at])) == expected
            assert list(scope.history(after=saved[at], limit=1)) == expected[:1]

    def test_history_can_be_read_page_by_page(self, scope: Scope) -> None:
        saved = [scope.save(n) for n in range(7)]
        read = list(scope.history(limit=2))
        while page := list(scope.history(limit=2, after=read[-1])):
            read += page

        assert read == saved[::-1]

    def test_a_cursor_survives_the_deletion_of_its_snapshot(self, scope: Scope) -> None:
        saved = [scope.save(n, id=f"{n}") for n in range(5)]
        scope.update("3", lambda s: s.with_(state="new"))
        assert names(scope.history(after=saved[3])) == ["2", "1", "0"]

        scope.delete_snapshot("3")

        assert names(scope.history(after=saved[3])) == ["2", "1", "0"]
        scope.save(9, id="3")
        assert names(scope.history(after=saved[3])) == ["2", "1", "0"]

    def test_history_after_an_unknown_id_is_not_found(self, scope: Scope) -> None:
        scope.save(1, id="a")
        scope.save(2, id="b")
        scope.delete_snapshot("a")

        for unknown in ("never", "a"):
            with pytest.raises(NotFound):
                list(scope.history(after=unknown))

    def test_history_checks_its_arguments_at_the_call(self, store: Store, scope: Scope) -> None:
        other = store.scope("other").save(1)

        with pytest.raises(InvalidInput):
            scope.history(limit=-1)
        with pytest.raises(InvalidInput):
            scope.history(after=other)
        with pytest.raises(InvalidInput):
            scope.history(after="")
        with pytest.raises(InvalidInput):
            scope.history(labels={"a": 1})  # type: ignore[dict-item]
        with pytest.raises(InvalidInput):
            scope.ids(limit=-1)

    def test_history_is_lazy_and_holds_no_lock(
        self, scope: Scope, rival: Scope, small_pages: int
    ) -> None:
        for n in range(small_pages * 3):
            scope.save(n, id=f"{n}")

        seen: list[str] = []
        for info in scope.history():
            seen.append(info.id)
            rival.save("meanwhile")
            rival.delete_snapshot(info.id)
            rival.delete_snapshot("0")

        assert seen == [str(n) for n in range(small_pages * 3 - 1, 0, -1)]

    def test_history_filters(self, backend: Backend, scope: Scope, small_pages: int) -> None:
        """All labels must match, and the status; order, limit and cursor work on what matches."""
        for n in range(12):
            scope.save(
                n,
                id=f"{n:02}",
                status="odd" if n % 2 else "even",
                labels={"third": str(n % 3), "all": "x"},
            )

        assert names(scope.history(status="odd")) == ["11", "09", "07", "05", "03", "01"]
        assert names(scope.history(status="odd", limit=2, after="07")) == ["05", "03"]
        assert names(scope.history(status="none")) == []
        assert len(names(scope.history(labels={}))) == 12
        assert_labelled(backend, scope, {"third": "0"}, ["09", "06", "03", "00"])
        assert_labelled(backend, scope, {"third": "0", "all": "x"}, ["09", "06", "03", "00"])
        assert_labelled(backend, scope, {"third": "0", "all": "y"}, [])
        assert_labelled(backend, scope, {"third": ""}, [])
        assert_labelled(backend, scope, {"fourth": "0"}, [])
        if "index" in backend.capabilities:
            both = scope.history(labels={"third": "0"}, status="odd", after="09", limit=1)
            assert names(both) == ["03"]

    def test_ids_are_in_text_order(self, scope: Scope, small_pages: int) -> None:
        ids = ["b", "a", "B", "~", "é", "10", "9", "\U0001f980", "\uffff", "a-b", "a/b", "a b"]
        for each in ids:
            scope.save(1, id=each)
        scope.save(2, id="draft", keep=False)

        assert list(scope.ids()) == sorted(ids)

    def test_ids_go_on_after_what_need_not_exist(self, scope: Scope) -> None:
        for each in ("b", "d", "f"):
            scope.save(1, id=each)

        assert list(scope.ids(after="b")) == ["d", "f"]
        assert list(scope.ids(after="c")) == ["d", "f"]
        assert list(scope.ids(after="a", limit=1)) == ["b"]
        assert list(scope.ids(after="f")) == []
        assert list(scope.ids(after="")) == ["b", "d", "f"]

    def test_info_is_load_without_the_state(self, scope: Scope) -> None:
        scope.save({"x": 1}, id="a", labels={"l": "1"})
        scope.save({"y": 2}, id="b", keep=False)

        for each in (None, "a", "b"):
            info, loaded = present(scope.info(each)), present(scope.load(each))
            assert not hasattr(info, "state")
            for name in type(info).__slots__:
                assert getattr(info, name) == getattr(loaded, name)
