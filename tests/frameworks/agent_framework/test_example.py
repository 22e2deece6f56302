"""The example is killed and goes on, and what the guide shows is true."""

from pathlib import Path

import pytest

from tests.effort import slowly
from tests.frameworks.kit import Places, check_page, run_twice, shown


@pytest.mark.parametrize("engine", slowly(["sqlite", "postgres"], but={"sqlite"}))
def test_a_killed_turn_is_finished_and_the_workflow_branches(places: Places, engine: str) -> None:
    url = places.url(engine)
    runs = run_twice("agent_framework_workflow", url)
    assert "killed before it has the answer" in runs.killed
    assert "the last question has no answer yet" in runs.resumed
    assert runs.resumed.count("assistant:") == 2
    chat = shown(url, "trip-to-lisbon")
    assert chat.index("How do I get there?") < chat.index("Fly to Lisbon")
    assert "night train" not in chat
    assert "night train" in shown(url, "trip-without-a-plane")


@pytest.mark.slow
def test_the_page(tmp_path: Path) -> None:
    check_page("agent_framework", tmp_path)
