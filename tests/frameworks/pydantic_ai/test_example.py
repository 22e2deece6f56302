"""The example, which is killed while it books, and the guide."""

from pathlib import Path

import pytest

from tests.effort import slowly
from tests.frameworks.kit import Places, check_page, run_twice, shown

EXAMPLE = "pydantic_ai_chat"


@pytest.mark.parametrize("engine", slowly(("sqlite", "postgres"), but=("sqlite",)))
def test_the_example(engine: str, places: Places) -> None:
    url = places.url(engine)
    killed, resumed = run_twice(EXAMPLE, url)
    assert killed.endswith("booking ... and the process is killed\n")
    assert "found 4 messages, 2 requests to the model" in resumed
    assert "agent: Done: flight booked." in resumed
    assert "agent: Done: train booked." in resumed
    assert resumed.endswith("trip-by-train: 6 messages\n  trip-to-lisbon: 6 messages\n")
    chat = shown(url, "trip-by-train")
    for part in ("How to Lisbon?", "Please book the train.", 'book(way="train")', "train booked"):
        assert part in chat
    assert "flight booked" not in chat


@pytest.mark.slow  # it imports Pydantic AI once more
def test_the_guide(tmp_path: Path) -> None:
    check_page("pydantic_ai", tmp_path)
