"""The example is killed and goes on, and what the guide shows is true."""

from pathlib import Path

import pytest

from tests.frameworks.kit import Places, check_page, run_twice, shown


@pytest.mark.slow  # each process imports CrewAI, which takes seconds
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_a_killed_turn_is_finished_and_the_flow_branches(places: Places, engine: str) -> None:
    url = places.url(engine)
    runs = run_twice("crewai_flow", url)
    assert "killed before it has the answer" in runs.killed
    assert "Found 3 saved steps: hear, answer, hear" in runs.resumed
    assert runs.resumed.count("assistant:") == 2
    chat = shown(url, "trip-to-lisbon")
    assert chat.index("How do I get there?") < chat.index("Fly to Lisbon")
    assert "night train" not in chat
    fork = runs.resumed.split()[-1]
    assert "night train" in shown(url, fork)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_page(tmp_path: Path) -> None:
    check_page("crewai", tmp_path)
