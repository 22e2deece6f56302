"""Runs tests against a copy of `src` in which a defect is planted."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import limpet
from tests.sabotage.defect import Defect

ROOT = Path(__file__).resolve().parents[2]
COPY = "LIMPET_SABOTAGED"
RUN_S_MAX = 300


def pytest_configure() -> None:
    """As a plugin of the run: prove that it is the copy that is tested."""
    found = Path(limpet.__file__)
    assert found.is_relative_to(os.environ[COPY]), f"not the copy is tested. found=`{found}`"


def plant(defect: Defect, folder: Path, *, root: Path = ROOT) -> Path:
    """Return a copy of `src` with the defect."""
    copy = folder / "src"
    shutil.copytree(root / "src", copy)  # with the bytecode, which saves seconds
    file = copy / "limpet" / defect.file
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
        compiled.unlink()
    file.write_text(
        file.read_text(encoding="utf-8").replace(defect.old, defect.new), encoding="utf-8"
    )
    return copy


def failures(selection: str, copy: Path, *, root: Path = ROOT) -> set[str]:
    """Return the files in which a test failed; AssertionError if the run itself went wrong."""
    report = copy.parent / "report.xml"
    report.unlink(missing_ok=True)
    # PYTHONPATH comes before the path of the editable install, in this process and in all
    # that the tests start.
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(copy), str(root), str(ROOT)]),
        COPY: str(copy),
    }
    plugin = "tests.sabotage.planting"
    command = [sys.executable, "-m", "pytest", "-q", "-p", plugin, "-m", "not slow"]
    command += ["-x"] if selection.count(".py") == 1 else []
    run = subprocess.run(
        [*command, f"--junit-xml={report}", *shlex.split(selection)],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
    )
    assert run.returncode in (0, 1), (
        f"the tests did not run. {selection=}\n{run.stdout}{run.stderr}"
    )
    cases = ElementTree.parse(report).iter("testcase")
    failed = [case for case in cases if case.find("failure") is not None]
    return {f"{_module(case.get('classname', '')).replace('.', '/')}.py" for case in failed}


def _module(name: str) -> str:
    """Return the module of a class, or the module itself."""
    return ".".join(part for part in name.split(".") if not part.startswith("Test"))
