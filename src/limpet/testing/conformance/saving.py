"""Chapter: saving. What a save makes, whom it names as its parent, and what it compares."""

import uuid
from datetime import UTC, datetime, timedelta, timezone

import pytest

from limpet import ANY, JSON, Conflict, Scope, ScopeKey, SnapshotInfo, SnapshotRef, Store
from limpet.testing.conformance._kit import Kit, names, nested, present, spelled, states, unchanged


class Saving(Kit):
    """`save` of new snapshots, its parents, and `expect`."""

    def test_save_is_kept_and_becomes_the_head(self, scope: Scope) -> None:
        first = scope.save({"n": 1})
        second = scope.save({"n": 2})

        assert first.kept
        assert second.kept
        assert present(scope.load()).state == {"n": 2}
        assert list(scope.history()) == [second, first]

    def test_save_returns_what_load_info_and_history_return(self, scope: Scope) -> None:
        saved = scope.save(
            {"a": 1},
            id="one",
            parent="elsewhere",
            status="paused",
            labels={"run_id": "r1", "node_id": "n"},
            metadata={"tokens": 7, "nested": {"x": [None]}},
        )

        loaded = present(scope.load("one"))
        assert type(saved) is SnapshotInfo
        assert saved == scope.info("one") == scope.info() == next(scope.history())
        assert [getattr(loaded, name) for name in SnapshotInfo.__slots__] == [
            getattr(saved, name) for name in SnapshotInfo.__slots__
        ]
        assert (saved.scope, saved.session_id) == (scope.key, "chat-42")
        assert (saved.id, saved.parent_id, saved.forked_from) == ("one", "elsewhere", None)
        assert (saved.status, saved.kept) == ("paused", True)
        assert saved.labels == {"run_id": "r1", "node_id": "n"}
        assert saved.metadata == {"tokens": 7, "nested": {"x": [None]}}

    def test_save_has_defaults(self, scope: Scope) -> None:
        """Without more than a state: `completed`, no labels, no metadata, a root, not forked."""
        saved = scope.save([])

        assert (saved.status, saved.labels, saved.metadata) == ("", {}, {})
        assert (saved.parent_id, saved.forked_from) == (None, None)

    def test_save_mints_a_uuid7(self, scope: Scope) -> None:
        saved = scope.save(1)

        minted = uuid.UUID(saved.id)
        assert (str(minted), minted.version) == (saved.id, 7)

    def test_any_json_is_a_state(self, scope: Scope) -> None:
        states: list[JSON] = [None, False, 0, "", [], {}, "text", 1.5, [1, {"a": []}]]
        for state in states:
            assert scope.save(state).kept
            assert spelled(present(scope.load()).state) == spelled(state)
        assert scope.load("missing") is None

    def test_size_is_that_of_the_encoded_state(self, scope: Scope) -> None:
        """`size` counts the bytes of the compact JSON of the state, as UTF-8."""
        assert scope.save({"a": [1, 2.5], "b": "é"}).size == len('{"a":[1,2.5],"b":"é"}'.encode())
        assert scope.save(None).size == 4
        large = scope.save({"text": "x" * 100_000})
        assert large.size == len('{"text":""}') + 100_000 == present(scope.load()).size

    def test_times_are_aware_and_in_utc(self, scope: Scope) -> None:
        before = datetime.now(UTC)
        saved = scope.save(1)
        after = datetime.now(UTC)

        for moment in (saved.created_at, saved.updated_at):
            assert moment.tzinfo is UTC
            assert before - timedelta(milliseconds=1) <= moment <= after

    def test_created_at_is_kept_but_never_orders(self, scope: Scope) -> None:
        """`created_at` is for imports: the same moment comes back; order stays commit order."""
        paris = datetime(2001, 2, 3, 4, 5, 6, 789, tzinfo=timezone(timedelta(hours=1)))
        late = datetime(2999, 1, 1, tzinfo=UTC)

        scope.save(1, id="late", created_at=late)
        old = scope.save(2, id="old", created_at=paris)

        assert old.created_at == paris == present(scope.info("old")).created_at
        assert old.created_at.utcoffset() == timedelta(0)
        assert old.updated_at > old.created_at
        assert names(scope.history()) == ["old", "late"]
        assert present(scope.info()).id == "old"

    def test_forked_from_is_kept(self, scope: Scope) -> None:
        origin = SnapshotRef(ScopeKey("other/session", "x~y", "graph"), "snap/1")

        scope.save(1, id="a", forked_from=origin)

        assert present(scope.info("a")).forked_from == origin
        assert present(scope.load("a")).forked_from == origin

    def test_status_is_free_text(self, scope: Scope) -> None:
        for status in ("", "paused", "was für eine Überraschung", "'; --", "x" * 256):
            assert scope.save(1, status=status).status == status
            assert present(scope.info()).status == status

    def test_labels_and_metadata_may_be_large(self, scope: Scope) -> None:
        """The limits themselves are fine: 64 labels of 256 characters, 64 KB of metadata."""
        labels = {f"{n:03}".ljust(256, "k"): "v" * 256 for n in range(64)}
        metadata = {"m": "x" * (64 * 1024 - len('{"m":""}'))}

        scope.save(1, labels=labels, metadata=metadata)

        assert present(scope.info()).labels == labels
        assert present(scope.info()).metadata == metadata

    def test_metadata_under_a_facade_key_counts_as_state(self, scope: Scope) -> None:
        """What a facade keeps under its own key may exceed the limit of metadata."""
        for key in ("strands", "genkit", "agentos"):
            metadata = {key: {"verbatim": "x" * 100_000}, "small": 1}
            scope.save(1, metadata=metadata)
            assert present(scope.info()).metadata == metadata

    def test_depth_of_200_is_fine(self, scope: Scope) -> None:
        scope.save(nested(200))

        assert present(scope.load()).state == nested(200)

    def test_scopes_are_separate(self, store: Store) -> None:
        keys = [ScopeKey("s", "a"), ScopeKey("s", "b"), ScopeKey("s", "a", "graph")]
        keys += [ScopeKey("t", "a"), ScopeKey("s", "a", "multiAgent")]
        for at, key in enumerate(keys):
            store.scope(*key).save({"at": at}, id="same")

        for at, key in enumerate(keys):
            scope = store.scope(*key)
            assert present(scope.load("same")).state == {"at": at}
            assert names(scope.history()) == ["same"]

    def test_a_scope_is_an_address(self, store: Store) -> None:
        scope = store.scope("alice/chat", kind="run")

        assert (scope.key, scope.session_id) == (
            ScopeKey("alice/chat", "main", "run"),
            "alice/chat",
        )
        assert (scope.scope_id, scope.kind) == ("main", "run")
        assert list(store.sessions()) == []
        saved = scope.save(1)
        assert store.scope(*saved.scope).info() == saved

    def test_parent_none_is_a_root(self, scope: Scope) -> None:
        scope.save(1)

        assert scope.save(2, parent=None).parent_id is None

    def test_default_parent_is_the_kept_head(self, scope: Scope) -> None:
        first = scope.save(1)
        scope.save(2, head=False)

        assert scope.save(3).parent_id == first.id

    def test_default_parent_of_a_draft_is_passed_on(self, scope: Scope) -> None:
        """A draft vanishes, so what follows it has the draft's own parent."""
        first = scope.save(1)
        draft = scope.save(2, keep=False)
        scope.save(3, head=False)
        second_draft = scope.save(4, keep=False)

        assert draft.parent_id == first.id
        assert second_draft.parent_id == first.id
        assert scope.save(5).parent_id == first.id

    def test_default_parent_is_else_the_newest_kept(self, scope: Scope) -> None:
        """A draft without a parent, or no head at all: the newest kept snapshot, else None."""
        assert scope.save(1, id="a", head=False).parent_id is None
        assert scope.save(2, id="b", head=False).parent_id == "a"
        scope.save(3, parent=None, keep=False)
        assert scope.save(4, id="c").parent_id == "b"

    def test_default_parent_is_never_the_snapshot_itself(self, scope: Scope) -> None:
        """A draft may name what was deleted since; saved again, that is not its own parent."""
        scope.save(1, id="a")
        scope.save(2, id="d", keep=False)
        scope.delete_snapshot("a")

        assert present(scope.info("d")).parent_id == "a"
        assert scope.save(3, id="a").parent_id is None

    def test_a_parent_is_a_statement(self, scope: Scope) -> None:
        """A parent may name what has not arrived yet, or what is gone."""
        child = scope.save(1, id="child", parent="later")
        assert child.parent_id == "later"

        scope.save(0, id="later", parent=None)
        scope.delete_snapshot("later")

        assert present(scope.info("child")) == child

    def test_expect_compares_the_revision_of_the_head(self, scope: Scope) -> None:
        first = scope.save(1, expect=None)
        second = scope.save(2, expect=first.revision)

        for stale in (first.revision, None, "0.0.nonsense"):
            with pytest.raises(Conflict):
                scope.save(3, expect=stale)
        assert scope.save(4, expect=second.revision).parent_id == second.id
        assert scope.save(5, expect=ANY).kept

    def test_expect_none_means_no_head_yet(self, scope: Scope) -> None:
        """`expect=None` succeeds where there is no head, though there may be history."""
        scope.save(1, id="a", head=False)
        first = scope.save(2, id="b", expect=None)
        scope.delete_snapshot("a")
        scope.delete_snapshot("b")

        second = scope.save(3, expect=None)

        assert second.revision != first.revision

    def test_expect_is_the_head_also_for_a_save_that_is_only_kept(self, scope: Scope) -> None:
        first = scope.save(1)
        second = scope.save(2)

        with pytest.raises(Conflict):
            scope.save(3, head=False, expect=first.revision)
        scope.save(4, head=False, expect=second.revision)

        assert scope.info() == second

    def test_expect_sees_an_update_of_the_head(self, scope: Scope) -> None:
        first = scope.save(1)
        updated = present(scope.update(first.id, lambda s: s.with_(state=2)))

        with pytest.raises(Conflict):
            scope.save(3, expect=first.revision)
        scope.save(3, expect=updated.revision)

    def test_a_revision_never_comes_back(self, store: Store, scope: Scope) -> None:
        old = scope.save(1, id="a")
        scope.delete()
        scope.save(1, id="a")
        with unchanged(store), pytest.raises(Conflict):
            scope.save(2, expect=old.revision)

    def test_kept_only_leaves_the_head(self, scope: Scope) -> None:
        head = scope.save("head", id="a")
        kept = scope.save("kept", id="b", head=False)

        assert kept.kept
        assert scope.info() == head
        assert names(scope.history()) == ["b", "a"]
        assert states(scope.load_many(["b"])) == ["kept"]

    def test_kept_only_makes_no_head(self, scope: Scope) -> None:
        scope.save(1, head=False)

        assert scope.load() is None
        assert scope.info() is None
