"""The examples run, end by themselves, and show what they say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from limpet import runs
from tests.frameworks.catalogue import FRAMEWORKS
from tests.runs.conftest import place_of
from tests.waiting import WAIT_S_MAX

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_every_example_is_described_and_tested() -> None:
    text = (EXAMPLES / "README.md").read_text("utf-8")
    names = {path.name for path in EXAMPLES.glob("*.py")}
    ours = {"graph_runner.py", "langgraph_approval.py", "one_store.py", "workers.py"}
    assert names == ours | {f"{each.example}.py" for each in FRAMEWORKS.values()}
    assert all(f"[{name}]({name})" in text for name in names)


@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def test_a_killed_worker(engine: str, request: pytest.FixtureRequest) -> None:
    place = place_of(engine, request)
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / "workers.py", place.url],
        capture_output=True,
        text=True,
        timeout=WAIT_S_MAX,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")

    report = "example/report-of-ben"
    killed, rest = done.stdout.split("ben: is killed in the middle of a page\n")
    begun_pages = [int(page) for page in re.findall(rf"ben: page (\d) of {report}\n", killed)]
    (adopted,) = re.findall(rf"(\w+): adopts {report}, saved by ben: (\d) pages\n", rest)
    heir, saved = adopted[0], int(adopted[1])
    assert heir in ("ann", "cleo")
    # The page under way is written again, unless it was saved just before the kill; no other is.
    assert begun_pages == list(range(1, begun_pages[-1] + 1))
    assert saved in (begun_pages[-1] - 1, begun_pages[-1])
    again = [int(page) for page in re.findall(rf"{heir}: page (\d) of {report}\n", rest)]
    assert again == list(range(saved + 1, 7))
    by = " ".join(["ben"] * saved + [heir] * (6 - saved))
    assert f"{report}: completed, by {by}\n" in rest

    with place.open() as store:
        found = {each.run_id: each for each in runs.list(store)}
        assert {each.status for each in found.values()} == {"completed"}
        assert len(found) == 3
        assert (found[report].attempt, found[report].steps) == (2, 6)
        assert [*store.check()] == []
