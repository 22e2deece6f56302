"""Chapter: listing across scopes. `sessions`, `scopes` and `find`."""

import pytest

from limpet import InvalidInput, ScopeInfo, ScopeKey, Store
from limpet.protocol import Backend
from limpet.testing.conformance._kit import Kit, finds, present

# The last code point, and the one before the surrogates, have no ordinary successor: an engine
# that turns a prefix into a range must know where such a range ends.
AWKWARD_PREFIXES = ("a%", "a_", "a[b]*", "a?", "a\U0010ffff", "a\ud7ff", "\U0010ffff", "a'", "a\\")
AWKWARD_SESSIONS = (
    *("a", "ab", "abc", "axb", "A%", "b", "a\ue000", "\U0010fffe"),
    *(prefix + end for prefix in AWKWARD_PREFIXES for end in ("", "x", "\U0010ffff")),
)


class Listing(Kit):
    """What a store shows."""

    def test_sessions_are_in_text_order(self, store: Store, small_pages: int) -> None:
        ids = ["b", "a/2", "a/10", "a", "é", "A", "\U0001f980", "\uffff", "~"]
        for each in ids:
            store.scope(each).save(1)
            store.scope(each, "second").save(1, keep=False)

        assert list(store.sessions()) == sorted(ids, key=self.folder_order)

    def test_sessions_go_on_after_what_need_not_exist(self, store: Store, small_pages: int) -> None:
        for each in "bdfhjln":
            store.scope(each).save(1)

        assert list(store.sessions(after="c", limit=2)) == ["d", "f"]
        assert list(store.sessions(after="d", limit=4)) == ["f", "h", "j", "l"]
        assert list(store.sessions(after="n")) == []
        assert list(store.sessions(limit=0)) == []
        assert list(store.sessions(limit=3)) == ["b", "d", "f"]

    def test_sessions_by_prefix(self, store: Store, small_pages: int) -> None:
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

    def test_a_prefix_is_taken_literally(self, store: Store) -> None:
        for each in AWKWARD_SESSIONS:
            store.scope(each).save(1, id="s")

        for prefix in AWKWARD_PREFIXES:
            inside = [each for each in AWKWARD_SESSIONS if each.startswith(prefix)]
            inside.sort(key=self.folder_order)
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
        for each in ("alice/1", "alice/2", "alicf", "bob/1"):
            store.scope(each).save(1)

        listed = [info.key for info in store.scopes(prefix="alice/")]
        assert listed == [ScopeKey("alice/1"), ScopeKey("alice/2")]
        assert list(store.scopes("bob/1", prefix="alice/")) == []

    def test_a_scope_without_a_head_is_listed(self, store: Store) -> None:
        store.scope("history").save(1, head=False)
        store.scope("note").set_note("n", 1)
        store.scope("on").set_note("n", 1, on="not-there-yet")

        expected = [ScopeInfo(ScopeKey(each), None) for each in ("history", "note", "on")]
        assert list(store.scopes()) == expected
        assert list(store.sessions()) == ["history", "note", "on"]

    def test_what_holds_nothing_any_more_is_not_listed(self, store: Store) -> None:
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
        with pytest.raises(InvalidInput):
            store.sessions(limit=-1)
        with pytest.raises(InvalidInput):
            store.sessions(prefix=5)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            store.scopes("")
        with pytest.raises(InvalidInput):
            store.scopes(kind="Bad Kind")
