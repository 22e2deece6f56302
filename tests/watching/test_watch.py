"""Watches of what another process writes, by both APIs: first the present, and always the last."""

import pytest

from limpet import Store
from tests.concurrency.crew import Worker
from tests.watching.tools import APIS, Watching, place

SCOPE = ["s", "main"]


@pytest.mark.parametrize(
    ("url", "bursts", "count"),
    [
        ("sqlite", 4, 100),
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
    url: str, store: Store, bursts: int, count: int
) -> None:
    """The present first; then those in between, or not; none out of order, none twice."""
    first = store.scope(*SCOPE).save({"n": "first"})
    watching = [Watching(store, lambda store: store.scope(*SCOPE).watch(), api=api) for api in APIS]
    for each in watching:
        each.wait_for(first.revision)

    fast = f"{url}?synchronous=off" if url.startswith("sqlite") else url
    with Worker("tests.watching.worker", fast, "writer") as writer:
        assert writer.hear() == "ready"
        for number in range(bursts):
            asked = {"scope": SCOPE, "count": count, "keep": number % 2 == 0}
            last = writer.ask(["burst", asked])
            for each in watching:
                each.wait_for(last)
    for each in watching:
        places = [place(revision) for revision in each.revisions]
        assert places == sorted(set(places))
