"""The example and the guide are true; what agents save is a chat for `limpet show`."""

from pathlib import Path

import pytest

import limpet
from tests.effort import slowly
from tests.frameworks.kit import Places, check_page, run_twice, shown


@pytest.mark.parametrize("engine", slowly(("sqlite", "postgres"), but=("sqlite",)))
def test_the_example(places: Places, engine: str) -> None:
    url = places.url(engine)
    killed, resumed = run_twice("genkit_python", url)
    assert killed.endswith("user:  yes\n  the process is killed while it books\n")
    assert "Found a conversation of 4 messages\n  agent: May I book the flight?" in resumed
    assert "agent: Done: the flight is booked." in resumed
    assert "agent: Done: the train is booked." in resumed
    with limpet.open(url) as store:
        assert len(list(store.scope("trip-to-lisbon").leaves())) == 2

    chat = shown(url, "trip-to-lisbon")
    assert "user 0\n  A short trip in May?" in chat
    assert 'assistant 3\n  ▸ book("train")\n  │ the train is booked' in chat
    assert "flight" not in chat


@pytest.mark.slow  # a process per example, each of which imports Genkit
def test_the_guide(tmp_path: Path) -> None:
    check_page("genkit", tmp_path)
