"""The example runs, its processes are really killed, and nothing is done twice."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import limpet
from examples.langgraph_approval import TRIP, agent
from tests.compat.langgraph.kit import Places
from tests.waiting import WAIT_S_MAX

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "langgraph_approval.py"


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_an_agent_is_killed_twice_and_does_nothing_twice(places: Places, engine: str) -> None:
    url = places.url(engine)
    done = subprocess.run(
        [sys.executable, EXAMPLE, url],
        capture_output=True,
        text=True,
        timeout=WAIT_S_MAX,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    asks, told, missing, back, fork, line = re.split(r"\n\n(?=[A-Z])", done.stdout)

    assert asks.splitlines()[1:] == ["  plan", "  the process is killed: -9"]
    _, waiting, *bookings, killed = told.splitlines()
    assert waiting == "  trip-to-lisbon waits for an answer: {'may I book?': ['flight', 'hotel']}"
    assert {*bookings} - {"  the hotel does not answer"} == {"  book the flight"}
    assert killed == "  the process is killed: -9"
    assert missing.splitlines()[1:] == [
        "  book the hotel",
        "  report",
        "  booked: flight and hotel",
    ]
    assert "  step  1  2 messages  next: approve\n" in back
    assert fork.splitlines()[1:3] == ["  plan", "  {'may I book?': ['train', 'hotel']}"]
    assert sorted(fork.splitlines()[3:5]) == ["  book the hotel", "  book the train"]
    assert fork.splitlines()[-1] == "  booked: train and hotel"
    drawn, shown = line.split("\n$ limpet ")[1:]
    assert drawn.startswith("log trip-to-lisbon --graph -m --url ")
    assert "●─╯" in drawn
    assert shown.startswith("show trip-to-lisbon --url ")
    assert (
        shown.index("not booked") < shown.index("rather take a train") < shown.index("All booked")
    )

    with limpet.open(url) as store:
        history = list(agent(store).get_state_history(TRIP))
        ends = [each.values["booked"] for each in history if not each.next]
        assert ends == [["train", "hotel"], ["flight", "hotel"]]
        assert [*store.check()] == []
