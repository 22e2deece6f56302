"""What the command imports before it does something."""

import subprocess
import sys

from docs._make.cli import verbs
from limpet.cli._app import GROUPS

MODULES = """
import sys
from limpet.cli import main
sys.argv = ["limpet", "--help"]
main()
print(*sorted(sys.modules), file=sys.stderr)
"""


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
