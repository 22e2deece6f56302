"""Data that real SDKs wrote, in TypeScript and in Python.

`py_snapshot` is from the Python SDK, which spells the envelope and the state differently: it is
read like any other. `py_legacy_file` is a log of messages, which is nobody's snapshot.
"""

import json
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


def when(document: JSON) -> datetime:
    text = document.get("createdAt") or document["created_at"]
    return datetime.fromisoformat(text).astimezone(UTC)


def test_every_document_is_read(written: Written, planted: Ground, store: Store) -> None:
    assert planted.pull(store).skipped == ()
    for scope, ids in written.scopes.items():
        for id in (None, *ids):
            found, document = store.scope(*scope).load(id), written.read(scope, id)
            loaded = planted.ours(*scope).load(id)
            assert {name: loaded[name] for name in document} == document
            assert found is not None
            assert exact(found.state) == exact(document.pop("data"))
            assert exact(found.metadata) == exact({"strands": document})
            assert found.created_at == when(document)
            assert found.kept == (id is not None)


def test_every_document_is_listed(written: Written, planted: Ground, store: Store) -> None:
    planted.pull(store)
    assert list(store.sessions()) == sorted({scope.session_id for scope in written.scopes})
    assert sorted(info.key for info in store.scopes()) == sorted(written.scopes)
    for scope, ids in written.scopes.items():
        assert planted.ours(*scope).ids() == planted.theirs(*scope).ids() == ids
        assert [info.id for info in store.scope(*scope).history()] == ids[::-1]


def test_our_snapshots_follow_theirs(written: Written, planted: Ground) -> None:
    for scope, ids in written.scopes.items():
        ours, theirs = planted.ours(*scope), planted.theirs(*scope)
        document = written.read(scope)
        more = [*document["data"]["messages"], {"role": "user", "content": [{"text": "more"}]}]
        ours.put(None, {**ours.load(), "data": {**document["data"], "messages": more}})
        assert theirs.load()["data"]["messages"] == more
        for id in ids:
            assert theirs.load(id) == written.read(scope, id)


def test_a_session_is_deleted_whole(written: Written, planted: Ground) -> None:
    for scope in written.scopes:
        planted.ours(*scope).delete_session()
    assert planted.files.list_keys() == []


def test_a_log_of_messages_is_left_alone(sdk: Sdk, place: Place) -> None:
    """The older sessions of the Python SDK stand beside ours and are neither listed nor touched."""
    ground = Ground(sdk, LAYOUTS["classic"], place)
    plant(ground, "py_legacy_file")
    litter = ground.files.list_keys()
    ground.ours("chat").save_latest({"by": "us"})
    ground.ours("chat").delete_session()
    ground.ours("session_demo").delete_session()
    assert ground.files.list_keys() == litter
