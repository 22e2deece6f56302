"""The example is killed, and finishes; the guide is true."""

from pathlib import Path

import pytest

from tests.effort import slowly
from tests.frameworks.kit import SHARED, Places, check_page, run_twice, shown


@pytest.mark.parametrize("engine", slowly(SHARED, but=("sqlite",)))
def test_a_turn_that_was_cut_off_is_finished(engine: str, places: Places) -> None:
    url = places.url(engine)
    killed, resumed = run_twice("google_adk", url)
    assert "booking a hotel in Alfama ... and the process is killed" in killed
    assert "guide: Done" not in killed
    assert "5 events were saved" in resumed
    assert "guide: Done: a hotel in Alfama." in resumed
    assert "lisbon-by-train: Two days in Lisbon?" in resumed

    chat = shown(url, "trips/alice/lisbon")
    assert "book_hotel" in chat
    assert "Done: a hotel in Alfama." in chat
    fork = shown(url, "trips/alice/lisbon-by-train")
    assert "By train instead? Good idea!" in fork
    assert "hotel" not in fork


@pytest.mark.slow
def test_the_guide(tmp_path: Path) -> None:
    check_page("adk", tmp_path)
