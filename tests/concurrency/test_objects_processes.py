"""Several processes write to one folder, or to one bucket: every promise holds on both."""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

import limpet
from limpet import Store
from tests.concurrency.crew import SIZE, Crew, Worker
from tests.concurrency.objects_worker import DONE, SCOPE
from tests.servers.service import Service

SCRIPT = Path(__file__).with_name("objects_worker.py")


@pytest.fixture(params=["directory", pytest.param("seaweedfs", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store."""
    if request.param == "directory":
        return f"file://{tmp_path}/store"
    service: Service = request.getfixturevalue("seaweedfs")
    return f"s3://{service.name}/{uuid.uuid4()}?{urlencode(service.options)}"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with limpet.open(url) as store:
        yield store


@pytest.fixture(scope="module")
def workers() -> Iterator[list[Worker]]:
    """Processes that are told and heard one by one."""
    with ExitStack() as stack:
        hired = [stack.enter_context(Worker(SCRIPT, number)) for number in range(4)]
        assert [worker.hear() for worker in hired] == ["ready"] * 4
        yield hired


def ask(hired: list[Worker], task: str, url: str, message: Any) -> list[Any]:
    for worker in hired:
        worker.tell([task, url, message])
    return [worker.hear() for worker in hired]


def check(store: Store) -> None:
    assert [each for each in store.check() if each.severity == "error"] == []


def test_updates_and_notes_are_exact(crew: Crew, url: str, store: Store) -> None:
    """Promise 6, also below the head."""
    scope, count = store.scope("s"), 5
    scope.save({"count": 0}, id="counter")
    scope.save({}, id="above")
    assert crew.ask("add", url, count) == [count] * SIZE
    crew.ask("tally", url, count)

    found, note = scope.load("counter"), scope.note("tally")
    assert found is not None
    assert note is not None
    assert found.state == {"count": count * SIZE}
    assert note.value == count * SIZE
    assert [info.id for info in scope.history()] == ["above", "counter"]


def test_appends_all_arrive_in_the_order_of_each_process(
    crew: Crew, url: str, store: Store
) -> None:
    """Promises 6 and 7: nothing is lost, doubled or overtaken by its own successor."""
    count = 6
    crew.ask("append", url, count)

    scope = store.scope("s")
    head = scope.load()
    assert head is not None
    items = head.state["items"]
    for number in range(SIZE):
        assert [i for n, i in items if n == number] == list(range(count))
    infos = list(scope.history())
    assert len(items) == len(infos) == SIZE * count
    # In history each state is the one below it and one item more, and minted ids grow.
    ids = [info.id for info in infos]
    assert ids == sorted(set(ids), reverse=True)
    lengths = [len(found.state["items"]) for found in scope.load_many(ids)]
    assert lengths == list(range(SIZE * count, 0, -1))
    assert [info.parent_id for info in infos] == [*ids[1:], None]
    check(store)


def test_a_first_save_has_one_winner(workers: list[Worker], url: str, store: Store) -> None:
    """Promise 3: of all that expect no head, one is stored and no other is ever seen."""
    count = 12
    won = ask(workers, "create", url, count)

    revisions = sorted(revision for each in won for revision in each)
    histories = [list(store.scope("race", f"r{index:02}").history()) for index in range(count)]
    assert sorted(info.revision for history in histories for info in history) == revisions
    assert [len(history) for history in histories] == [1] * count
    check(store)


def test_what_is_deleted_while_others_save_stays_away(
    workers: list[Worker], url: str, store: Store
) -> None:
    """Promise 5: each snapshot is deleted exactly once, or is still there; nothing comes back."""
    count = 12
    for worker in workers[2:]:
        worker.tell(["delete", url, None])
    saved = [id for ids in ask(workers[:2], "save", url, count) for id in ids]
    store.scope("control").set_note(DONE, True)
    gone = [id for worker in workers[2:] for id in worker.hear()]

    scope = store.scope(*SCOPE)
    kept = [info.id for info in scope.history()]
    minted = [id for id in gone if not id.startswith("w")]  # drafts, deleted while they were heads
    assert len(set(gone)) == len(gone)
    assert sorted([*kept, *gone]) == sorted([*saved, *minted])
    assert kept != []
    assert list(scope.ids()) == sorted(kept)
    assert [found.state["id"] for found in scope.load_many(kept)] == kept
    assert [scope.load(id) for id in gone] == [None] * len(gone)
    assert [store.find(id) for id in gone] == [None] * len(gone)
    assert all(store.find(id) is not None for id in kept)
    for number in range(2):
        own = [id for id in kept if id.startswith(f"w{number}")]
        assert own == sorted(own, reverse=True)
        assert [info.id for info in store.history(labels={"by": str(number)})] == own
    check(store)


def test_a_scope_that_is_deleted_while_others_save_begins_again(
    workers: list[Worker], url: str, store: Store
) -> None:
    """What was there before a delete is gone; a save that overlaps one is whole, or gone."""
    scope = store.scope(*SCOPE)
    workers[3].tell(["forget", url, None])
    ask(workers[:3], "save_anyway", url, 12)
    store.scope("control").set_note(DONE, True)
    assert workers[3].hear() > 0

    left = [info.id for info in scope.history()]
    assert [found.state for found in scope.load_many(left)] == [{"id": id} for id in left]
    head = scope.info()
    assert (head.id if head else None) == (left[0] if left else None)
    scope.delete()
    assert (scope.load(), list(scope.history()), list(scope.ids())) == (None, [], [])
    scope.save({"id": "z"}, id="z")
    assert [info.id for info in scope.history()] == list(scope.ids()) == ["z"]
    check(store)
