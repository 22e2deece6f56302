"""From the folder of a Go store into a store, and back."""

import os
from pathlib import Path

import pytest

import limpet
from limpet import NotFound, Store
from limpet.compat.runs import Checkpoint, GoRunStore, RunStore, export_runs, import_runs
from tests.compat.runs.hands import SESSIONS
from tests.runs.hands import Place

DAMAGED = ["array", "badtime", "empty", "null", "truncated"]


def names_of(store: Store) -> list[str]:
    return sorted(each.run_id for each in RunStore(store).list())


def test_there_and_back_again(place: Place, tmp_path: Path) -> None:
    """What can be read comes through exactly; the rest is told. Both may be repeated."""
    source = GoRunStore(SESSIONS)
    whole = {each.run_id: source.load(each.run_id) for each in source.list()}
    with place.open() as store:
        for counts in ((8, 0), (0, 8)):
            done = import_runs(store, SESSIONS)
            assert (done.count, done.unchanged) == counts
            assert [each.scope.session_id for each in done.skipped if each.scope] == DAMAGED
            assert {run_id: RunStore(store).load(run_id) for run_id in whole} == whole
        for face in (store, store.aio):
            done = export_runs(face, tmp_path / "out" / "deep")
            assert (done.count, done.skipped) == (8, ())
    target = GoRunStore(tmp_path / "out" / "deep")
    assert {each.run_id: target.load(each.run_id) for each in target.list()} == whole
    assert [*target.check()] == []


def test_a_folder_that_is_missing_is_not_made(tmp_path: Path) -> None:
    with limpet.open("memory:") as store, pytest.raises(NotFound):
        import_runs(store, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_what_fits_only_one_side_is_reported(tmp_path: Path) -> None:
    source = GoRunStore(tmp_path / "in")
    source.save(Checkpoint("long", task_name="x" * 300))
    source.save(Checkpoint("short"))
    with limpet.open("memory:") as store:
        done = import_runs(store, tmp_path / "in")
        assert (done.count, [each.code for each in done.skipped]) == (1, ["run_skipped"])
        assert "256 characters" in done.skipped[0].message
        RunStore(store).save(Checkpoint("alice/run-1"))
        store.scope("lonely", "main", "run").set_note("n", 1)
        done = export_runs(store, tmp_path / "out")
    assert done.count == 1
    assert [each.scope and each.scope.session_id for each in done.skipped] == ["alice/run-1"]


def test_a_store_may_be_named_by_its_url(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    assert import_runs(url, SESSIONS).count == 8
    assert export_runs(url, tmp_path / "out").count == 8
    with limpet.open(url) as store:
        assert len(names_of(store)) == 8


def test_links_are_not_followed_and_files_are_bounded(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    GoRunStore(folder).save(Checkpoint("good"))
    GoRunStore(tmp_path / "secret").save(Checkpoint("other", messages=["secret"]))
    (folder / "link.json").symlink_to(tmp_path / "secret" / "other.json")
    (folder / "sparse.json").touch()
    os.truncate(folder / "sparse.json", 20 * 1024**3)
    runs = GoRunStore(folder)
    with limpet.open("memory:") as store:
        done = import_runs(store, folder)
        assert names_of(store) == ["good"]
    assert (done.count, [each.code for each in done.skipped]) == (
        1,
        ["link_skipped", "run_skipped"],
    )
    assert "too large" in done.skipped[1].message
    with pytest.raises(NotFound):
        runs.load("link")
    assert (runs.has_checkpoint("link"), len(runs.list())) == (False, 1)
    assert [each.code for each in runs.check()] == ["link_skipped", "checkpoint_damaged"]
    runs.save(Checkpoint("link"))  # replaces the link, not what it leads to
    assert GoRunStore(tmp_path / "secret").load("other").messages == ["secret"]
