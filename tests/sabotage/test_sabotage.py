"""Each planted defect makes tests fail, so the tests notice what they claim to notice."""

import importlib
import shlex
from pathlib import Path

import pytest

from tests.effort import TORTURE
from tests.sabotage.defect import Defect
from tests.sabotage.planting import ROOT, failures, plant

LISTS = ("conformance", "engines")
DEFECTS: list[Defect] = [
    defect
    for name in LISTS
    if Path(__file__).with_name(f"{name}.py").exists()
    for defect in importlib.import_module(f"tests.sabotage.{name}").DEFECTS
]


def test_each_defect_can_be_planted() -> None:
    """Where this fails, the code has moved on: plant the same mistake in the new code."""
    for defect in DEFECTS:
        text = (ROOT / "src" / "limpet" / defect.file).read_text(encoding="utf-8")
        assert text.count(defect.old) == 1, f"not once in {defect.file}. defect=`{defect.name}`"
        assert defect.tests, f"no tests. defect=`{defect.name}`"
    names = [defect.name for defect in DEFECTS]
    assert len(set(names)) == len(names)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "defect",
    # Every second; the others in `make torture`.
    [
        pytest.param(defect, marks=TORTURE if at % 2 else (), id=defect.name)
        for at, defect in enumerate(DEFECTS)
    ],
)
def test_a_defect_is_noticed(defect: Defect, tmp_path: Path) -> None:
    copy = plant(defect, tmp_path)
    for selection in defect.tests:
        files = {each for each in shlex.split(selection) if each.endswith(".py")}
        unseen = files - failures(selection, copy)
        assert not unseen, f"not noticed by {unseen}. {selection=} defect=`{defect.name}`"
