"""Links inside a directory store never lead out of it, also if they appear in mid-save."""

import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

import limpet
from limpet import LimpetError, Store

SECRET = b"the owner's own file"


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(each.relative_to(folder)): each.read_bytes()
        for each in sorted(folder.rglob("*"))
        if each.is_file() and not each.is_symlink()
    }


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder outside the root, with files named as those of a store."""
    with limpet.open(f"file://{tmp_path / 'other'}") as store:
        store.scope("victim").save({"secret": 1})
        store.scope("victim").set_note("n", 1)
    (tmp_path / "other" / "own").write_bytes(SECRET)
    return tmp_path / "other"


def use(store: Store) -> None:
    """Call what reads, writes, lists and deletes."""
    scope = store.scope("victim")
    for act in (
        lambda: scope.save({"n": 1}),
        lambda: scope.append("items", [1]),
        lambda: scope.set_note("n", 2),
        lambda: scope.load(),
        lambda: list(scope.history()),
        lambda: list(scope.notes()),
        lambda: list(store.sessions()),
        lambda: list(store.check()),
        lambda: scope.delete(),
        lambda: store.delete_session("victim"),
        lambda: store.compact(),
    ):
        with suppress(LimpetError):
            act()


def test_links_to_another_store_are_not_followed(tmp_path: Path, outside: Path) -> None:
    """Each folder and each file of a session in turn is a link to that of another store."""
    before = contents(outside)
    names = [each.relative_to(outside) for each in sorted(outside.rglob("*"))]
    for number, name in enumerate(names):
        root = tmp_path / f"root{number}"
        (root / name).parent.mkdir(parents=True)
        (root / name).symlink_to(outside / name)
        with limpet.open(f"file://{root}?sync=false&lock_wait_s=1") as store:
            with suppress(LimpetError):
                found = store.scope("victim").load()
                assert found is None or found.state != {"secret": 1}
            use(store)
        assert contents(outside) == before, name


@pytest.mark.parametrize("rounds", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_a_folder_that_becomes_a_link_in_mid_save(
    tmp_path: Path, outside: Path, rounds: int
) -> None:
    """One thread swaps the session's folder for a link, again and again, while others work."""
    before = contents(outside)
    root = tmp_path / "root"
    url = f"file://{root}?sync=false&lock_wait_s=1"
    with limpet.open(url) as store:
        store.scope("victim").save({"n": 0})
        folder = min(root.rglob("victim*"), key=lambda each: len(each.parts))
        target = outside / folder.relative_to(root)
        assert target.is_dir()
        kept, done = tmp_path / "kept", threading.Event()

        def swap() -> None:
            while not done.is_set():
                with suppress(OSError):
                    os.rename(folder, kept)
                    folder.symlink_to(target)
                with suppress(OSError):
                    folder.unlink()
                    os.rename(kept, folder)

        swapper = threading.Thread(target=swap)
        swapper.start()
        try:
            for _ in range(rounds):
                use(store)
        finally:
            done.set()
            swapper.join()
    assert contents(outside) == before
