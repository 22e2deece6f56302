"""The example and the guide, with the real agent and a fake model."""

from pathlib import Path

import pytest

import limpet
from examples.claude_agent import fake_model
from tests.frameworks.kit import check_page, run_twice, shown


@pytest.mark.slow  # the real agent starts in each process
def test_the_example(url: str) -> None:
    runs = run_twice("claude_agent", url)
    assert runs.killed.endswith("(calls the tool)\nKilled while it books. Run it again!\n")
    assert runs.resumed.count("saved:") == 4
    assert "claude: It is booked. Have a good trip!\nA fork of it" in runs.resumed
    assert "claude: I would take a flight." in runs.resumed
    question = "How do I get to Lisbon?"
    assert runs.resumed.endswith(f"Saved: {question} (fork)\nSaved: {question}\n")
    with limpet.open(url) as store:
        fork, trip = (each.session_id for each in store.history() if each.parent_id is None)
    assert shown(url, trip).rstrip().endswith("It is booked. Have a good trip!")
    told = [line.strip() for line in shown(url, fork).splitlines() if line.startswith("  ")]
    asked, answer = "Is there something faster?", "I would take a flight."
    assert told == [question, "I would take the night train.", asked, answer]


@pytest.mark.slow
def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in fake_model(str(tmp_path / "claude")).items():
        monkeypatch.setenv(name, value)
    check_page("claude", tmp_path)
