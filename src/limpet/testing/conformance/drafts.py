"""Chapter: drafts. Saves that only become the head (`keep=False`)."""

import pytest

from limpet import AlreadyExists, Scope, Store
from limpet.protocol import Backend
from limpet.testing.conformance._kit import Kit, finds, names, present, states, unchanged


class Drafts(Kit):
    """A draft is the head until the head moves."""

    def test_a_draft_is_the_head_and_not_in_history(self, scope: Scope) -> None:
        kept = scope.save(1)
        draft = scope.save(2, keep=False)

        assert not draft.kept
        assert scope.info() == draft == scope.info(draft.id)
        assert present(scope.load()).state == 2 == present(scope.load(draft.id)).state
        assert states(scope.load_many([draft.id, kept.id])) == [2, 1]
        assert list(scope.history()) == [kept]
        assert list(scope.ids()) == [kept.id]

    def test_a_draft_is_gone_when_the_head_moves(self, scope: Scope) -> None:
        first = scope.save(1, keep=False)
        second = scope.save(2, keep=False)
        assert scope.load(first.id) is None
        assert scope.info(first.id) is None

        third = scope.save(3)

        assert scope.load(second.id) is None
        assert scope.info() == third
        assert list(scope.history()) == [third]

    def test_a_draft_survives_a_save_that_is_only_kept(self, scope: Scope) -> None:
        draft = scope.save(1, keep=False)
        kept = scope.save(2, head=False)

        assert scope.info() == draft
        assert names(scope.history()) == [kept.id]

    def test_a_kept_head_stays_under_a_draft(self, scope: Scope) -> None:
        kept = scope.save({"n": 1})
        for n in range(5):
            scope.save({"n": 2 + n}, keep=False)

        assert present(scope.load(kept.id)).state == {"n": 1}
        assert list(scope.history()) == [kept]

    def test_the_id_of_a_draft_is_taken_while_it_is_the_head(self, scope: Scope) -> None:
        scope.save(1, id="d", keep=False)
        with pytest.raises(AlreadyExists):
            scope.save(2, id="d", keep=False)
        with pytest.raises(AlreadyExists):
            scope.save(2, id="d")

        scope.save(3)
        again = scope.save(2, id="d")

        assert again.kept
        assert present(scope.load("d")).state == 2

    def test_the_same_draft_again_changes_nothing(self, store: Store, scope: Scope) -> None:
        draft = scope.save(1, id="d", keep=False)
        with unchanged(store):
            assert scope.save(1, id="d", keep=False) == draft

    def test_a_draft_saved_again_to_be_kept_becomes_kept(self, scope: Scope) -> None:
        """Same id and body with `keep=True` promotes the draft: it is kept, and still the head."""
        first = scope.save(0, id="a")
        draft = scope.save(1, id="d", keep=False)
        kept = scope.save(1, id="d")

        assert kept.kept
        assert (kept.parent_id, kept.created_at) == (draft.parent_id, draft.created_at)
        assert scope.info() == kept
        assert list(scope.history()) == [kept, first]
        scope.save(2, id="e")
        assert names(scope.history()) == ["e", "d", "a"]

    def test_a_promoted_draft_stays_the_head_with_head_false(self, scope: Scope) -> None:
        scope.save(1, id="d", keep=False)
        kept = scope.save(1, id="d", head=False)

        assert kept.kept
        assert scope.info() == kept

    def test_a_kept_snapshot_saved_again_as_a_draft_stays_kept(self, scope: Scope) -> None:
        kept = scope.save(1, id="a")

        assert scope.save(1, id="a", keep=False) == kept
        assert scope.info("a") == kept

    def test_overwriting_a_draft_replaces_it_in_place(self, scope: Scope) -> None:
        draft = scope.save(1, id="d", keep=False)
        again = scope.save(2, id="d", keep=False, overwrite=True)

        assert not again.kept
        assert again.revision != draft.revision
        assert again.created_at == draft.created_at
        assert present(scope.load()).state == 2
        assert scope.save(3, id="d", overwrite=True).kept
        assert names(scope.history()) == ["d"]

    def test_find_does_not_see_drafts(self, backend: Backend, store: Store, scope: Scope) -> None:
        draft = scope.save(1, id="d", keep=False)
        scope.save(2, id="k", head=False)

        if finds(backend, store):
            assert store.find("d") is None
            assert present(store.find("k")).id == "k"
        assert scope.info() == draft

    def test_growing_drafts_read_back_exactly(self, scope: Scope) -> None:
        kept = {}
        turns: list[str] = []
        for n in range(40):
            turns.append(f"turn {n} " * 5)
            info = scope.save({"turns": turns}, keep=n % 10 == 0)
            if info.kept:
                kept[info.id] = list(turns)
            assert present(scope.load()).state == {"turns": turns}

        assert {s.id: s.state["turns"] for s in scope.load_many(kept)} == kept
