"""Chapter: order and reach. Promises 7, 11 and 12 in more cases than their first tests."""

from collections.abc import Callable

from limpet import Scope, Store
from limpet.protocol import Backend
from limpet.testing.conformance._kit import Kit, Stores, finds, names, present
from limpet.testing.conformance._layers import Clocked
from limpet.testing.conformance._values import STRANGE_IDS


class Order(Kit):
    """Places in history, and names."""

    def test_promise_07_strict_order_of_foreign_ids(self, scope: Scope) -> None:
        """Foreign ids do not order; an update or overwrite keeps its position."""
        ids = ["zz", "b", "ffffffff-ffff-7fff-bfff-ffffffffffff", "a", "0"]
        for each in ids:
            scope.save(each, id=each)
        minted = scope.save("minted").id
        scope.save("new", id="b", overwrite=True)
        scope.update("zz", lambda s: s.with_(state="new"))

        assert names(scope.history()) == [minted, *ids[::-1]]
        assert present(scope.info()).id == minted
        assert scope.save("next").id > minted

    def test_promise_07_strict_order_outlives_what_was_saved(
        self, backend: Backend, stores: Stores
    ) -> None:
        """Minted ids grow even in a scope whose every snapshot was deleted one by one."""
        scope = stores(Clocked(backend, [5_000_000, 4_000_000]).backend).scope("s")
        first = scope.save(1)
        scope.set_note("n", 1)
        scope.delete_snapshot(first.id)

        assert scope.save(2).id > first.id

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
        """No query with a prefix sees a session outside it."""
        for each in STRANGE_IDS:
            store.scope(each).save(each, id="x")
        for prefix in ("a", "A", "a%", "a_", ".", "../", "%", "_", "é", "x" * 511, "a/"):
            inside = [each for each in STRANGE_IDS if each.startswith(prefix)]
            inside.sort(key=self.folder_order)
            last = [each for each in STRANGE_IDS if each.startswith(prefix)][-1:]
            assert list(store.sessions(prefix=prefix)) == inside
            assert [info.key.session_id for info in store.scopes(prefix=prefix)] == inside
            if finds(backend, store):
                found = store.find("x", prefix=prefix)
                assert ([] if found is None else [found.session_id]) == last

    def test_promise_12_bounded_deletion(self, store: Store, scope: Scope) -> None:
        """Much more than a page is counted and removed by one call."""
        for n in range(300):
            scope.append("n", [n], keep=n % 100 != 0)
        kept = 300 - 3
        assert len(list(scope.history())) == kept
        assert scope.delete() == kept
        assert list(store.sessions()) == []
