"""The first hour of a newcomer: each mistake gets a message of ours that says what to do next."""

import pytest

from tests.first_hour.play import WRITTEN, Played, play, transcript


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Played]]:
    found = play(tmp_path_factory.mktemp("first-hour"))
    WRITTEN.write_text(transcript(found))
    return found


@pytest.mark.slow
def test_every_mistake_is_refused(played: list[tuple[str, Played]]) -> None:
    assert [each.mistake.title for _, each in played if each.code == 0] == []


@pytest.mark.slow
def test_every_message_is_ours(played: list[tuple[str, Played]]) -> None:
    foreign = {each.mistake.title: each.foreign_frames() for _, each in played}
    assert {title: files for title, files in foreign.items() if files} == {}
    chained = [each.mistake.title for _, each in played if "During handling" in each.output]
    assert chained == []
    scripts = [each for _, each in played if not each.mistake.is_command]
    raised = {each.mistake.title: each.output.splitlines()[-1] for each in scripts}
    strange = {
        title: line
        for title, line in raised.items()
        if not line.startswith(("limpet.", "ModuleNotFoundError: "))
    }
    assert strange == {}


@pytest.mark.slow
def test_every_message_says_what_to_do_next(played: list[tuple[str, Played]]) -> None:
    silent = {
        each.mistake.title: (words, each.output.splitlines()[-1:])
        for _, each in played
        if (words := [word for word in each.mistake.says if word not in message(each)])
    }
    assert silent == {}


def message(played: Played) -> str:
    """Return what was said, without the lines of the script that a traceback repeats."""
    if played.mistake.is_command:
        return played.output
    return played.output.rpartition("\n    ")[2].partition("\n")[2] or played.output
