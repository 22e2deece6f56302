"""Chapter: bad input. One error of the tree each, and no trace of the attempt."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final, TypeAlias

import pytest

from limpet.api.scope import Scope
from limpet.api.store import Store
from limpet.errors import AlreadyExists, Conflict, InvalidInput, LimpetError, NotFound
from limpet.model import ScopeKey, Snapshot, SnapshotInfo, SnapshotRef
from limpet.testing.conformance._apis import Api
from limpet.testing.conformance._kit import Kit, Stores, dump, nested, present
from limpet.testing.conformance._values import NOT_JSON

Attempt: TypeAlias = Callable[[Store, Scope], object]


def _circular() -> dict[str, Any]:
    state: dict[str, Any] = {"list": []}
    state["list"].append(state)
    return state


def _saves(**options: Any) -> Attempt:
    """An attempt to save something new, with these options."""
    return lambda store, scope: scope.save({"new": 1}, **{"id": "new", **options})


def _updates(change: Callable[[Snapshot], Any]) -> Attempt:
    return lambda store, scope: scope.update("a", change)


def _goes_on_behind(revision: str) -> Attempt:
    """An attempt to go on with a history behind a cursor that was never given out."""
    return lambda store, scope: list(
        scope.history(after=replace(present(scope.info("a")), revision=revision))
    )


def _info_of(snapshot: Snapshot) -> SnapshotInfo:
    return SnapshotInfo(*(getattr(snapshot, name) for name in SnapshotInfo.__slots__))


_TOO_LONG: Final = "x" * 513
_BAD_IDS: Final[dict[str, Any]] = {
    "empty": "",
    "too long": _TOO_LONG,
    "NUL": "a\0b",
    "surrogate": "a\ud800",
    "number": 7,
    "bytes": b"a",
}
_TAKES_AN_ID: Final[dict[str, Callable[[Store, Scope, Any], object]]] = {
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
    "forked_from": lambda store, scope, bad: scope.save(
        1, forked_from=SnapshotRef(ScopeKey("s"), bad)
    ),
}
_BAD_KINDS: Final[tuple[Any, ...]] = (
    *(
        "",
        "Agent",
        "MultiAgent",
        "multiagent",
        "multiAgent2",
        "a b",
        "a/b",
        "..",
        "é",
        "k" * 65,
        "a\0",
        7,
        None,
    ),
)

_BAD_CALLS: Final[dict[str, tuple[type[LimpetError], Attempt]]] = {
    "own parent": (InvalidInput, _saves(parent="new")),
    "own parent, overwriting": (InvalidInput, _saves(id="a", parent="a", overwrite=True)),
    "parent of another type": (InvalidInput, _saves(parent=7)),
    "neither kept nor head": (InvalidInput, _saves(keep=False, head=False)),
    "keep as a text": (InvalidInput, _saves(keep="no")),
    "another body": (AlreadyExists, _saves(id="a")),
    "stale expect": (Conflict, _saves(expect="0.0.0000000000000000")),
    "expect an id": (InvalidInput, _saves(expect="a")),
    "expect no head": (Conflict, _saves(expect=None)),
    "expect a number": (InvalidInput, _saves(expect=1)),
    "expect False": (InvalidInput, _saves(expect=False)),
    "expect an info": (
        InvalidInput,
        lambda store, scope: scope.save(1, expect=scope.info("a")),  # type: ignore[arg-type]
    ),
    "expect an info in append": (
        InvalidInput,
        lambda store, scope: scope.append("m", [], expect=scope.info("a")),  # type: ignore[arg-type]
    ),
    "expect an info in delete": (
        InvalidInput,
        lambda store, scope: scope.delete(expect=scope.info("a")),  # type: ignore[arg-type]
    ),
    "expect a note": (
        InvalidInput,
        lambda store, scope: scope.set_note("n", 1, expect=scope.note("n")),  # type: ignore[arg-type]
    ),
    "naive created_at": (InvalidInput, _saves(created_at=datetime(2000, 1, 1))),
    "created_at as text": (InvalidInput, _saves(created_at="2000-01-01T00:00:00Z")),
    # Aware and legal as datetimes, but in UTC before the year 1 and after the year 9999.
    "created_at too early": (
        InvalidInput,
        _saves(created_at=datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))),
    ),
    "created_at too late": (
        InvalidInput,
        _saves(created_at=datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=14)))),
    ),
    "forked_from as text": (InvalidInput, _saves(forked_from="a")),
    "forked_from of a bad kind": (
        InvalidInput,
        _saves(forked_from=SnapshotRef(ScopeKey("s", "m", "Bad Kind"), "a")),
    ),
    "status too long": (InvalidInput, _saves(status="x" * 257)),
    "status with NUL": (InvalidInput, _saves(status="a\0")),
    "status with a surrogate": (InvalidInput, _saves(status="\ud800")),
    "status None": (InvalidInput, _saves(status=None)),
    "too many labels": (InvalidInput, _saves(labels={str(n): "" for n in range(65)})),
    "label too long": (InvalidInput, _saves(labels={"a": "x" * 257})),
    "label name too long": (InvalidInput, _saves(labels={"x" * 257: ""})),
    "label name empty": (InvalidInput, _saves(labels={"": "x"})),
    "label with NUL": (InvalidInput, _saves(labels={"a": "\0"})),
    "label name with NUL": (InvalidInput, _saves(labels={"\0": "a"})),
    "label with a surrogate": (InvalidInput, _saves(labels={"a": "\udfff"})),
    "label as number": (InvalidInput, _saves(labels={"a": 1})),
    "label as NaN": (InvalidInput, _saves(labels={"a": float("nan")})),
    "label as None": (InvalidInput, _saves(labels={"a": None})),
    "label name as number": (InvalidInput, _saves(labels={1: "a"})),
    "labels as list": (InvalidInput, _saves(labels=["a"])),
    "labels as text": (InvalidInput, _saves(labels="a")),
    "metadata too large": (InvalidInput, _saves(metadata={"m": "x" * 65_536})),
    "metadata too large next to a facade's": (
        InvalidInput,
        _saves(metadata={"strands": {"a": 1}, "m": "x" * 65_536}),
    ),
    "metadata too deep": (InvalidInput, _saves(metadata={"m": nested(200)})),
    "metadata as list": (InvalidInput, _saves(metadata=[1])),
    "metadata as text": (InvalidInput, _saves(metadata="text")),
    "too deep": (InvalidInput, lambda store, scope: scope.save(nested(201))),
    "too deep in objects": (InvalidInput, lambda store, scope: scope.save({"a": nested(200)})),
    "much too deep": (InvalidInput, lambda store, scope: scope.save(nested(5_000))),
    "circular": (InvalidInput, lambda store, scope: scope.save(_circular())),
    "circular note": (InvalidInput, lambda store, scope: scope.set_note("n", _circular())),
    "note too deep": (InvalidInput, lambda store, scope: scope.set_note("n", nested(201))),
    "append a text": (
        InvalidInput,
        lambda store, scope: scope.append("m", "text"),  # type: ignore[arg-type]
    ),
    "append an object": (
        InvalidInput,
        lambda store, scope: scope.append("m", {"a": 1}),  # type: ignore[arg-type]
    ),
    "append to a number": (
        InvalidInput,
        lambda store, scope: scope.append(1, []),  # type: ignore[arg-type]
    ),
    "append to a surrogate": (InvalidInput, lambda store, scope: scope.append("\ud800", [1])),
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
    "update without a function": (
        InvalidInput,
        lambda store, scope: scope.update("a", {"n": 1}),  # type: ignore[arg-type]
    ),
    "update returns a state": (InvalidInput, _updates(lambda s: s.state)),
    "update returns True": (InvalidInput, _updates(lambda s: True)),
    "update returns an info": (InvalidInput, _updates(_info_of)),
    "update changes the id": (InvalidInput, _updates(lambda s: replace(s, id="other"))),
    "update changes the parent": (InvalidInput, _updates(lambda s: replace(s, parent_id="p"))),
    "update changes the scope": (
        InvalidInput,
        _updates(lambda s: replace(s, scope=ScopeKey("other"))),
    ),
    "update changes created_at": (
        InvalidInput,
        _updates(lambda s: replace(s, created_at=datetime(2000, 1, 1, tzinfo=UTC))),
    ),
    "update changes forked_from": (
        InvalidInput,
        _updates(lambda s: replace(s, forked_from=SnapshotRef(ScopeKey("s"), "x"))),
    ),
    "update to a bad status": (InvalidInput, _updates(lambda s: s.with_(status="\0"))),
    "update to bad labels": (
        InvalidInput,
        _updates(lambda s: s.with_(labels={"a": 1})),  # type: ignore[dict-item]
    ),
    "update to bad metadata": (
        InvalidInput,
        _updates(lambda s: s.with_(metadata={"m": "x" * 65_536})),
    ),
    "negative limit": (InvalidInput, lambda store, scope: scope.history(limit=-1)),
    "limit as text": (
        InvalidInput,
        lambda store, scope: scope.history(limit="1"),  # type: ignore[arg-type]
    ),
    "limit as a truth": (InvalidInput, lambda store, scope: scope.ids(limit=True)),
    "status filter with NUL": (
        InvalidInput,
        lambda store, scope: scope.history(status="\0"),
    ),
    "cursor of another scope": (
        InvalidInput,
        lambda store, scope: scope.history(after=store.scope("other").info()),
    ),
    "unknown cursor": (NotFound, lambda store, scope: list(scope.history(after="no"))),
    "made-up cursor": (InvalidInput, _goes_on_behind("nonsense")),
    "cursor beyond every store": (InvalidInput, _goes_on_behind("f" * 25 + ".0." + "0" * 16)),
    "prefix with NUL": (InvalidInput, lambda store, scope: store.sessions(prefix="\0")),
    "ids as one text": (InvalidInput, lambda store, scope: scope.load_many("ab")),
    "ids as a number": (
        InvalidInput,
        lambda store, scope: scope.load_many(5),  # type: ignore[arg-type]
    ),
    "notes on a number": (
        InvalidInput,
        lambda store, scope: scope.notes(on=5),  # type: ignore[arg-type]
    ),
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
        before = dump(store, on=["new"])
        messages = []
        for attempt in attempts:
            with pytest.raises(LimpetError) as caught:
                attempt()
            assert type(caught.value) is error
            messages.append(str(caught.value))
        assert dump(store, on=["new"]) == before
        return messages

    @pytest.mark.parametrize("name", _BAD_CALLS)
    def test_a_bad_call_is_refused(self, store: Store, furnished: Scope, name: str) -> None:
        """A wrong call raises the error class that says how to react."""
        error, attempt = _BAD_CALLS[name]

        self._refused(error, store, [lambda: attempt(store, furnished)])

    @pytest.mark.parametrize("name", NOT_JSON)
    def test_what_is_not_json_is_refused(self, store: Store, furnished: Scope, name: str) -> None:
        """In a state, metadata, items, a note or an update; with the path of the bad value."""
        value, path = NOT_JSON[name]
        scope = furnished
        attempts: dict[str, Callable[[], object]] = {
            path: lambda: scope.save(value, id="new"),
            f"/note{path}": lambda: scope.set_note("n", {"note": value}),
            f"/m{path}": lambda: scope.save(1, id="new", metadata={"m": value}),
            f"/list/0{path}": lambda: scope.append("list", [value]),
            f"/s{path}": lambda: scope.update("a", lambda s: s.with_(state={"s": value})),
            f"/x{path}": lambda: scope.update("a", lambda s: s.with_(metadata={"x": value})),
            f"/f{path}": lambda: scope.set_note("n", lambda v: {"f": value}),
        }

        messages = self._refused(InvalidInput, store, attempts.values())
        for where, message in zip(attempts, messages, strict=True):
            assert f"path=`{where}" in message
            assert f"path=`{where}`" in message or where.endswith("/")

    @pytest.mark.parametrize("name", _BAD_IDS)
    def test_a_bad_id_is_refused(self, store: Store, furnished: Scope, name: str) -> None:
        """Ids and names have 1 to 512 characters, no NUL and no lone surrogates, in every verb."""
        bad = _BAD_IDS[name]
        self._refused(
            InvalidInput,
            store,
            [
                lambda call=call: call(store, furnished, bad)  # type: ignore[misc]
                for call in _TAKES_AN_ID.values()
            ],
        )

    @pytest.mark.parametrize("kind", _BAD_KINDS, ids=lambda kind: ascii(kind)[:12])
    def test_a_bad_kind_is_refused(self, store: Store, furnished: Scope, kind: Any) -> None:
        """Kinds are `[a-z0-9_-]{1,64}`, or exactly `multiAgent`."""
        self._refused(InvalidInput, store, [lambda: store.scope("s", "main", kind)])

    def test_good_kinds_are_taken(self, store: Store) -> None:
        """The kinds in use, and any other of that spelling."""
        for kind in ("agent", "multiAgent", "graph", "run", "thread", "conversation", "0_-z" * 16):
            assert store.scope("s", kind=kind).save(1).scope.kind == kind

    def test_a_state_has_a_largest_size(self, stores: Stores) -> None:
        """`state_bytes_max` bounds the encoded state in every verb; up to it all is fine."""
        store = stores(state_bytes_max=100)
        scope = store.scope("s")
        scope.save("x" * 98, id="a")
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
            ],
        )

    def test_an_async_function_needs_the_async_api(
        self, api: Api, store: Store, furnished: Scope
    ) -> None:
        """The sync API refuses an async function; the async API awaits it."""

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
        messages = self._refused(
            InvalidInput,
            store,
            [
                lambda: furnished.save(bad),
                lambda: furnished.set_note("n", bad),
                lambda: furnished.append("m", [bad]),
                lambda: furnished.save({"b": secret.encode()}),
                lambda: furnished.update("a", lambda s: secret),  # type: ignore[arg-type,return-value]
            ],
        )
        messages += self._refused(
            AlreadyExists, store, [lambda: furnished.save({"key": secret}, id="a")]
        )

        assert not any(secret in message for message in messages)
        assert all(message[:1].islower() for message in messages)
