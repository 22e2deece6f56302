"""Watches across processes, by both APIs: the present first, and never without the last."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from limpet import Store
from tests.concurrency.crew import Worker
from tests.watching.tools import APIS, Remote, Watching, on, place

SCOPE = ["s", "main"]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """What is to be ended with a test."""
    with ExitStack() as stack:
        yield stack


class Crowd:
    """The same watch four times: in this process and in two others, by both APIs."""

    def __init__(self, stack: ExitStack, store: Store, url: str, asked: dict[str, Any]) -> None:
        def watch(store: Any) -> Any:
            options = {name: value for name, value in asked.items() if name != "scope"}
            return (store.scope(*asked["scope"]) if "scope" in asked else store).watch(**options)

        remote = [Remote(url, dict(asked), api=api) for api in APIS]
        for each in remote:
            stack.callback(each.dismiss)
        self.all = [Watching(store, watch, api=api) for api in APIS]
        self.all += remote

    def wait_for(self, revision: str) -> None:
        for each in self.all:
            each.wait_for(revision)

    def wait_for_end(self) -> None:
        for each in self.all:
            each.wait_for_end()

    def assert_in_order(self) -> None:
        for each in self.all:
            places = [place(revision) for revision in each.revisions]
            assert places == sorted(set(places))


@pytest.mark.parametrize(
    ("url", "bursts", "count"),
    [
        ("sqlite", 4, 100),
        pytest.param("sqlite", 4, 500, marks=pytest.mark.slow),
        pytest.param("postgres", 1, 500, marks=pytest.mark.slow),
        ("directory", 2, 100),
        pytest.param("s3", 1, 20, marks=pytest.mark.slow),
        *(
            pytest.param(engine, *plan, marks=pytest.mark.slow)
            for engine in ("sqlite", "postgres", "directory")
            for plan in ((10, 500), (200, 3))  # many ends, each at another moment of a look
        ),
    ],
    indirect=["url"],
)
def test_the_last_of_a_burst_is_always_seen(
    stack: ExitStack, url: str, store: Store, bursts: int, count: int
) -> None:
    """The present first; then those in between, or not; none out of order, none twice."""
    first = store.scope(*SCOPE).save({"n": "first"})
    crowd = Crowd(stack, store, url, {"scope": SCOPE})
    crowd.wait_for(first.revision)
    assert [each.revisions for each in crowd.all] == [[first.revision]] * 4

    fast = f"{url}?synchronous=off" if url.startswith("sqlite") else url
    writer = stack.enter_context(Worker("tests.watching.worker", fast, "writer"))
    assert writer.hear() == "ready"
    for number in range(bursts):
        asked = {"scope": SCOPE, "count": count, "keep": number % 2 == 0}
        crowd.wait_for(writer.ask(["burst", asked]))
    crowd.assert_in_order()


@on()
def test_every_change_is_seen_until_the_end(stack: ExitStack, url: str, store: Store) -> None:
    """A watch begins before there is a scope; drafts, updates, what is uncovered, the end."""
    crowd = Crowd(stack, store, url, {"scope": SCOPE})
    scope = store.scope(*SCOPE)
    kept = scope.save({"n": 1})
    crowd.wait_for(kept.revision)
    draft = scope.save({"n": 2}, keep=False)
    crowd.wait_for(draft.revision)
    changed = scope.update(draft.id, lambda s: s.with_(status="aborted"))
    assert changed is not None
    crowd.wait_for(changed.revision)
    scope.delete_snapshot(draft.id)
    crowd.wait_for(kept.revision)
    last = scope.append("items", [1])
    crowd.wait_for(last.revision)
    scope.delete()
    crowd.wait_for_end()
    assert [info.revision for info in crowd.all[0].seen[-1:]] == [last.revision]


@on()
def test_a_session_whose_last_head_went_before_it(url: str, store: Store) -> None:
    """It has ended when the session is gone, whatever was left of that meanwhile."""
    scope = store.scope("s")
    scope.set_note("name", 1)
    saved = scope.save({"n": 1})
    watching = Watching(store, lambda store: store.watch(session_id="s"))
    watching.wait_for(saved.revision)
    beside = Watching(store, lambda store: store.watch(session_id="beside"))
    scope.delete_snapshot(saved.id)
    beside.wait_for(store.scope("beside").save({"n": 2}).revision)  # so it has been looked at
    store.delete_session("s")
    watching.wait_for_end()
