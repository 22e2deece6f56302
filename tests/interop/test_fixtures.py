"""Data that real SDKs wrote, in TypeScript and in Python.

`py_snapshot` is from the Python SDK, which spells the envelope and the state differently: it is
read like any other. `py_legacy_file` is a log of messages, which is nobody's snapshot.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from limpet import JSON, ScopeKey, Store
from tests.interop.ground import LAYOUTS, Ground, Layout
from tests.interop.places import Place
from tests.interop.sdk import Sdk
from tests.interop.test_they_write import exact

pytestmark = pytest.mark.timeout(300)  # the first test may have to install the SDK

FIXTURES = Path(__file__).parent / "fixtures"
BOT = "support-bot"


class Written(NamedTuple):
    """A folder of fixtures: the layout it is in, and its scopes with the ids that they keep."""

    name: str
    layout: Layout
    scopes: dict[ScopeKey, list[str]]

    def read(self, scope: ScopeKey, id: str | None = None) -> JSON:
        """Return a document of the fixture, the latest without an id."""
        name = "snapshot_latest" if id is None else f"immutable_history/snapshot_{id}"
        where = f"{scope.session_id}/scopes/{scope.kind}/{scope.scope_id}/snapshots/{name}.json"
        return json.loads((FIXTURES / self.name / self.layout.root / where).read_bytes())


WRITTEN = [
    Written(
        "ts_filestorage",
        LAYOUTS["classic"],
        {
            ScopeKey("demo-interrupt", "approver"): [],
            ScopeKey("demo-invocation", BOT): ["01a1dc89-ba89-75b0-890e-b39fd51ae566"],
            ScopeKey("demo-message", BOT): ["01a1dc89-bacc-7124-ab6a-f7f7adc8593e"],
            ScopeKey("demo-trigger", BOT): ["01a1dc89-bae0-728b-aa93-d2a1a03e3fb5"],
        },
    ),
    Written(
        "ts_raw_storage",
        LAYOUTS["classic"],
        {
            ScopeKey("raw-session", "a-1"): [
                "019c9bf1-14e5-7eef-96fb-cc07ae54210f",
                "019c9bf1-1d34-7eef-96fb-d1be20fd7bbd",
                "019c9bf1-24bb-7eef-96fb-ddcc943cd859",
            ]
        },
    ),
    Written(
        "ts_unified_localfile",
        LAYOUTS["unified"],
        {ScopeKey("demo-unified", BOT): ["01a1dc89-bb10-76f8-a017-897ba8cce6b2"]},
    ),
    Written(
        "py_snapshot",
        LAYOUTS["unified"],
        {
            ScopeKey("demo-py", BOT): [
                "01a1dc8a-81ea-75e0-a6d1-b642f715f554",
                "01a1dc8a-8206-77b5-a4ac-3162530b17a3",
            ]
        },
    ),
]


def plant(ground: Ground, name: str) -> None:
    """Put a folder of fixtures where both sides look."""
    for path in sorted((FIXTURES / name).rglob("*.json")):
        ground.files.write(path.relative_to(FIXTURES / name).as_posix(), path.read_bytes())


@pytest.fixture(params=WRITTEN, ids=[each.name for each in WRITTEN])
def written(request: pytest.FixtureRequest) -> Written:
    assert isinstance(request.param, Written)
    return request.param


@pytest.fixture
def planted(sdk: Sdk, place: Place, written: Written) -> Ground:
    ground = Ground(sdk, written.layout, place)
    plant(ground, written.name)
    return ground


@pytest.fixture
def store(planted: Ground) -> Iterator[Store]:
    with planted.open() as store:
        yield store


def when(document: JSON) -> datetime:
    text = document.get("createdAt") or document["created_at"]
    return datetime.fromisoformat(text).astimezone(UTC)


def test_every_document_is_read(written: Written, store: Store) -> None:
    for scope, ids in written.scopes.items():
        ours = store.scope(*scope)
        for id in (None, *ids):
            found, document = ours.load(id), written.read(scope, id)
            assert found is not None
            assert exact(found.state) == exact(document.pop("data"))
            assert exact(found.metadata) == exact({"strands": document})
            assert found.created_at == when(document)
            assert found.kept == (id is not None)


def test_every_document_is_listed(written: Written, store: Store) -> None:
    assert list(store.sessions()) == sorted({scope.session_id for scope in written.scopes})
    assert sorted(info.key for info in store.scopes()) == sorted(written.scopes)
    for scope, ids in written.scopes.items():
        ours = store.scope(*scope)
        assert list(ours.ids()) == ids
        assert [info.id for info in ours.history()] == ids[::-1]
    assert [found for found in store.check() if found.severity == "error"] == []


def test_our_snapshots_follow_theirs(written: Written, planted: Ground, store: Store) -> None:
    for scope, ids in written.scopes.items():
        ours, theirs = store.scope(*scope), planted.theirs(*scope)
        before = written.read(scope)["data"]
        info = ours.append("messages", [{"role": "user", "content": [{"text": "more"}]}])
        assert info.parent_id == (ids[-1] if ids else None)
        assert len(theirs.load()["data"]["messages"]) == len(before["messages"]) + 1
        assert [each.id for each in ours.history()] == [info.id, *ids[::-1]]
        assert theirs.ids() == [*ids, info.id]
        for id in ids:
            assert theirs.load(id) == written.read(scope, id)


def test_a_session_is_deleted_whole(written: Written, planted: Ground, store: Store) -> None:
    for scope in written.scopes:
        store.delete_session(scope.session_id)
    assert planted.files.list_keys() == []


def test_the_manifest_of_a_fixture_is_a_note(sdk: Sdk, place: Place) -> None:
    ground = Ground(sdk, LAYOUTS["classic"], place)
    plant(ground, "ts_raw_storage")
    with ground.open() as store:
        note = store.scope("raw-session", "a-1").note("manifest")
    assert note is not None
    assert note.value == {"schemaVersion": "1.0", "updatedAt": "2026-01-01T00:00:00.000Z"}


def test_a_log_of_messages_is_left_alone(sdk: Sdk, place: Place) -> None:
    """The older sessions of the Python SDK stand beside ours and are neither listed nor touched."""
    ground = Ground(sdk, LAYOUTS["classic"], place)
    plant(ground, "py_legacy_file")
    litter = ground.files.list_keys()
    with ground.open() as store:
        assert list(store.sessions()) == []
        assert list(store.scopes()) == []
        store.scope("chat").save({"by": "us"})
        assert list(store.sessions()) == ["chat"]
        assert store.delete_session("chat") == 1
        assert store.delete_session("session_demo") == 0
    assert ground.files.list_keys() == litter
