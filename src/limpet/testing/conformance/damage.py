"""Chapter: damage. Promise 10 on bytes that were changed where they are stored."""

from collections.abc import Callable
from pathlib import Path

from limpet import AlreadyExists, Corrupt, Store
from limpet.protocol import Backend
from limpet.testing.conformance._kit import Kit, is_durable, names, outcome, present


class Damage(Kit):
    """One bad snapshot is that one's trouble alone."""

    def test_promise_10_bad_data_is_contained_on_storage(
        self, place: Path, backend: Backend, store: Store, reopen: Callable[[], Store]
    ) -> None:
        """A stored snapshot that was spoiled behind the engine's back is reported, not believed.

        An engine that is not durable has nothing to spoil.
        """
        text = "spoil-me-9f3b7c51e20d"
        bad = store.scope("bad")
        bad.save({"text": text}, id="x")
        good = store.scope("good").save({"n": 1}, id="x")
        store.close()
        spoiled = self.damage(place, text.encode())
        if not is_durable(backend):
            assert spoiled == 0
            return
        assert spoiled > 0, "the text was not found in the folder: override Suite.damage"

        again = reopen()
        bad = again.scope("bad")
        attempts: list[Callable[[], object]] = [
            lambda: bad.load("x"),
            lambda: bad.load(),
            lambda: list(bad.load_many(["x"])),
            lambda: bad.append("items", [1]),
            lambda: bad.update("x", lambda s: s.with_(state=1)),
        ]
        for attempt in attempts:
            assert isinstance(outcome(attempt), Corrupt)
        for state in (1, {"text": text}):
            # It is neither overwritten silently nor acknowledged as already stored.
            answer = outcome(lambda state=state: bad.save(state, id="x"))  # type: ignore[misc]
            assert isinstance(answer, Corrupt | AlreadyExists)
        assert isinstance(outcome(bad.load), Corrupt)
        assert list(again.sessions()) == ["bad", "good"]
        assert len(list(again.scopes())) == 2
        assert names(bad.history()) in (["x"], [])
        assert again.scope("good").info() == good
        assert present(again.scope("good").load()).state == {"n": 1}
        assert again.scope("new").save(1).kept
        assert bad.delete_snapshot("x") == 1
        assert bad.load() is None
