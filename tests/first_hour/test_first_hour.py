"""The first hour of a newcomer: the pages are true, and each mistake gets a message that helps."""

import pytest

from tests.first_hour.play import Hour, Played, play
from tests.servers.postgres import Postgres

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Hour:
    with postgres.database() as url:
        return play(tmp_path_factory.mktemp("first-hour"), url)


@pytest.fixture(scope="module")
def played(hour: Hour) -> list[Played]:
    return [each for chapter in hour.mistakes.values() for each in chapter]


def test_the_pages_are_true(hour: Hour) -> None:
    pages = {name.partition(":")[0] for name in hour.pages}
    assert len(pages) == 6  # else a snippet failed, and nothing else ran


def test_every_mistake_is_refused(played: list[Played]) -> None:
    assert len(played) >= 40
    assert [each.mistake.title for each in played if each.code == 0] == []


def test_every_error_is_ours(played: list[Played]) -> None:
    scripts = [each for each in played if not each.mistake.is_command]
    foreign = {each.mistake.title: each.foreign_frames() for each in scripts}
    assert {title: files for title, files in foreign.items() if files} == {}
    assert [each.mistake.title for each in scripts if "During handling" in each.output] == []
    assert [
        line for each in scripts if not (line := message(each)).startswith("limpet.errors.")
    ] == []


def test_every_message_says_what_to_do_next(played: list[Played]) -> None:
    silent = {
        message(each): words
        for each in played
        if (words := [word for word in each.mistake.says if word not in message(each)])
    }
    assert silent == {}


def message(played: Played) -> str:
    """Return what was said, without the lines of code in a traceback."""
    if played.mistake.is_command:
        return played.output
    return played.output.rpartition("\n    ")[2].partition("\n")[2]
