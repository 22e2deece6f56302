"""An engine reads the files of the package when it is imported, and never again.

A process may give up its rights after it has imported what it needs, or its package may be replaced
by another version under its feet.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

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


def check_files_read(url: str, module: str) -> None:
    """Use everything of an engine after its import; see that no file of the package is read."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT).format(module=module), url],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_sqlite_reads_no_file_of_the_package_after_its_import(tmp_path: Path) -> None:
    check_files_read(f"sqlite:///{tmp_path}/store.db", "sqlite.storage")


def test_a_directory_reads_no_file_of_the_package_after_its_import(tmp_path: Path) -> None:
    modules = "objects.storage, limpet.engine, limpet.backends.buckets.directory.bucket"
    check_files_read(f"file://{tmp_path}/store", modules)
