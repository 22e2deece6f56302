"""Each example is killed and goes on, and what each guide shows is true.

The agent of Claude needs a fake model, so its example and its guide are tested in its folder.
"""

import re
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pytest

from tests.effort import TORTURE
from tests.environments import INSTALL_S_MAX
from tests.frameworks.catalogue import FRAMEWORKS, python_with
from tests.frameworks.kit import RUN_S_MAX, Places, check_page, quiet, run_once, run_twice, shown

pytestmark = pytest.mark.timeout(INSTALL_S_MAX + 4 * RUN_S_MAX)


class Story(NamedTuple):
    """Patterns of what an example prints until it is killed, of what it prints then, and of chats.

    A pattern after a `!` is not found. `{fork}` is the last word that was printed.
    """

    killed: tuple[str, ...]
    resumed: tuple[str, ...]
    chats: dict[str, tuple[str, ...]]


STORIES = {
    "openai": Story(
        ("turn 2: waits for approval of `book`", "!booking"),
        (
            r"\(booking a tram tour\)",
            r"!(?s)\(booking a tram tour\).*\(booking a tram tour\)",
            r"turn 2: Done: a tram tour is booked\.",
            r"turn 2 on the branch: Done: a boat trip is booked\.",
        ),
        {
            "tour-of-lisbon": (r"What is Lisbon like\?", "│ a tram tour is booked"),
            "tour-of-lisbon:by-boat": (r"What is Lisbon like\?", "│ a boat trip is booked"),
        },
    ),
    "adk": Story(
        (r"booking a hotel in Alfama \.\.\. and the process is killed", "!guide: Done"),
        (
            "5 events were saved",
            r"guide: Done: a hotel in Alfama\.",
            r"lisbon-by-train: Two days in Lisbon\?",
        ),
        {
            "trips/alice/lisbon": ("book_hotel", r"Done: a hotel in Alfama\."),
            "trips/alice/lisbon-by-train": (r"By train instead\? Good idea!", "!hotel"),
        },
    ),
    "pydantic_ai": Story(
        (r"booking \.\.\. and the process is killed\n$",),
        (
            "found 4 messages, 2 requests to the model",
            r"agent: Done: flight booked\.",
            r"agent: Done: train booked\.",
            r"way-by-train: 6 messages\n  way-to-lisbon: 6 messages\n$",
        ),
        {
            "way-by-train": (
                r"How to Lisbon\?",
                r"Please book the train\.",
                r'book\(way="train"\)',
                "train booked",
                "!flight booked",
            )
        },
    ),
    "crewai": Story(
        ("killed before it has the answer",),
        ("Found 3 saved steps: hear, answer, hear", "(?s)assistant:.*assistant:"),
        {
            "weekend-in-lisbon": (r"(?s)How do I get there\?.*Fly to Lisbon", "!night train"),
            "{fork}": ("night train",),
        },
    ),
    "genkit": Story(
        (r"user:  yes\n  the process is killed while it books\n$",),
        (
            r"Found a conversation of 4 messages\n  agent: May I book the flight\?",
            r"agent: Done: the flight is booked\.",
            r"agent: Done: the train is booked\.",
        ),
        {
            "may-in-lisbon": (
                r"user 0\n  A short trip in May\?",
                r'assistant 3\n  ▸ book\("train"\)\n  │ the train is booked',
                "!flight",
            )
        },
    ),
    "agent_framework": Story(
        ("killed before it has the answer",),
        ("the last question has no answer yet", "(?s)assistant:.*assistant:"),
        {
            "plan-for-lisbon": (r"(?s)How do I get there\?.*Fly to Lisbon", "!night train"),
            "plan-without-a-plane": ("night train",),
        },
    ),
    "langchain": Story(
        ("killed before it has the answer",),
        ("Found 2 messages", "(?s)assistant:.*assistant:"),
        {
            "chain-for-lisbon": (r"(?s)How do I get there\?.*Fly to Lisbon", "!night train"),
            "chain-without-a-plane": ("!Fly", "night train"),
        },
    ),
    "llama_index": Story(
        ("killed before it has the answer",),
        ("Found 3 messages", "(?s)assistant:.*assistant:"),
        {
            "chat-about-lisbon": (r"(?s)How do I get there\?.*Fly to Lisbon", "!night train"),
            "chat-without-a-plane": ("!Fly", "night train"),
        },
    ),
    "ag2": Story(
        (r"booking a flight \.\.\. and the process is killed\n$",),
        (
            "Found a call without a result",
            r"(?s)booking a flight\n.*agent: Done: flight\..*agent: Done: train\.",
        ),
        {
            str(UUID(int=1)): (r"(?s)book\(.*interrupted.*book\(.*is booked.*flight", "!train"),
            str(UUID(int=2)): (r"How to Lisbon\?", "the train is booked", "!flight"),
        },
    ),
}


@pytest.fixture(autouse=True)
def without_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in quiet().items():
        monkeypatch.setenv(name, value)


def check(text: str, patterns: tuple[str, ...]) -> None:
    for pattern in patterns:
        wanted = pattern.removeprefix("!")
        assert bool(re.search(wanted, text)) == (wanted == pattern), (pattern, text)


def check_example(name: str, url: str) -> None:
    story = STORIES[name]
    runs = run_twice(FRAMEWORKS[name].example, url, python_with(name))
    check(runs.killed, story.killed)
    check(runs.resumed, story.resumed)
    for reference, patterns in story.chats.items():
        check(shown(url, reference.format(fork=runs.resumed.split()[-1])), patterns)


# Each process imports its framework, which takes seconds: one of them is enough in `make test`.
def test_an_example(url: str) -> None:
    check_example("openai", url)


@pytest.mark.slow
@pytest.mark.timeout(INSTALL_S_MAX + 2 * len(STORIES) * RUN_S_MAX)
@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgres", marks=TORTURE)])
def test_all_examples_after_each_other_on_one_store(engine: str, places: Places) -> None:
    url = places.url(engine)
    for name in STORIES:
        check_example(name, url)
    for name in ("langgraph_approval", "graph_runner", "workers"):
        run_once(name, url)


@pytest.mark.slow
@pytest.mark.parametrize("name", STORIES)
def test_the_guide(name: str, tmp_path: Path) -> None:
    check_page(name, tmp_path, python_with(name))
