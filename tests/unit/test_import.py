"""The base install is light: importing it pulls in three libraries and nothing else."""

import json
import subprocess
import sys

from tests.cases import for_each

LIBRARIES = {"limpet", "orjson", "xxhash", "zstandard"}

SCRIPT = """
import json, sys
before = set(sys.modules)
import {module}
print(json.dumps(sorted({{name.partition(".")[0] for name in set(sys.modules) - before}})))
"""


def pulled_in(module: str) -> set[str]:
    """Return the top-level names that importing a module adds in a fresh interpreter."""
    script = SCRIPT.format(module=module)
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    return set(json.loads(done.stdout))


@for_each("module", ["limpet", "limpet.backends.memory", "limpet.backends.sqlite.storage"])
def test_importing_pulls_in_three_libraries_only(module: str) -> None:
    added = pulled_in(module)
    assert added - sys.stdlib_module_names == LIBRARIES
    assert not added & {"pytest", "hypothesis", "_pytest"}


def test_importing_opens_no_engine() -> None:
    """An engine that is not used costs nothing, not even the import of its driver."""
    assert "sqlite3" not in pulled_in("limpet")
