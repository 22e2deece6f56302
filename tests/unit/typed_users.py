"""What type checkers say about users' programs; test_types.py has it checked by mypy and pyright.

An error that must be found has a comment that ignores it: both report comments that are not needed.
"""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

from pydantic import BaseModel

from limpet import (
    AsyncLease,
    AsyncScope,
    AsyncStore,
    Lease,
    Scope,
    Snapshot,
    SnapshotInfo,
    Store,
    jsonable,
    open,
    open_async,
    runs,
)
from limpet.runs import AsyncRun, Run, RunInfo


@dataclass
class Chat:
    title: str


class ModelChat(BaseModel):
    title: str


class DictChat(TypedDict):
    title: str


def opening() -> None:
    with open("agents.db", mode="ro", lock_wait_s=5, default=jsonable, keys=lambda: "k") as store:
        assert_type(store, Store)
    assert_type(open_async("s3://b/p", endpoint_url="http://x", parallel=4), AsyncStore)
    open(lock_wait=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    open(mode="r")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    open_async(workers="8")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def with_a_model(store: Store) -> None:
    scope = store.scope("chat-42", model=Chat)
    assert_type(scope, Scope[Chat])
    assert_type(store.scope("chat-42", "planner", "agent", model=ModelChat), Scope[ModelChat])
    assert_type(store.scope("chat-42", model=DictChat), Scope[DictChat])
    assert_type(scope.save(Chat("t")), SnapshotInfo)
    scope.save({"title": "t"})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    found = scope.load()
    assert_type(found, Snapshot[Chat] | None)
    assert found is not None
    assert_type(found.state.title, str)
    assert_type(found.with_(state=Chat("u")), Snapshot[Chat])
    found.with_(state=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type([each.state for each in scope.load_many([found.id])], list[Chat])
    scope.update(found.id, lambda each: each.with_(state=Chat(each.state.title + "!")))
    assert_type(scope.fork(found.id, patch=lambda state: Chat(state.title)), Scope[Chat])
    assert_type(scope.fork(found.id, patch={"title": "u"}), Scope[Chat])
    with scope.claim(owner="w") as lease:
        assert_type(lease, Lease[Chat])
        assert_type(lease.load(), Snapshot[Chat] | None)


async def with_a_model_async(store: AsyncStore) -> None:
    scope = store.scope("chat-42", model=Chat)
    assert_type(scope, AsyncScope[Chat])
    await scope.save(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    found = await scope.load()
    assert_type(found, Snapshot[Chat] | None)
    assert found is not None
    assert_type([each.state async for each in scope.load_many([])], list[Chat])

    async def change(each: Snapshot[Chat]) -> Snapshot[Chat] | None:
        return each.with_(state=Chat("x"))

    await scope.update(found.id, change)
    assert_type(await scope.fork(found.id), AsyncScope[Chat])
    async with scope.claim(owner="w") as lease:
        assert_type(lease, AsyncLease[Chat])


def supervised(store: Store) -> None:
    """The store may be given by its name, as every other argument."""
    with runs.start(store=store, run_id="r", initial={}) as run:
        assert_type(run, Run)
    with runs.adopt(store=store, run_id="r") as run:
        assert_type(run, Run)
    assert_type(runs.get(store=store, run_id="r"), RunInfo | None)
    assert_type(runs.abort(store=store, run_id="r"), RunInfo)
    assert_type(runs.list(store=store, status="failed"), Iterator[RunInfo])


async def supervised_async(store: AsyncStore) -> None:
    async with runs.start(store=store, run_id="r", initial={}) as run:
        assert_type(run, AsyncRun)
    async with runs.adopt(store=store, run_id="r") as run:
        assert_type(run, AsyncRun)
    assert_type(await runs.get(store=store, run_id="r"), RunInfo | None)
    assert_type(await runs.abort(store=store, run_id="r"), RunInfo)
    assert_type(runs.list(store=store, status="failed"), AsyncIterator[RunInfo])


def without_a_model(store: Store, scope: Scope, snapshot: Snapshot) -> Snapshot:
    """The names are used without brackets, and a state is anything."""
    assert_type(store.scope("chat-42"), Scope[Any])
    assert_type(scope.load(), Snapshot[Any] | None)
    scope.save({"messages": [{"role": "user"}], "step": 1})
    scope.save([1, 2])
    scope.update(snapshot.id, lambda each: each.with_(state={**each.state, "step": 2}))
    scope.fork(snapshot.id, patch=lambda state: state["inner"])
    first: str = snapshot.state["messages"][0]["content"]
    with store.scope(*snapshot.scope).claim(owner=first) as lease:
        lease.save({**snapshot.state, "first": first}, expect=snapshot.revision)
    return snapshot.with_(state=first)


class Agent:
    def __init__(self, store: Store) -> None:
        self.scope: Scope = store.scope("chat-42")
        self.typed: Scope[Chat] = store.scope("chat-42", model=Chat)

    def title(self) -> str:
        found = self.typed.load()
        return "" if found is None else found.state.title
