"""Chapter: bad input. One error of the tree each, and no trace of the attempt."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any, Final, TypeAlias

import pytest

from limpet import (
    AlreadyExists,
    Conflict,
    InvalidInput,
    LimpetError,
    NotFound,
    Scope,
    ScopeKey,
    Snapshot,
    SnapshotInfo,
    SnapshotRef,
    Store,
)
from limpet.testing.conformance._apis import Api
from limpet.testing.conformance._kit import Kit, Stores, case, nested, present, refused, unchanged
from limpet.testing.conformance._values import NOT_JSON

# Of a store and a scope. Their types are left out, because the arguments are wrong on purpose.
Attempt: TypeAlias = Callable[[Any, Any], object]


def _circular() -> dict[str, Any]:
    state: dict[str, Any] = {"list": []}
    state["list"].append(state)
    return state


def _saves(**options: Any) -> Attempt:
    """An attempt to save something new, with these options."""
    return lambda store, scope: scope.save({"new": 1}, **{"id": "new", **options})


def _updates(change: Callable[[Any], Any]) -> Attempt:
    return lambda store, scope: scope.update("a", change)


def _forks(**options: Any) -> Attempt:
    return lambda store, scope: scope.fork("a", **options)


def _goes_on_behind(revision: str) -> Attempt:
    """An attempt to go on with a history behind a cursor that was never given out."""
    return lambda store, scope: list(
        scope.history(after=replace(present(scope.info("a")), revision=revision))
    )


def _info_of(snapshot: Snapshot) -> SnapshotInfo:
    return SnapshotInfo(*(getattr(snapshot, name) for name in SnapshotInfo.__slots__))


_BAD_IDS: Final[tuple[Any, ...]] = ("", "x" * 513, "a\0b", "a\ud800", 7, b"a")
_TAKES_AN_ID: Final[dict[str, Callable[[Any, Any, Any], object]]] = {
    "session": lambda store, scope, bad: store.scope(bad),
    "scope": lambda store, scope, bad: store.scope("s", bad),
    "save": lambda store, scope, bad: scope.save(1, id=bad),
    "parent": lambda store, scope, bad: scope.save(1, parent=bad),
    "load": lambda store, scope, bad: scope.load(bad),
    "load_many": lambda store, scope, bad: list(scope.load_many(["a", bad])),
    "info": lambda store, scope, bad: scope.info(bad),
    "after": lambda store, scope, bad: scope.history(after=bad),
    "update": lambda store, scope, bad: scope.update(bad, lambda s: s),
    "delete_snapshot": lambda store, scope, bad: scope.delete_snapshot(bad),
    "note": lambda store, scope, bad: scope.note(bad),
    "note on": lambda store, scope, bad: scope.note("n", on=bad),
    "notes": lambda store, scope, bad: scope.notes(on=[bad]),
    "set_note": lambda store, scope, bad: scope.set_note(bad, 1),
    "set_note on": lambda store, scope, bad: scope.set_note("n", 1, on=bad),
    "delete_note": lambda store, scope, bad: scope.delete_note(bad),
    "find": lambda store, scope, bad: store.find(bad),
    "scopes": lambda store, scope, bad: store.scopes(bad),
    "delete_session": lambda store, scope, bad: store.delete_session(bad),
    "ancestors": lambda store, scope, bad: scope.ancestors(bad),
    "fork": lambda store, scope, bad: scope.fork(bad),
    "fork to": lambda store, scope, bad: scope.fork("a", to=bad),
    "fork to a scope": lambda store, scope, bad: scope.fork("a", scope_id=bad),
    "diff from": lambda store, scope, bad: scope.diff(bad, "a"),
    "diff to": lambda store, scope, bad: scope.diff("a", bad),
    "stats": lambda store, scope, bad: store.stats(bad),
    "forked_from": lambda store, scope, bad: scope.save(
        1, forked_from=SnapshotRef(ScopeKey("s"), bad)
    ),
}
_BAD_KINDS: Final[tuple[Any, ...]] = (
    *("", "Agent", "MultiAgent", "multiagent", "multiAgent2", "a b", "a/b", "..", "é", "k" * 65),
    *("a\0", 7, None),
)

_INVALID: Final[dict[str, Attempt]] = {
    "own parent": _saves(parent="new"),
    "own parent, overwriting": _saves(id="a", parent="a", overwrite=True),
    "parent of another type": _saves(parent=7),
    "neither kept nor head": _saves(keep=False, head=False),
    "keep as a text": _saves(keep="no"),
    "expect a number": _saves(expect=1),
    "expect False": _saves(expect=False),
    "expect an info": lambda store, scope: scope.save(1, expect=scope.info("a")),
    "expect an info in append": lambda store, scope: scope.append("m", [], expect=scope.info("a")),
    "expect an info in delete": lambda store, scope: scope.delete(expect=scope.info("a")),
    "expect a note": lambda store, scope: scope.set_note("n", 1, expect=scope.note("n")),
    "naive created_at": _saves(created_at=datetime(2000, 1, 1)),
    "created_at as text": _saves(created_at="2000-01-01T00:00:00Z"),
    # Aware and legal as datetimes, but in UTC before the year 1 and after the year 9999.
    "created_at too early": _saves(
        created_at=datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))
    ),
    "created_at too late": _saves(
        created_at=datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=14)))
    ),
    "forked_from as text": _saves(forked_from="a"),
    "forked_from of a bad kind": _saves(
        forked_from=SnapshotRef(ScopeKey("s", "m", "Bad Kind"), "a")
    ),
    "status too long": _saves(status="x" * 257),
    "status with NUL": _saves(status="a\0"),
    "status with a surrogate": _saves(status="\ud800"),
    "status None": _saves(status=None),
    "too many labels": _saves(labels={str(n): "" for n in range(65)}),
    "label too long": _saves(labels={"a": "x" * 257}),
    "label name too long": _saves(labels={"x" * 257: ""}),
    "label name empty": _saves(labels={"": "x"}),
    "label with NUL": _saves(labels={"a": "\0"}),
    "label name with NUL": _saves(labels={"\0": "a"}),
    "label with a surrogate": _saves(labels={"a": "\udfff"}),
    "label as number": _saves(labels={"a": 1}),
    "label as NaN": _saves(labels={"a": float("nan")}),
    "label as None": _saves(labels={"a": None}),
    "label name as number": _saves(labels={1: "a"}),
    "labels as list": _saves(labels=["a"]),
    "labels as text": _saves(labels="a"),
    "metadata too large": _saves(metadata={"m": "x" * 65_536}),
    "metadata too large next to a facade's": _saves(
        metadata={"strands": {"a": 1}, "m": "x" * 65_536}
    ),
    "metadata too deep": _saves(metadata={"m": nested(200)}),
    "metadata as list": _saves(metadata=[1]),
    "metadata as text": _saves(metadata="text"),
    "too deep": lambda store, scope: scope.save(nested(201)),
    "too deep in objects": lambda store, scope: scope.save({"a": nested(200)}),
    "much too deep": lambda store, scope: scope.save(nested(5_000)),
    "circular": lambda store, scope: scope.save(_circular()),
    "circular note": lambda store, scope: scope.set_note("n", _circular()),
    "note too deep": lambda store, scope: scope.set_note("n", nested(201)),
    "append a text": lambda store, scope: scope.append("m", "text"),
    "append an object": lambda store, scope: scope.append("m", {"a": 1}),
    "append to a number": lambda store, scope: scope.append(1, []),
    "append to a surrogate": lambda store, scope: scope.append("\ud800", [1]),
    "update without a function": lambda store, scope: scope.update("a", {"n": 1}),
    "update returns a state": _updates(lambda s: s.state),
    "update returns True": _updates(lambda s: True),
    "update returns an info": _updates(_info_of),
    "update changes the id": _updates(lambda s: replace(s, id="other")),
    "update changes the parent": _updates(lambda s: replace(s, parent_id="p")),
    "update changes the scope": _updates(lambda s: replace(s, scope=ScopeKey("other"))),
    "update changes created_at": _updates(
        lambda s: replace(s, created_at=datetime(2000, 1, 1, tzinfo=UTC))
    ),
    "update changes forked_from": _updates(
        lambda s: replace(s, forked_from=SnapshotRef(ScopeKey("s"), "x"))
    ),
    "update to a bad status": _updates(lambda s: s.with_(status="\0")),
    "update to bad labels": _updates(lambda s: s.with_(labels={"a": 1})),
    "update to bad metadata": _updates(lambda s: s.with_(metadata={"m": "x" * 65_536})),
    "negative limit": lambda store, scope: scope.history(limit=-1),
    "limit as text": lambda store, scope: scope.history(limit="1"),
    "limit as a truth": lambda store, scope: scope.ids(limit=True),
    "status filter with NUL": lambda store, scope: scope.history(status="\0"),
    "cursor of another scope": lambda store, scope: scope.history(
        after=store.scope("other").info()
    ),
    "made-up cursor": _goes_on_behind("nonsense"),
    "cursor beyond every store": _goes_on_behind("f" * 25 + ".0." + "0" * 16),
    "prefix with NUL": lambda store, scope: store.sessions(prefix="\0"),
    "ids as one text": lambda store, scope: scope.load_many("ab"),
    "ids as a number": lambda store, scope: scope.load_many(5),
    "notes on a number": lambda store, scope: scope.notes(on=5),
    "fork with a patch as a list": _forks(patch=[("n", 1)]),
    "fork with a patch as text": _forks(patch="n"),
    "fork with a patch as a number": _forks(patch=0),
    "fork with NaN": _forks(patch={"n": float("nan")}),
    "fork with a number as key": _forks(patch={1: "a"}),
    "fork with bytes": _forks(patch={"n": b"x"}),
    "fork with bytes to another session": _forks(patch={"n": b"x"}, to="new"),
    "fork to what is not JSON": _forks(patch=lambda state: {"n": {1, 2}}),
    "fork with labels as list": _forks(labels=["a"]),
    "fork with a label as number": _forks(labels={"a": 1}),
    "fork with too many labels": _forks(labels={str(n): "" for n in range(65)}),
    "fork with metadata as list": _forks(metadata=[1]),
    "fork with NaN in metadata": _forks(metadata={"m": float("nan")}),
    "fork with metadata too large": _forks(metadata={"m": "x" * 65_536}),
}
_BAD_CALLS: Final[dict[str, tuple[type[LimpetError], Attempt]]] = {
    **{name: (InvalidInput, attempt) for name, attempt in _INVALID.items()},
    "another body": (AlreadyExists, _saves(id="a")),
    "stale expect": (Conflict, _saves(expect="0.0.0000000000000000")),
    "expect an id": (InvalidInput, _saves(expect="a")),
    "expect no head": (Conflict, _saves(expect=None)),
    "append with a stale expect": (
        Conflict,
        lambda store, scope: scope.append("m", [1], expect="0.0.0000000000000000"),
    ),
    "append with an id as expect": (
        InvalidInput,
        lambda store, scope: scope.append("m", [1], expect="a"),
    ),
    "delete with an id as expect": (InvalidInput, lambda store, scope: scope.delete(expect="a")),
    "note with an id as expect": (
        InvalidInput,
        lambda store, scope: scope.set_note("n", 1, expect="a"),
    ),
    "delete with a stale expect": (
        Conflict,
        lambda store, scope: scope.delete(expect="0.0.0000000000000000"),
    ),
    "note with a stale expect": (
        Conflict,
        lambda store, scope: scope.set_note("n", 1, expect="0.0000000000000000"),
    ),
    "update of nothing": (NotFound, lambda store, scope: scope.update("no", lambda s: s)),
    "unknown cursor": (NotFound, lambda store, scope: list(scope.history(after="no"))),
}


class BadInput(Kit):
    """Every refusal is an error of the tree, and afterwards all is as it was before."""

    @pytest.fixture
    def furnished(self, store: Store, scope: Scope) -> Scope:
        """A scope with a bit of everything in it, and another scope."""
        scope.save({"n": 1}, id="a", labels={"l": "1"}, metadata={"m": 1})
        scope.save({"n": 2}, keep=False)
        scope.set_note("n", {"v": 1})
        scope.set_note("n", {"v": 2}, on="a")
        store.scope("other").save(1, id="a")
        return scope

    def _refused(
        self, error: type[LimpetError], store: Store, attempts: Iterable[Callable[[], object]]
    ) -> list[str]:
        with unchanged(store, on=["new"]):
            return refused(error, attempts)

    def test_bad_calls_are_refused(self, store: Store, furnished: Scope) -> None:
        with unchanged(store, on=["new"]):
            for name, (error, attempt) in _BAD_CALLS.items():
                with case(name):
                    refused(error, [partial(attempt, store, furnished)])

    def test_what_is_not_json_is_refused(self, store: Store, furnished: Scope) -> None:
        """In a state, metadata, items, a note or an update; with the path of the bad value."""
        with unchanged(store, on=["new"]):
            for name, (value, path) in NOT_JSON.items():
                with case(name):
                    self._not_json_refused(furnished, value, path)

    def _not_json_refused(self, scope: Scope, value: Any, path: str) -> None:
        attempts: dict[str, Callable[[], object]] = {
            path: lambda: scope.save(value, id="new"),
            f"/note{path}": lambda: scope.set_note("n", {"note": value}),
            f"/m{path}": lambda: scope.save(1, id="new", metadata={"m": value}),
            f"/list/0{path}": lambda: scope.append("list", [value]),
            f"/s{path}": lambda: scope.update("a", lambda s: s.with_(state={"s": value})),
            f"/x{path}": lambda: scope.update("a", lambda s: s.with_(metadata={"x": value})),
            f"/f{path}": lambda: scope.set_note("n", lambda v: {"f": value}),
        }

        messages = refused(InvalidInput, attempts.values())
        for where, message in zip(attempts, messages, strict=True):
            assert f"path=`{where}" in message
            assert f"path=`{where}`" in message or where.endswith("/")

    def test_a_bad_id_is_refused(self, store: Store, furnished: Scope) -> None:
        """Ids and names have 1 to 512 characters, no NUL and no lone surrogates, in every verb."""
        with unchanged(store, on=["new"]):
            for verb, call in _TAKES_AN_ID.items():
                with case(verb):
                    refused(
                        InvalidInput, [partial(call, store, furnished, bad) for bad in _BAD_IDS]
                    )

    def test_a_bad_kind_is_refused(self, store: Store, furnished: Scope) -> None:
        """Kinds are `[a-z0-9_-]{1,64}`, or exactly `multiAgent`."""
        self._refused(
            InvalidInput, store, [partial(store.scope, "s", "main", kind) for kind in _BAD_KINDS]
        )

    def test_good_kinds_are_taken(self, store: Store) -> None:
        for kind in ("agent", "multiAgent", "graph", "run", "thread", "conversation", "0_-z" * 16):
            assert store.scope("s", kind=kind).save(1).scope.kind == kind

    def test_a_state_has_a_largest_size(self, stores: Stores) -> None:
        store = stores(state_bytes_max=100)
        scope = store.scope("s")
        scope.save("x" * 98, id="a")
        scope.save({"x": ""}, id="b")
        self._refused(
            InvalidInput,
            store,
            [
                lambda: scope.save("x" * 99),
                lambda: scope.save("x" * 99, keep=False),
                lambda: scope.save("é" * 50),
                lambda: scope.save("x" * 99, id="a", overwrite=True),
                lambda: scope.update("a", lambda s: s.with_(state=s.state + "x")),
                lambda: store.scope("t").append("m", ["x" * 99]),
                lambda: scope.set_note("n", "x" * 99),
                lambda: scope.save(1, metadata={"strands": "x" * 65_536}),
                lambda: scope.fork("a", patch=lambda state: "x" * 99),
                lambda: scope.fork("b", patch={"x": "x" * 99}),
                lambda: scope.fork("a", metadata={"strands": "x" * 65_536}),
            ],
        )

    def test_an_async_function_needs_the_async_api(
        self, api: Api, store: Store, furnished: Scope
    ) -> None:
        async def change(snapshot: Snapshot) -> Snapshot:
            return snapshot.with_(state="changed")

        async def count(value: Any) -> Any:
            return {"v": value["v"] + 1}

        update: Callable[[], object] = lambda: furnished.update("a", change)  # type: ignore  # noqa: E731
        note: Callable[[], object] = lambda: furnished.set_note("n", count)  # noqa: E731
        if api == "sync":
            messages = self._refused(InvalidInput, store, [update, note])
            assert all("store.aio" in message for message in messages)
        else:
            update()
            note()
            assert present(furnished.load("a")).state == "changed"
            assert present(furnished.note("n")).value == {"v": 2}

    def test_a_message_holds_no_state(self, store: Store, furnished: Scope) -> None:
        """An error may be logged anywhere, so it shows no value of the caller's state."""
        secret = "sk-0123456789"  # noqa: S105
        bad = {"key": secret, "x": [float("nan")]}
        furnished.save(secret, id="text")
        messages = self._refused(
            InvalidInput,
            store,
            [
                lambda: furnished.save(bad),
                lambda: furnished.set_note("n", bad),
                lambda: furnished.append("m", [bad]),
                lambda: furnished.save({"b": secret.encode()}),
                lambda: furnished.update("a", lambda s: secret),  # type: ignore[arg-type,return-value]
                lambda: furnished.fork("a", patch=bad),
                lambda: furnished.fork("a", patch=secret),  # type: ignore[arg-type]
                lambda: furnished.fork("a", patch=lambda state: {secret.encode()}),
                lambda: furnished.fork("text", patch={"a": 1}),
            ],
        )
        messages += self._refused(
            AlreadyExists,
            store,
            [
                lambda: furnished.save({"key": secret}, id="a"),
                lambda: furnished.fork("text", scope_id=furnished.scope_id),
            ],
        )
        messages += self._refused(NotFound, store, [lambda: furnished.diff("text", "no")])

        assert "id=`no`" in messages[-1]
        assert not any(secret in message for message in messages)
        assert all(message[:1].islower() for message in messages)
