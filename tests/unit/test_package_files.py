"""An engine reads the files of the package when it is imported, and never again.

A process may give up its rights after it has imported what it needs, or its package may be replaced
by another version under its feet.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.servers.postgres import Schemas

SCRIPT = """
    import sys
    from pathlib import Path
    import limpet, limpet.backends.{module}

    package = str(Path(limpet.__file__).parent)
    read = []

    def watch(event, args):
        if event in ("open", "os.listdir", "os.scandir") and str(args[0]).startswith(package):
            read.append(args[0])

    with limpet.open("memory:") as store:  # the API is imported by now
        store.scope("s").save(1)
    sys.addaudithook(watch)
    with limpet.open(sys.argv[1]) as store:
        scope = store.scope("s")
        saved = scope.save({{"m": [1]}})
        scope.append("m", [2])
        scope.update(saved.id, lambda s: s.with_(status="done"))
        scope.set_note("n", 1)
        scope.fork(saved.id)
        scope.prune(keep_last=1)
        with scope.claim(owner="o"):
            next(scope.watch())
        assert scope.load().state == {{"m": [1, 2]}}
        list(store.scopes()), store.stats(), store.compact()
        list(store.check()), list(store.repair())
        store.delete_session("s")
    assert read == [], read
"""


@pytest.mark.parametrize(
    ("engine", "module"),
    [
        ("sqlite", "sqlite.backend"),
        ("postgres", "postgres.backend"),
        ("directory", "objects.backend, limpet.backends.buckets.directory.bucket"),
    ],
)
def test_no_file_of_the_package_is_read_after_the_import(
    engine: str, module: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    urls = {"sqlite": f"sqlite:///{tmp_path}/store.db", "directory": f"file://{tmp_path}/store"}
    if engine == "postgres":
        schemas: Schemas = request.getfixturevalue("schemas")
        urls["postgres"] = schemas.url()
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT).format(module=module), urls[engine]],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
