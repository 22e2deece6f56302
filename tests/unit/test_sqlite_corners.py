"""Corners of the SQLite engine that a review found."""

import os
from pathlib import Path

import pytest

import limpet
from limpet import InvalidInput, Unavailable
from tests.cases import for_each


def test_a_file_that_was_removed_is_not_created_again(tmp_path: Path) -> None:
    """A store whose file somebody removes fails; it does not go on in an empty one."""
    path = tmp_path / "x.db"
    with limpet.open(f"sqlite:///{path}") as store:
        store.scope("s").save(1)
        store.driver.opened.backend.storage._file._close_idle()  # type: ignore[attr-defined]
        path.unlink()
        with pytest.raises(Unavailable):
            store.scope("s").save(2)
    assert not path.exists()


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.db")
    with pytest.raises(InvalidInput):
        limpet.open(f"sqlite:///{tmp_path}/x.db")


@for_each("wait", [1e12, True, -1])
def test_a_wait_is_bounded(tmp_path: Path, wait: float) -> None:
    with pytest.raises(InvalidInput):
        limpet.open(f"sqlite:///{tmp_path}/x.db", lock_wait_s=wait)


@for_each("labels", [[], 0, "", ()])
def test_labels_that_look_empty_are_not_labels(labels: object) -> None:
    with limpet.open("memory:") as store, pytest.raises(InvalidInput):
        store.scope("s").save(1, labels=labels)  # type: ignore[arg-type]
