"""A session that begins as another one was: `fork_session`."""

import pytest
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.sessions import Session

import limpet
from tests.frameworks.adk.services import USER, Sessions, event, texts


async def chat(ours: Sessions, id: str = "s") -> Session:
    """Make a session of three runs with two events each."""
    session = await ours.new(id, state={"n": 0, "user:u": 0})
    for run in range(1, 4):
        await ours.append(session, event(text=f"q{run}", id=f"q{run}", invocation_id=f"run-{run}"))
        changed = {"n": run, "user:u": run}
        await ours.append(session, event(changed, f"a{run}", invocation_id=f"run-{run}"))
    return session


@pytest.mark.parametrize(
    ("at", "said", "n"),
    [
        (None, ["q1", "a1", "q2", "a2", "q3", "a3"], 3),
        ("run-3", ["q1", "a1", "q2", "a2", "q3", "a3"], 3),
        ("run-2", ["q1", "a1", "q2", "a2"], 2),
        ("q2", ["q1", "a1", "q2"], 1),
        ("q1", ["q1"], 0),
    ],
)
async def test_forks(ours: Sessions, at: str | None, said: list[str], n: int) -> None:
    source = await chat(ours)
    forked = await ours.fork("s", at)
    assert texts(forked.events) == said
    assert forked.state == {"n": n, "user:u": 3}
    await ours.append(forked, event({"n": 9}, "on the fork"))
    found = await ours.get(forked)
    assert texts(found.events) == [*said, "on the fork"]
    assert found.state == {"n": 9, "user:u": 3}
    assert await ours.get("s") == source
    assert {each.id for each in await ours.listed()} == {"s", forked.id}


async def test_a_fork_knows_where_it_comes_from(ours: Sessions) -> None:
    await chat(ours)
    await ours.fork("s", "q2", "f")
    store = ours.service._store.sync
    fork = store.scope(f"{ours.app_name}/{USER}/f", kind="conversation")
    source = store.scope(f"{ours.app_name}/{USER}/s", kind="conversation")
    origin = fork.info().forked_from
    assert origin.scope == source.key
    assert texts((await ours.get("f")).events) == ["q1", "a1", "q2"]
    assert [each["id"] for each in source.load(origin.id).state["events"]][-1] == "q2"


async def test_a_fork_of_a_fork_before_it_began(ours: Sessions) -> None:
    await chat(ours)
    forked = await ours.fork("s", "run-2")
    await ours.append(forked, event(text="more", invocation_id="run-4"))
    assert texts((await ours.fork(forked.id, "q1")).events) == ["q1"]
    assert texts((await ours.fork(forked.id, "run-1")).events) == ["q1", "a1"]
    assert len((await ours.fork(forked.id)).events) == 5


async def test_a_fork_without_the_history(ours: Sessions) -> None:
    await chat(ours)
    scope = ours.service._store.sync.scope(f"{ours.app_name}/{USER}/s", kind="conversation")
    scope.prune(keep_last=1)
    assert texts((await ours.fork("s", "q2")).events) == ["q1", "a1", "q2"]


async def test_a_fork_leaves_shared_state_as_it_is(ours: Sessions) -> None:
    """Also if nothing tells any more which changes were made: the histories were pruned."""
    session = await chat(ours)
    await ours.append(session, event({"app:a": 1}, id="last"))
    await ours.append(await ours.new("t"), event({"app:a": 2, "user:u": 9}))
    store = ours.service._store.sync
    for each in list(store.scopes(prefix=ours.app_name)):
        store.scope(*each.key).prune(keep_last=1)
    for at in (None, "run-1", "run-2", "q1"):
        assert (await ours.fork("s", at)).state["user:u"] == 9
    forked = store.scope(f"{ours.app_name}/{USER}/s", kind="conversation")
    forked.fork(forked.info().id, to=f"{ours.app_name}/{USER}/by-limpet")
    assert (await ours.get("by-limpet")).state == {"n": 3, "app:a": 2, "user:u": 9}


async def test_a_session_that_limpet_restored_leaves_shared_state_as_it_is(ours: Sessions) -> None:
    await chat(ours)
    store = ours.service._store.sync
    store.scope(f"{ours.app_name}/{USER}", kind="user").prune(keep_last=1)
    scope = store.scope(f"{ours.app_name}/{USER}/s", kind="conversation")
    after_first_run = [*scope.history()][-3]
    scope.restore(after_first_run)
    assert (await ours.get("s")).state == {"n": 1, "user:u": 3}


async def test_what_cannot_be_forked(ours: Sessions) -> None:
    await chat(ours)
    with pytest.raises(SessionNotFoundError):
        await ours.fork("other")
    with pytest.raises(SessionNotFoundError):
        await ours.fork(" ")
    with pytest.raises(limpet.NotFound, match="no event and no invocation has this id"):
        await ours.fork("s", "run-4")
    with pytest.raises(AlreadyExistsError):
        await ours.fork("s", "run-1", "s")
    assert (await ours.fork("s", "run-1", " f ")).id == "f"
