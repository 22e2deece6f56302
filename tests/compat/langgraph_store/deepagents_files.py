"""Files of deepagents in a store of items: a test that needs the package `deepagents`.

The package brings clients of model vendors, so that it is not among the development dependencies;
run it by name where it is installed: `pytest tests/compat/langgraph_store/deepagents_files.py`.
"""

from typing import Any

from deepagents.backends import StoreBackend  # type: ignore[import-not-found, unused-ignore]

import limpet
from limpet.compat.langgraph import LimpetStore


def files_in(store: limpet.Store) -> Any:
    return StoreBackend(store=LimpetStore(store), namespace=lambda runtime: ("ann", "filesystem"))


def test_files_persist(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/agents.db"
    with limpet.open(url) as store:
        files = files_in(store)
        for number in range(120):
            assert files.write(f"/notes/{number}.md", f"line one\nnumber {number}").error is None
        assert files.edit("/notes/7.md", "number 7", "edited").error is None
    with limpet.open(url) as store:
        files = files_in(store)
        found = files.read("/notes/7.md")
        assert "edited" in str(found)
        listed = files.ls("/notes/")
        assert len(listed.entries) == 120
        assert len(files.grep("edited", "/").matches) == 1
        assert len(files.glob("**/1*.md", "/").matches) == 31
        assert list(store.sessions()) == ["ann/filesystem"]
