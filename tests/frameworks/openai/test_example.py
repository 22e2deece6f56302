"""The example and the guide are true."""

from pathlib import Path

import pytest

import limpet
from tests.effort import slowly
from tests.frameworks.kit import Places, check_page, run_twice, shown


@pytest.mark.parametrize("engine", slowly(("sqlite", "postgres"), but=("sqlite",)))
def test_the_example(engine: str, places: Places) -> None:
    url = places.url(engine)
    runs = run_twice("openai_agents", url)
    assert "turn 2: waits for approval of `book`" in runs.killed
    assert "booking" not in runs.killed
    assert runs.resumed.count("(booking a tram tour)") == 1
    assert "turn 2: Done: a tram tour is booked." in runs.resumed
    assert "turn 2 on the branch: Done: a boat trip is booked." in runs.resumed
    with limpet.open(url) as store:
        (run,) = store.scopes(kind="run")
        assert run.head is not None
        assert run.head.status == "completed"
    for branch, said in {"": "a tram tour is booked", ":by-boat": "a boat trip is booked"}.items():
        chat = shown(url, f"trip-to-lisbon{branch}")
        assert "What is Lisbon like?" in chat
        assert f"│ {said}" in chat


@pytest.mark.slow  # a process per example, each of which loads the SDK
def test_the_guide(tmp_path: Path) -> None:
    check_page("openai", tmp_path)
