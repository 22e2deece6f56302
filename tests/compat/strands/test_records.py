"""The records, and how they stand on the wire."""

from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta, timezone
from itertools import product
from typing import Any

import pytest

from limpet import InvalidInput
from limpet.compat.strands import (
    Snapshot,
    SnapshotLocation,
    SnapshotManifest,
    SnapshotPage,
)
from tests.compat.strands.kit import Grounds, make_location, make_snapshot, store_of
from tests.present import present

LOCATION = {"sessionId": "s", "scope": "multiAgent", "scopeId": "a"}
SNAPSHOT = {
    "scope": "agent",
    "schemaVersion": "1.0",
    "createdAt": "2026-01-01T00:00:00.000Z",
    "data": {"messages": []},
    "appData": {"k": 1},
}
MANIFEST = {"schemaVersion": "1.0", "updatedAt": "2026-01-01T00:00:00.000Z"}
PAGE = {"snapshotIds": ["a", "b"], "nextToken": "b"}
WIRES: list[tuple[Any, dict[str, Any]]] = [
    (SnapshotLocation, LOCATION),
    (Snapshot, SNAPSHOT),
    (SnapshotManifest, MANIFEST),
    (SnapshotPage, PAGE),
]


def test_a_wire_dict_comes_back_in_the_order_of_the_sdk() -> None:
    """Unknown fields are kept, whatever they are called, also as our own fields are."""
    more = {"stash": {"é": [1]}, "session_id": None, "extra": {}}
    for record, wire in WIRES:
        found = record.from_json(wire)
        assert found.to_json() == wire
        assert list(found.to_json()) == list(wire)
        assert record.of(wire) == record.of(found) == found
        other = record.from_json({**wire, **more})
        assert other.extra == more
        assert other.to_json() == {**wire, **more}
        assert other != found
        with pytest.raises(FrozenInstanceError):
            found.extra = {}


def test_what_is_no_record_is_refused() -> None:
    """And the message says which fields there are; it never shows a state."""
    for record, _ in WIRES:
        for bad in (None, 5, "text", [], [("scope", "agent")]):
            with pytest.raises(InvalidInput, match=record.__name__):
                record.of(bad)
        with pytest.raises(InvalidInput, match=record.__name__):
            record.from_json({})
    for name in ("scope", "schemaVersion", "createdAt", "data"):
        wire = {key: value for key, value in SNAPSHOT.items() if key != name}
        with pytest.raises(InvalidInput, match=name) as caught:
            Snapshot.from_json(wire)
        assert "messages" not in str(caught.value)


def test_a_time_may_be_given_as_such() -> None:
    moment = datetime(2026, 1, 1, 2, 0, 0, 1_999, timezone(timedelta(hours=2)))
    wire = "2026-01-01T00:00:00.001Z"
    assert Snapshot("agent", "1.0", moment, {}).created_at == wire  # type: ignore[arg-type]
    assert SnapshotManifest("1.0", moment).updated_at == wire  # type: ignore[arg-type]
    naive = datetime(2026, 1, 1)
    for record in (Snapshot, SnapshotManifest):
        with pytest.raises(InvalidInput, match="time zone"):
            record(*(["1.0", "1.0", naive, {}] if record is Snapshot else ["1.0", naive]))  # type: ignore[arg-type]


async def test_a_time_that_says_nothing_does_not_matter(grounds: Grounds) -> None:
    storage, dated = grounds["memory"].storage, "2026-01-01"
    for created_at in (
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "2026-13-01",
        "",
        dated,
    ):
        location = make_location()
        await storage.save_snapshot(location, "x", False, make_snapshot(created_at=created_at))
        assert await storage.load_snapshot(location, "x") == make_snapshot(created_at=created_at)
        found = present(store_of(storage).sync.scope(location.session_id, "a1").info("x"))
        assert (found.created_at == datetime(2026, 1, 1, tzinfo=UTC)) is (created_at == dated)


async def test_what_is_not_json_is_refused_with_its_path(grounds: Grounds) -> None:
    """There it becomes `null`, or vanishes."""
    cases: list[tuple[dict[str, Any], str]] = [
        ({"data": {"x": float("nan")}}, "x"),
        ({"data": {"x": [b"bytes"]}}, "x"),
        ({"data": {1: 2}}, "key"),
        ({"app_data": {"y": float("inf")}}, "y"),
        ({"extra": {"z": {1, 2}}}, "z"),
        ({"created_at": object()}, "createdAt"),
    ]
    for kind, (changes, where) in product(("memory", "FileStorage"), cases):
        location, storage = make_location(), grounds[kind].storage
        for is_latest in (True, False):
            with pytest.raises(InvalidInput, match=where):
                await storage.save_snapshot(location, "x", is_latest, make_snapshot(**changes))
        assert await storage.load_snapshot(location) is None
        assert await storage.list_snapshot_ids(location) == []
        bad = {"schemaVersion": "1.0", "updatedAt": "then", "more": float("nan")}
        with pytest.raises(InvalidInput, match="more"):
            await storage.save_manifest(location, bad)


async def test_is_latest_must_be_a_bool(grounds: Grounds) -> None:
    odd: list[Any] = [None, 1, "yes"]
    for is_latest in odd:
        with pytest.raises(InvalidInput, match="is_latest"):
            await grounds["memory"].storage.save_snapshot(
                make_location(), "x", is_latest, make_snapshot()
            )
