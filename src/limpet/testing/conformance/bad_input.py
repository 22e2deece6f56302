"""Chapter: bad input. One error of the tree each, and no trace of the attempt."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from reprlib import repr as short_repr
from typing import Any, Final

import pytest

from limpet import (
    AlreadyExists,
    InvalidInput,
    LimpetError,
    NotFound,
    Scope,
    ScopeKey,
    SnapshotRef,
    Store,
)
from limpet.testing.conformance._values import NOT_JSON
from limpet.testing.conformance.comfort import ONLY_IN_ITS_SCOPE
from limpet.testing.kit import Kit, Stores, case, nested, present, refused, unchanged
from limpet.testing.model import info_of

# Under their names facades keep what others wrote, unchanged.
FACADES = ("agentos", "claude", "crewai", "genkit", "langgraph", "pydantic_ai", "runs", "strands")


def _circular() -> dict[str, Any]:
    state: dict[str, Any] = {"list": []}
    state["list"].append(state)
    return state


def _of_a_scope(call: Callable[[Any, Any], object]) -> Callable[[Any, Any, Any], object]:
    return lambda store, scope, bad: call(scope, bad)


_BAD_IDS: Final[tuple[Any, ...]] = ("", "x" * 513, "a\0b", "a\ud800", 7, b"a")
_TAKES_AN_ID: Final[dict[str, Callable[[Any, Any, Any], object]]] = {
    **{
        verb: _of_a_scope(call)
        for verb, call in ONLY_IN_ITS_SCOPE.items()
        if verb not in ("ids", "noted_ids")  # which take any text
    },
    "session": lambda store, scope, bad: store.scope(bad),
    "scope": lambda store, scope, bad: store.scope("s", bad),
    "save": lambda store, scope, bad: scope.save(1, id=bad),
    "note of a name": lambda store, scope, bad: scope.note(bad),
    "set_note of a name": lambda store, scope, bad: scope.set_note(bad, 1),
    "delete_note of a name": lambda store, scope, bad: scope.delete_note(bad),
    "find": lambda store, scope, bad: store.find(bad),
    "scopes": lambda store, scope, bad: store.scopes(bad),
    "delete_session": lambda store, scope, bad: store.delete_session(bad),
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

_NAN: Final = float("nan")
_DAY: Final = timedelta(days=1)
_BAD_LABELS: Final[tuple[Any, ...]] = (
    *({str(n): "" for n in range(65)}, {"a": "x" * 257}, {"x" * 257: ""}, {"": "x"}, {"a": "\0"}),
    *({"\0": "a"}, {"a": "\udfff"}, {"a": 1}, {"a": _NAN}, {"a": None}, {1: "a"}, ["a"], "a"),
)
_BAD_METADATA: Final[tuple[Any, ...]] = (
    *({"m": "x" * 65_536}, {"strands": {"a": 1}, "m": "x" * 65_536}, {"m": nested(200)}),
    *({"m": _NAN}, [1], "text"),
)
_BAD_TEXTS: Final[tuple[Any, ...]] = (7, "a\0", "\ud800", "x" * 257, None)
_BAD_LIMITS: Final[tuple[Any, ...]] = (-1, "1", True, 1.0)

# What each verb is called with, next to arguments that are right. Every one of them is refused.
_BAD_OPTIONS: Final[dict[str, tuple[Callable[[Any, Any, Any], object], list[dict[str, Any]]]]] = {
    "save": (
        lambda store, scope, bad: scope.save({"new": 1}, **{"id": "new", **bad}),
        [
            {"parent": "new"},
            {"parent": "a", "id": "a", "overwrite": True},
            {"parent": 7},
            {"keep": False, "head": False},
            {"keep": "no"},
            *({"expect": each} for each in (1, False, "a")),
            *({"status": each} for each in _BAD_TEXTS),
            *({"labels": each} for each in _BAD_LABELS),
            *({"metadata": each} for each in _BAD_METADATA),
            {"created_at": datetime(2000, 1, 1)},
            {"created_at": "2000-01-01T00:00:00Z"},
            # Aware and legal as datetimes, but in UTC before the year 1 and after the year 9999.
            {"created_at": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))},
            {"created_at": datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-14)))},
            {"forked_from": "a"},
            {"forked_from": SnapshotRef(ScopeKey("s", "m", "Bad Kind"), "a")},
        ],
    ),
    "fork": (
        lambda store, scope, bad: scope.fork("a", **bad),
        [
            *({"patch": each} for each in ([("n", 1)], "n", 0, {"n": _NAN}, {1: "a"}, {"n": b"x"})),
            {"patch": {"n": b"x"}, "to": "new"},
            {"patch": lambda state: {"n": {1, 2}}},
            *({"labels": each} for each in _BAD_LABELS),
            *({"metadata": each} for each in _BAD_METADATA),
        ],
    ),
    "restore": (
        lambda store, scope, bad: scope.restore("a", **bad),
        [{"labels": {"a": 1}}, {"metadata": [1]}, {"expect": "a"}],
    ),
    "state": (
        lambda store, scope, bad: (scope.save(**bad), scope.set_note("n", bad["state"])),
        [{"state": each} for each in (nested(201), nested(5_000), {"a": nested(200)}, _circular())],
    ),
    "note": (
        lambda store, scope, bad: scope.set_note("n", **bad),
        [
            {"value_or_fn": _circular()},
            {"value_or_fn": nested(201)},
            {"value_or_fn": 1, "expect": "a"},
        ],
    ),
    "append": (
        lambda store, scope, bad: scope.append(**{"key": "m", "items": [1], **bad}),
        [
            *({"items": each} for each in ("text", {"a": 1}, [nested(199)])),
            *({"key": each} for each in (1, "\ud800")),
            {"expect": "a"},
        ],
    ),
    "delete": (lambda store, scope, bad: scope.delete(**bad), [{"expect": "a"}]),
    "update": (
        lambda store, scope, bad: scope.update("a", **bad),
        [
            {"fn": {"n": 1}},
            {"fn": lambda s: s.state},
            {"fn": lambda s: True},
            {"fn": info_of},
            {"fn": lambda s: replace(s, id="other")},
            {"fn": lambda s: replace(s, parent_id="p")},
            {"fn": lambda s: replace(s, scope=ScopeKey("other"))},
            {"fn": lambda s: replace(s, created_at=datetime(2000, 1, 1, tzinfo=UTC))},
            {"fn": lambda s: replace(s, forked_from=SnapshotRef(ScopeKey("s"), "x"))},
            {"fn": lambda s: s.with_(status="\0")},
            {"fn": lambda s: s.with_(labels={"a": 1})},
            {"fn": lambda s: s.with_(metadata={"m": "x" * 65_536})},
        ],
    ),
    "prune": (
        lambda store, scope, bad: scope.prune(**bad),
        [
            {},
            {"dry_run": True},
            *({"keep_last": each} for each in _BAD_LIMITS),
            *({"older_than": each} for each in (-_DAY, 7, datetime.now(UTC))),
            {"keep_last": -1, "older_than": _DAY},
            {"keep_last": 1, "older_than": -_DAY},
            {"keep_last": 0, "dry_run": 1},
        ],
    ),
    "redact": (
        lambda store, scope, bad: scope.redact(**bad),
        [
            {"what": "a"},
            {"what": 3},
            {"what": lambda *_: "yes"},
            {"what": "/a", "replacement": _NAN},
        ],
    ),
    "claim": (
        lambda store, scope, bad: scope.claim(**{"owner": "a", **bad}),
        [
            *({"owner": each} for each in ("", 7)),
            *({"ttl_s": each} for each in (0, -1, _NAN, True, "1")),
            *({"wait_s": each} for each in (-1, float("inf"), None)),
        ],
    ),
    "watch": (
        lambda store, scope, bad: scope.watch(**bad),
        [*({"id": each} for each in ("", 7)), *({"timeout_s": each} for each in (-1, _NAN, "1"))],
    ),
    "store.watch": (
        lambda store, scope, bad: store.watch(**bad),
        [
            {"session_id": ""},
            {"snapshot_id": "a\0"},
            {"session_id": "s", "snapshot_id": "a"},
            {"prefix": 7},
        ],
    ),
    "history": (
        lambda store, scope, bad: scope.history(**bad),
        [
            *({"limit": each} for each in _BAD_LIMITS),
            *({"status": each} for each in _BAD_TEXTS[:3]),
            *({"labels": each} for each in ({"a": 1}, {"": "a"}, ["a"])),
        ],
    ),
    "store.history": (
        lambda store, scope, bad: store.history(**bad),
        [
            *({"after": each} for each in ("a", 7, ("s", "main", "agent"))),
            *({"limit": each} for each in _BAD_LIMITS),
            *({"status": each} for each in _BAD_TEXTS[:3]),
            *({"labels": each} for each in ({"a": 1}, {"": "a"}, ["a"])),
            *({"prefix": each} for each in (None, "a\0", "\ud800")),
        ],
    ),
    "ids": (lambda store, scope, bad: scope.ids(**bad), [{"limit": each} for each in _BAD_LIMITS]),
    "load_many": (lambda store, scope, bad: scope.load_many(**bad), [{"ids": "ab"}, {"ids": 5}]),
    "notes": (lambda store, scope, bad: scope.notes(**bad), [{"on": 5}]),
    "sessions": (
        lambda store, scope, bad: store.sessions(**bad),
        [{"limit": -1}, *({"prefix": each} for each in (5, "\0"))],
    ),
    "scopes": (
        lambda store, scope, bad: store.scopes(**bad),
        [{"session_id": ""}, {"kind": "Bad Kind"}],
    ),
    "kind": (
        lambda store, scope, bad: store.scope("s", **bad),
        [{"kind": each} for each in _BAD_KINDS],
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
        with unchanged(store, on=["new"]):
            return refused(error, attempts)

    def test_bad_options_are_refused(self, store: Store, furnished: Scope) -> None:
        """At the call: a listing need not be iterated for it."""
        with unchanged(store, on=["new"]):
            for verb, (call, options) in _BAD_OPTIONS.items():
                for bad in options:
                    with case(f"{verb} {short_repr(bad)}"):
                        refused(InvalidInput, [partial(call, store, furnished, bad)])

    def test_what_is_no_revision_and_no_cursor_is_refused(
        self, store: Store, furnished: Scope
    ) -> None:
        info, note = present(furnished.info("a")), present(furnished.note("n"))
        other: Any = present(store.scope("other").info())
        made_up = [
            replace(info, revision=each) for each in ("nonsense", f"{'f' * 25}.0.{'0' * 16}")
        ]
        wrong: Any = info
        attempts: list[Callable[[], object]] = [
            lambda: furnished.save(1, expect=wrong),
            lambda: furnished.append("m", [], expect=wrong),
            lambda: furnished.delete(expect=wrong),
            lambda: furnished.set_note("n", 1, expect=note),  # type: ignore[arg-type]
            lambda: furnished.history(after=other),
            *(lambda each=each: list(furnished.history(after=each)) for each in made_up),
        ]
        self._refused(InvalidInput, store, attempts)

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

    def test_the_limits_themselves_are_fine(self, store: Store, scope: Scope) -> None:
        """What a facade keeps under its own key may exceed that of metadata."""
        labels = {f"{n:03}".ljust(256, "k"): "v" * 256 for n in range(64)}
        large = {"text": "é\0" * 100_000}
        by_facades = [{key: "x" * 100_000, "n": 1} for key in FACADES]
        most: list[dict[str, Any]] = [{"m": "x" * (64 * 1024 - len('{"m":""}'))}, *by_facades]
        most.append({"\0": "\0"})
        for metadata in most:
            scope.save(nested(200), labels=labels, metadata=metadata, status="ü" * 256)
            found = present(scope.load())
            assert (found.state, found.status) == (nested(200), "ü" * 256)
            assert (found.labels, found.metadata) == (labels, metadata)
        scope.set_note("manifest", large)
        assert present(scope.note("manifest")).value == large
        assert store.scope("deep").append("list", [nested(198)]).kept
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
