"""Ids, scopes, cursors and limits that are refused: none of them leads elsewhere.

They are looked at before any engine is asked, so two of them stand for all.
"""

from collections.abc import Awaitable
from typing import Any

import pytest

from limpet import InvalidInput
from tests.compat.strands.kit import (
    At,
    Grounds,
    all_calls,
    documents,
    make_location,
    make_snapshot,
    uuid7,
)


@pytest.fixture(params=["memory", "FileStorage"])
def at(request: pytest.FixtureRequest, grounds: Grounds) -> At:
    return At(grounds[request.param])


HOSTILE = [
    "",
    ".",
    "..",
    "../evil",
    "/etc",
    "a/b",
    "a\\b",
    "a.b",
    "A",
    "s1\n",
    "\n",
    "a b",
    "é",
    "\uff11",  # a digit, but not one of ours
    "\u0663",
    "a\0b",
    "\ud800",
    "x" * 100_000,
    "%2e%2e",
    "~",
    "+2e",
]


async def test_no_id_escapes(at: At) -> None:
    """Nothing is read, written or deleted by it, and the error does not hold megabytes."""
    ground, storage = at.ground, at.storage
    for id in HOSTILE:
        location = make_location()
        await storage.save_snapshot(location, "x", True, make_snapshot())
        calls: list[Awaitable[object]] = [
            storage.save_snapshot(location, id, False, make_snapshot()),
            storage.load_snapshot(location, id),
            storage.delete_session(id),
        ]
        for bad in (make_location(id or ""), make_location(location.session_id, scope_id=id)):
            if bad.session_id == id or bad.scope_id == id:
                found = all_calls(storage, bad).items()
                calls += [call() for name, call in found if name != "delete"]
        for call in calls:
            with pytest.raises(InvalidInput) as caught:
                await call
            assert len(str(caught.value)) < 1_000, ascii(id[:20])
        assert await storage.load_snapshot(location) == make_snapshot()
        if ground.files is not None:
            latest = f"{documents(location)}/snapshot_latest.json"
            assert ground.keys(location.session_id) == [latest], ascii(id[:20])


async def test_no_scope_escapes(at: At) -> None:
    scopes: list[object] = ["tool", "Agent", "multiagent", "../agent", "", None, ["agent"]]
    for scope in scopes:
        bad = {**at.location.to_json(), "scope": scope}
        with pytest.raises(InvalidInput, match="scope"):
            await at.storage.save_snapshot(bad, "x", True, make_snapshot())
        with pytest.raises(InvalidInput, match="scope"):
            await at.storage.load_snapshot(bad)


async def test_ids_that_are_no_text(at: At) -> None:
    """There some storages turn them into text, so that `undefined` becomes a session."""
    ids: list[Any] = [None, 5, True, b"x", ["x"]]
    for id in ids:
        with pytest.raises(InvalidInput):
            await at.save(id, False, make_snapshot())
        with pytest.raises(InvalidInput):
            await at.storage.delete_session(id)
        with pytest.raises(InvalidInput):
            await at.storage.load_snapshot({**at.location.to_json(), "scopeId": id})


async def test_the_id_of_a_latest_is_ignored(at: At) -> None:
    for id in ("latest", "BAD/..", ""):
        await at.save(id, True, make_snapshot())
    assert await at.ids() == []


async def test_cursors_that_mean_nothing(at: At) -> None:
    """There a UUID in capitals compares wrongly, and everything is returned again."""
    cursors: list[Any] = ["not-there", uuid7(1).upper(), uuid7(1) + "\n", 5, "../evil"]
    cursors += ["f47ac10b-58cc-4372-a567-0e02b2c3d479", "2026-01-01T00:00:00.000Z"]
    for cursor in cursors:
        with pytest.raises(InvalidInput):
            await at.ids(start_after=cursor)


async def test_limits_that_are_no_whole_numbers(at: At) -> None:
    limits: list[Any] = [1.5, float("nan"), "1", True]
    for limit in limits:
        with pytest.raises(InvalidInput, match="limit"):
            await at.ids(limit=limit)
        with pytest.raises(InvalidInput, match="limit"):
            await at.page(limit=limit)
