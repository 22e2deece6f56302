"""Chapter: listing across scopes. `sessions`, `scopes` and `find`."""

import pytest

from limpet.api.store import Store
from limpet.errors import InvalidInput
from limpet.model import ScopeInfo, ScopeKey
from limpet.protocol import Backend
from limpet.testing.conformance._kit import Kit, finds, present

# The last code point, and the one before the surrogates, have no ordinary successor: an engine
# that turns a prefix into a range must know where such a range ends.
AWKWARD_PREFIXES = ("a%", "a_", "a[b]*", "a?", "a\U0010ffff", "a\ud7ff", "\U0010ffff", "a'", "a\\")


class Listing(Kit):
    """What a store shows."""

    def test_sessions_are_in_text_order(self, store: Store, small_pages: int) -> None:
        """Every session that holds anything, once, by code points, over several pages."""
        ids = ["b", "a/2", "a/10", "a", "é", "A", "\U0001f980", "\uffff", "~"]
        for each in ids:
            store.scope(each).save(1)
            store.scope(each, "second").save(1, keep=False)

        assert list(store.sessions()) == sorted(ids, key=self.folder_order)

    def test_sessions_go_on_after_what_need_not_exist(self, store: Store, small_pages: int) -> None:
        """`after` is a text that all that follows is greater than; `limit` counts."""
        for each in "bdfhjln":
            store.scope(each).save(1)

        assert list(store.sessions(after="c", limit=2)) == ["d", "f"]
        assert list(store.sessions(after="d", limit=4)) == ["f", "h", "j", "l"]
        assert list(store.sessions(after="n")) == []
        assert list(store.sessions(limit=0)) == []
        assert list(store.sessions(limit=3)) == ["b", "d", "f"]

    def test_sessions_by_prefix(self, store: Store, small_pages: int) -> None:
        """Only sessions that begin with the prefix, together with `after` and `limit`."""
        for each in ("alice/1", "alice/2", "alice/3", "alice/4", "alice", "alicf", "bob/1", "al"):
            store.scope(each).save(1)

        assert list(store.sessions(prefix="alice/")) == [f"alice/{n}" for n in range(1, 5)]
        assert list(store.sessions(prefix="alice/", after="alice/1", limit=2)) == [
            "alice/2",
            "alice/3",
        ]
        assert list(store.sessions(prefix="alice/", after="b")) == []
        assert list(store.sessions(prefix="bob/", after="alice")) == ["bob/1"]
        assert list(store.sessions(prefix="nobody")) == []

    @pytest.mark.parametrize("prefix", AWKWARD_PREFIXES, ids=ascii)
    def test_a_prefix_is_taken_literally(self, store: Store, prefix: str) -> None:
        """No character of a prefix is a wildcard, and none breaks the range."""
        names_inside = [prefix, prefix + "x", prefix + "\U0010ffff"]
        inside = sorted(names_inside, key=self.folder_order)
        outside = ["a", "ab", "abc", "axb", "A%", "b", "a\ue000", "\U0010fffe"]
        for each in [*inside, *outside]:
            store.scope(each).save(1, id="s")

        assert list(store.sessions(prefix=prefix)) == inside
        assert [info.key.session_id for info in store.scopes(prefix=prefix)] == inside

    def test_scopes_are_listed_with_their_heads(self, store: Store, small_pages: int) -> None:
        """By session, then kind, then scope id; each with what it shows now, drafts too."""
        heads = []
        for session in ("s", "t"):
            for kind in ("agent", "graph", "multiAgent"):
                for scope_id in ("a", "b"):
                    scope = store.scope(session, scope_id, kind)
                    scope.save("under")
                    heads.append(ScopeInfo(scope.key, scope.save("top", keep=scope_id == "a")))

        assert list(store.scopes()) == heads
        assert list(store.scopes("t")) == heads[6:]
        assert list(store.scopes(kind="graph")) == [heads[2], heads[3], heads[8], heads[9]]
        assert list(store.scopes("s", kind="graph")) == heads[2:4]
        assert list(store.scopes("u")) == []

    def test_scopes_by_prefix(self, store: Store) -> None:
        """Only scopes of sessions that begin with the prefix."""
        for each in ("alice/1", "alice/2", "alicf", "bob/1"):
            store.scope(each).save(1)

        listed = [info.key for info in store.scopes(prefix="alice/")]
        assert listed == [ScopeKey("alice/1"), ScopeKey("alice/2")]
        assert list(store.scopes("bob/1", prefix="alice/")) == []

    def test_a_scope_without_a_head_is_listed(self, store: Store) -> None:
        """With only history, or only a note, there is a scope and no head; so is its session."""
        store.scope("history").save(1, head=False)
        store.scope("note").set_note("n", 1)
        store.scope("on").set_note("n", 1, on="not-there-yet")

        expected = [ScopeInfo(ScopeKey(each), None) for each in ("history", "note", "on")]
        assert list(store.scopes()) == expected
        assert list(store.sessions()) == ["history", "note", "on"]

    def test_what_holds_nothing_any_more_is_not_listed(self, store: Store) -> None:
        """A scope, and a session, are listed exactly as long as they hold anything."""
        first, second = store.scope("s", "a"), store.scope("s", "b")
        saved = first.save(1)
        second.save(2, id="x", keep=False)
        second.set_note("n", 1)

        first.delete_snapshot(saved.id)
        assert [info.key.scope_id for info in store.scopes()] == ["b"]
        second.delete_snapshot("x")
        assert list(store.scopes()) == [ScopeInfo(second.key, None)]
        second.delete_note("n")
        assert list(store.scopes()) == []
        assert list(store.sessions()) == []

    def test_listing_holds_no_lock(self, store: Store, plain: Store, small_pages: int) -> None:
        """Between two items others write and delete; what is left is still listed, once."""
        for n in range(9):
            store.scope(f"{n}").save(1)

        seen = []
        for each in store.sessions():
            seen.append(each)
            plain.delete_session(each)
            plain.delete_session("8")
        assert seen == [str(n) for n in range(8)]

        for n in range(9):
            store.scope("s", f"{n}").save(1)
        scopes = []
        for info in store.scopes():
            scopes.append(info.key.scope_id)
            plain.scope(*info.key).delete()
            plain.scope("r").save(1)
        assert scopes == [str(n) for n in range(9)]

    def test_find_gives_the_last_saved_match(self, backend: Backend, store: Store) -> None:
        """In scopes of any kind; an update or overwrite does not make one the last saved."""
        if not finds(backend, store):
            return
        for kind in ("agent", "graph", "thread"):
            store.scope("s", "main", kind).save(kind, id="x")
        last = store.scope("t").save("t", id="x", head=False)
        assert store.find("x") == last

        store.scope("s", kind="graph").save("new", id="x", overwrite=True)
        store.scope("s").update("x", lambda s: s)
        assert store.find("x") == last

        store.delete_session("t")
        assert present(store.find("x")).scope.kind == "thread"
        assert store.find("y") is None

    def test_find_sees_nothing_outside_its_prefix(self, backend: Backend, store: Store) -> None:
        """Only sessions that begin with the prefix are looked at."""
        if not finds(backend, store):
            return
        alice = store.scope("alice/1").save(1, id="x")
        bob = store.scope("bob/1").save(2, id="x")

        assert store.find("x") == bob
        assert store.find("x", prefix="alice/") == alice
        assert store.find("x", prefix="alice/2") is None
        for prefix in AWKWARD_PREFIXES:
            mine = store.scope(prefix + "/1").save(3, id="y")
            store.scope("zebra").save(4, id="y", overwrite=True)
            assert store.find("y", prefix=prefix) == mine

    def test_listings_check_their_arguments_at_the_call(self, store: Store) -> None:
        """A bad argument is refused before the first item is asked for."""
        with pytest.raises(InvalidInput):
            store.sessions(limit=-1)
        with pytest.raises(InvalidInput):
            store.sessions(prefix=5)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            store.scopes("")
        with pytest.raises(InvalidInput):
            store.scopes(kind="Bad Kind")
