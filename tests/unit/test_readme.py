"""The README is true: its snippets run, it installs what it says, and an index can show it."""

import email
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import hatch_build
from tests import snippets
from tests.frameworks.catalogue import FRAMEWORKS

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
TEXT = README.read_text("utf-8")
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
LINES_MAX = 150  # a screen and a half, without the snippets


def test_the_snippets_run_in_order_in_one_folder(tmp_path: Path) -> None:
    """And a second time there: what they leave behind does not spoil them."""
    for _ in range(2):
        snippets.run(README, tmp_path)
    assert [path.name for path in tmp_path.glob("*.db")] == ["limpet.db"]


def test_python_and_commands_use_the_same_file() -> None:
    """The commands name no store, and find the one of the snippets."""
    urls = set(re.findall(r"\w+:///[\w.]+\.db", TEXT))
    assert urls == {"sqlite:///limpet.db"}
    assert "--url" not in TEXT


def test_the_extras_that_it_names_exist() -> None:
    extras = PROJECT["optional-dependencies"]
    named = set(re.findall(r"(?:limpet|\.)\[([\w-]+)\]", TEXT))
    paragraph = TEXT.partition("\nExtras:")[2].partition("\n\n")[0]
    listed = set(re.findall(r"`([\w-]+)`", paragraph))
    assert named | listed - {PROJECT["name"]} == extras.keys()
    assert f"limpet-{PROJECT['version']}-py3-none-any.whl" in TEXT


def test_all_is_what_a_user_runs_without_frameworks_and_tests() -> None:
    extras = PROJECT["optional-dependencies"]
    apart = {"all", "langgraph", "testing", *(each.extra for each in FRAMEWORKS.values())}
    assert extras["all"] == [f"limpet[{','.join(sorted(extras.keys() - apart))}]"]


def test_it_is_short_and_has_contents() -> None:
    assert len(TEXT.splitlines()) <= LINES_MAX
    contents = re.findall(r"\]\(#([\w-]+)\)", TEXT)
    headings = re.findall(r"^## (.+)$", TEXT, re.M)
    assert contents == [each.lower().replace(" ", "-") for each in headings]
    assert TEXT.count("\n![") == 3  # the terminal, the inspector, and a plot


def test_a_fresh_clone_has_two_commands_that_set_up_everything() -> None:
    """They are in the first section, are targets of the Makefile, and do what is said of them."""
    first = TEXT.partition("\n## ")[2].partition("\n## ")[0]
    said = dict(re.findall(r"^make (\w+) +# (.+)$", first, re.M))
    assert list(said) == ["demo", "test"]
    assert "being killed and resumed" in said["demo"]
    assert "everything passes" in said["test"]
    rules = dict(re.findall(r"^([a-z]+: .+?)\s+##.*\n((?:\t.+\n)+)", MAKEFILE, re.M))
    assert rules["demo: $(READY)"] == "\t@$(BIN)/limpet demo\n"  # and READY makes .venv
    assert rules["test: $(READY)"].endswith(" lint fast\n")


# On the page of a package index.


def test_no_link_or_picture_is_dead_on_an_index() -> None:
    """With the address of the repository all lead there; without one there are none."""
    for repository in ("", "https://example.org/limpet"):
        page = hatch_build.page_of(TEXT, repository)
        targets = re.findall(r"\]\(([^)\s]+)\)", page)
        local = [target for target in targets if not re.match(r"https://|#", target)]
        assert local == []
        assert page.count("![") == (3 if repository else 0)
        assert page.count("](https://example.org/limpet/") == (
            len(re.findall(r"\]\((?!https:|#)", TEXT)) if repository else 0
        )
        assert all(url.startswith("https://") for url in hatch_build.urls_of(repository).values())


def test_the_wheel_has_that_page_and_the_project_urls(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        (name,) = [each for each in opened.namelist() if each.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(opened.read(name))
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "](docs/" not in str(metadata.get_payload())
    assert metadata.get_all("Project-URL")
    assert "langgraph>=1.0.10; extra == 'langgraph'" in metadata.get_all("Requires-Dist", [])
