"""Chapter: functions of the caller. Those given to `update`, `set_note`, `fork` and `redact`."""

from collections.abc import Callable
from typing import Any

import pytest

from limpet import (
    JSON,
    AlreadyExists,
    Conflict,
    InvalidInput,
    NotFound,
    Redacted,
    Scope,
    Snapshot,
    Store,
)
from limpet.protocol import Backend
from limpet.testing.kit import (
    Api,
    Kit,
    assert_labelled,
    dump,
    names,
    present,
    refused,
    states,
    unchanged,
)


def _is_secret(path: str, value: JSON) -> bool:
    return isinstance(value, str) and "secret" in value


def _never(given: object) -> Any:
    pytest.fail("there is nothing to ask about")


class Functions(Kit):
    """They may be slow, are called again after a concurrent write, and may raise."""

    def test_a_function_gets_a_copy_of_its_own(self, store: Store, scope: Scope) -> None:
        """It may change it and return it; if it returns None, nothing has happened."""
        scope.save({"n": [1]}, id="a", labels={"l": "1"})
        scope.set_note("n", [1])

        def spoil(snapshot: Snapshot) -> None:
            snapshot.state["n"].append(2)
            snapshot.labels["l"] = "2"

        def extend(snapshot: Snapshot) -> Snapshot:
            snapshot.state["n"].append(2)
            return snapshot

        with unchanged(store):
            assert scope.update("a", spoil) is None
            assert scope.set_note("n", lambda value: value.append(2)) is None
        fork = scope.fork("a", patch=lambda state: {"n": state["n"].append(2)})
        assert present(fork.load()).state == {"n": None}
        assert present(scope.load("a")).state == {"n": [1]}
        scope.update("a", extend)
        assert present(scope.load("a")).state == {"n": [1, 2]}

    def test_a_functions_own_error_is_the_callers(self, scope: Scope, rival: Scope) -> None:
        """Also if it is a Conflict, and what it was called for has moved: it is not retried."""
        scope.save({"n": 0}, id="a")
        scope.set_note("n", 0)
        calls: list[int] = []

        def refuse(_: Any) -> Any:
            calls.append(1)
            rival.save({"n": len(calls)}, id="a", overwrite=True)
            rival.set_note("n", len(calls))
            raise Conflict("mine")

        verbs: list[Callable[[], object]] = [
            lambda: scope.update("a", refuse),
            lambda: scope.set_note("n", refuse),
            lambda: scope.fork("a", patch=refuse),
        ]
        for count, verb in enumerate(verbs, start=1):
            with pytest.raises(Conflict, match="mine"):
                verb()
            assert len(calls) == count
        with pytest.raises(ZeroDivisionError):
            scope.redact(lambda path, value: bool(1 / 0))

    def test_update_calls_the_function_again_after_a_concurrent_write(
        self, scope: Scope, rival: Scope
    ) -> None:
        """An overwrite counts as well, even one back to an equal body."""
        scope.save(0, id="a")
        calls: list[int] = []

        def add(snapshot: Snapshot) -> Snapshot:
            calls.append(snapshot.state)
            if len(calls) == 1:
                rival.update("a", lambda s: s.with_(state=10))
            elif len(calls) == 2:
                rival.save(1, id="a", overwrite=True)
                rival.save(10, id="a", overwrite=True)
            return snapshot.with_(state=snapshot.state + 1)

        scope.update("a", add)

        assert calls == [0, 10, 10]
        assert present(scope.load("a")).state == 11

    def test_update_holds_nothing_while_the_function_runs(
        self, store: Store, scope: Scope, plain: Store
    ) -> None:
        scope.save(0, id="a")

        def write_meanwhile(snapshot: Snapshot) -> Snapshot:
            for key in (scope.key, ("chat-42", "other"), ("another",)):
                plain.scope(*key).save("meanwhile")
            return snapshot.with_(state=1)

        scope.update("a", write_meanwhile)

        assert present(scope.load("a")).state == 1
        assert present(scope.load()).state == "meanwhile"
        assert len(list(store.scopes())) == 3

    def test_a_note_is_asked_for_again_after_a_concurrent_write(
        self, scope: Scope, rival: Scope
    ) -> None:
        """With `expect` it is a Conflict, and the function is not called in vain."""
        seen: list[JSON] = []

        def add(value: JSON) -> JSON:
            if len(seen) in (0, 2):
                rival.set_note("n", (value or 0) + 10)
            seen.append(value)
            return (value or 0) + 1

        scope.set_note("n", add)
        assert (seen, present(scope.note("n")).value) == ([None, 10], 11)
        scope.set_note("n", add)
        assert (seen[2:], present(scope.note("n")).value) == ([11, 21], 22)

        def disturbed(value: JSON) -> JSON:
            rival.set_note("n", 5)
            return 2

        first = present(scope.note("n"))
        with pytest.raises(Conflict):
            scope.set_note("n", disturbed, expect=first.revision)
        assert present(scope.note("n")).value == 5
        for stale in (first.revision, None):
            with pytest.raises(Conflict):
                scope.set_note("n", _never, expect=stale)

    def test_a_fork_uses_what_its_source_has_become(self, scope: Scope, rival: Scope) -> None:
        """While a slow function thinks, the source is updated: it is asked again."""
        scope.save({"n": 1}, id="a", labels={"l": "1"})
        seen: list[Any] = []

        def slow(state: JSON) -> JSON:
            seen.append(state["n"])
            if len(seen) == 1:
                rival.update("a", lambda s: s.with_(state={"n": 2}, labels={"l": "2"}))
            return {"n": state["n"] * 10}

        fork = scope.fork("a", patch=slow)

        first = present(fork.load())
        assert seen == [1, 2]
        assert (first.state, first.labels) == ({"n": 20}, {"l": "2"})
        assert names(fork.history()) == [first.id]

    def test_what_is_deleted_or_taken_meanwhile(
        self, store: Store, scope: Scope, plain: Store, rival: Scope
    ) -> None:
        """An update or a fork of what is gone is NotFound, a name that is taken AlreadyExists."""
        for n, each in enumerate("abcd"):
            scope.save({"n": n}, id=each)
        with unchanged(store):
            refused(NotFound, [lambda: scope.update("no", _never)])
            refused(NotFound, [lambda: scope.fork("no", patch=_never)])

        def after(delete: Callable[[], object]) -> Callable[[Any], Any]:
            return lambda given: (delete(), given)[1]

        slow = [
            lambda: scope.update("a", after(lambda: rival.delete_snapshot("a"))),
            lambda: scope.fork("b", patch=after(lambda: rival.delete_snapshot("b"))),
            lambda: scope.fork("c", to="other", patch=after(lambda: rival.prune(keep_last=1))),
            lambda: scope.fork("d", scope_id="mine", patch=after(rival.delete)),
        ]
        refused(NotFound, slow)
        assert dump(store) == [[], []]

        scope.save({"n": 1}, id="a")
        take = after(lambda: plain.scope("other", scope.scope_id).save("first", id="x"))
        with pytest.raises(AlreadyExists):
            scope.fork("a", to="other", patch=take)
        assert names(store.scope("other", scope.scope_id).history()) == ["x"]

    def test_a_redaction_asks_about_everything(self, scope: Scope, backend: Backend) -> None:
        scope.save(
            {"a": ["a secret"], "secret": 1},
            id="a",
            status="secret",
            labels={"x": "secret", "y": "fine"},
            metadata={"m": {"of": "secret"}},
        )
        scope.save({"draft": "secret"}, keep=False)
        scope.set_note("n/n", {"by": "secret"})
        scope.set_note("p", "secret", on="never saved")
        asked: list[str] = []

        def is_secret(path: str, value: JSON) -> bool:
            asked.append(path)
            return _is_secret(path, value)

        assert scope.redact(is_secret) == Redacted(2, 2)
        assert_labelled(backend, scope, {"x": "secret"}, [])
        assert_labelled(backend, scope, {"y": "fine"}, ["a"])
        assert {"", "/a", "/a/0", "/secret", "/draft", "status", "labels/x"} <= set(asked)
        assert {"metadata/m", "metadata/m/of", "notes/n~1n", "notes/n~1n/by"} <= set(asked)
        assert asked.index("/a") < asked.index("/a/0")

    def test_what_is_saved_meanwhile_is_redacted(self, scope: Scope, rival: Scope) -> None:
        """Also if it is saved by a fork that begins then, or changed in place."""
        for n in range(3):
            scope.save({"of": "secret", "n": n}, id=f"{n}")
        todo: list[Callable[[], object]] = [
            lambda: rival.save({"of": "a new secret"}),
            lambda: rival.update("0", lambda s: s.with_(state={**s.state, "more": "secret"})),
            lambda: rival.fork("0", scope_id="fork"),
            lambda: rival.set_note("late", "secret"),
        ]

        def is_secret(path: str, value: JSON) -> bool:
            if path and todo:
                todo.pop(0)()
            return _is_secret(path, value)

        scope.redact(is_secret)

        left = {"of": None, "n": 0, "more": None}
        expected = [{"of": None}, {"of": None, "n": 2}, {"of": None, "n": 1}, left]
        assert states(scope.load_many(names(scope.history()))) == expected
        (first,) = rival.driver.run(
            lambda backend: backend.read_snapshots(scope.key._replace(scope_id="fork"), [None])
        )
        assert b"secret" not in first[1]
        assert present(scope.note("late")).value is None

    def test_an_async_function_needs_the_async_api(
        self, api: Api, store: Store, scope: Scope
    ) -> None:
        scope.save({"n": 1}, id="a")
        scope.set_note("n", {"n": 1})

        async def change(snapshot: Snapshot) -> Snapshot:
            return snapshot.with_(state={"n": 2})

        async def count(value: JSON) -> JSON:
            return {"n": value["n"] + 1}

        verbs: list[Callable[[], Any]] = [
            lambda: scope.update("a", change),  # type: ignore[arg-type]
            lambda: scope.set_note("n", count),
            lambda: scope.fork("a", patch=count),
        ]
        if api == "sync":
            with unchanged(store):
                assert all("store.aio" in message for message in refused(InvalidInput, verbs))
            return
        *_, fork = [verb() for verb in verbs]
        assert present(scope.load("a")).state == present(scope.note("n")).value == {"n": 2}
        assert present(fork.load()).state == {"n": 3}
