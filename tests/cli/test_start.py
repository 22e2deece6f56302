"""How long the command takes before it does something."""

import subprocess
import sys
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import limpet
from docs._make.cli import verbs
from limpet.cli._app import GROUPS
from tests.cli.conftest import EXECUTABLE

CPU_S_MAX = 0.2
HELP_BY_LS_MAX = 1.3
RUNS = 7

MODULES = """
import sys
from limpet.cli import main
sys.argv = ["limpet", "--help"]
main()
print(*sorted(sys.modules), file=sys.stderr)
"""


def cpu_s(*arguments: str) -> float:
    """Return the least CPU time of several runs: the others were disturbed."""
    taken = []
    for _ in range(RUNS):
        before = getrusage(RUSAGE_CHILDREN)
        subprocess.run([EXECUTABLE, *arguments], capture_output=True, check=True)
        after = getrusage(RUSAGE_CHILDREN)
        taken.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return min(taken)


def test_the_help_and_an_empty_list_are_quick(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    limpet.open(url).close()
    helped, listed = cpu_s("--help"), cpu_s("ls", "--url", url)
    assert helped <= HELP_BY_LS_MAX * listed
    assert max(helped, listed) < CPU_S_MAX


def test_the_help_imports_no_verb() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MODULES], capture_output=True, text=True, check=True
    )
    found = {name for name in done.stderr.split() if name.startswith("limpet.cli.")}
    assert found == {"limpet.cli._app", "limpet.cli._exits"}
    assert "rich.console" not in done.stderr.split()


def test_the_help_has_the_summary_of_each_verb() -> None:
    told = {verb: text for group in GROUPS.values() for verb, text in group.items()}
    assert told == {
        path: command.get_short_help_str(100) for path, command in verbs() if " " not in path
    }
