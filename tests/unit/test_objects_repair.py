"""What a repair brings back and what it leaves; the grace time; compact; a store in use."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from limpet import Store
from limpet.backends.objects.backend import ObjectBackend
from limpet.cli._app import run
from limpet.model import Finding
from limpet.opening import open_backend, store_over
from tests.unit.damaged import codes, inspect
from tests.unit.test_objects_check import (
    CASES,
    COPY,
    FOLDER,
    HEAD,
    HEAD_COPY,
    HISTORY,
    INDEX,
    LABELS,
    age,
    earlier_life,
    engine,
    files,
    fill,
    flip,
    write,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def backend(root: Path) -> ObjectBackend:
    return engine(root)


@pytest.fixture
def store(backend: ObjectBackend) -> Iterator[Store]:
    store = store_over(backend)
    fill(store)
    yield store
    store.close()


# What a repair brings back, and what it leaves


def labelled(store: Store) -> list[str]:
    return sorted(info.id for info in store.history(labels=LABELS))


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("no pointer")])
def test_what_was_not_found_is_found_again(
    backend: ObjectBackend, store: Store, root: Path, name: str
) -> None:
    CASES[name].damage(store.scope("s"), root)
    inspect(backend, repair=True)
    assert [info.id for info in store.scope("s").history()] == ["c", "b", "a"]
    assert labelled(store) == ["a", "b", "c", "o"]
    found = store.find("a")
    assert found is not None
    assert found.scope == store.scope("s").key


def test_a_copy_of_an_earlier_life_goes_and_stays_away(
    backend: ObjectBackend, store: Store, root: Path
) -> None:
    scope = store.scope("s")
    earlier_life(scope, root)
    age(root)
    assert scope.load("a") is None
    assert "line_over" in codes(inspect(backend, repair=True))
    assert list(scope.ids()) == ["z"]
    assert (root / COPY).stat().st_size <= 120
    scope.save({"id": "new"}, id="a")
    assert [info.id for info in scope.history()] == ["a", "z"]
    assert inspect(backend) == []


def test_a_lost_head_is_brought_back_by_hand(
    backend: ObjectBackend, store: Store, root: Path
) -> None:
    """As docs/check.md says: the newest copy, put in its place, is a head."""
    (root / HEAD).unlink()
    assert store.scope("s").load() is None
    write(root, HEAD, (root / HEAD_COPY).read_bytes())
    with store_over(engine(root)) as other:
        scope = other.scope("s")
        found = scope.load()
        assert found is not None
        assert found.state == {"id": "c"}
        scope.save({"id": "d"}, id="d")
        assert [info.id for info in scope.history()] == ["d", "c", "b", "a"]
    assert inspect(backend) == []


def test_under_a_damaged_head_nothing_is_judged(
    backend: ObjectBackend, store: Store, root: Path
) -> None:
    """It is unknown which life of the scope it is, so nothing is dangling and no line is over."""
    earlier_life(store.scope("s"), root)
    flip(root, HEAD, 200)
    age(root)
    before = files(root)
    assert "head_damaged" in codes(inspect(backend, repair=True))
    after = files(root)
    assert {name: after[name] for name in before} == before


def test_a_damaged_copy_is_removed_by_its_id(
    backend: ObjectBackend, store: Store, root: Path
) -> None:
    flip(root, COPY, -3)
    assert store.scope("s").delete_snapshot("a") == 1
    age(root)
    inspect(backend, repair=True)
    assert inspect(backend) == []


def foreign(id: str) -> bytes:
    return b'{"scope":"agent","schemaVersion":"1.0","data":{"id":"%s"}}' % id.encode()


@pytest.mark.parametrize("beneath", ["ours", "theirs", "none"])
@pytest.mark.parametrize("root_name", ["sessions/", "", "session/"])
def test_documents_of_other_tools_are_no_damage(
    tmp_path: Path, root_name: str, beneath: str
) -> None:
    """They get the pointers that they lack, where there is an index. Nothing else is touched."""
    backend = engine(tmp_path, root_name=root_name)
    store = store_over(backend)
    folder = f"{root_name}s/scopes/agent/main/snapshots"
    if beneath == "ours":
        store.scope("s").save({"id": "a"}, id="a")
    elif beneath == "theirs":
        write(tmp_path, f"{folder}/snapshot_latest.json", foreign("latest"))
    write(tmp_path, f"{folder}/immutable_history/snapshot_theirs.json", foreign("theirs"))
    write(tmp_path, f"{folder}/manifest.json", b'{"schemaVersion": "1.0"}')
    age(tmp_path)
    before = files(tmp_path)
    indexed = root_name == "sessions/"
    assert codes(inspect(backend, repair=True)) == (["pointer_missing"] if indexed else [])
    after = files(tmp_path)
    assert {name: after[name] for name in before} == before
    assert all(name.startswith(INDEX) for name in after.keys() - before.keys())
    assert inspect(backend) == []
    assert store.scope("s").load("theirs") is not None
    store.close()


# The grace time


GRACE = ["a copy of an earlier life", "a label that was dropped", "pointers to what is gone"]


@pytest.mark.parametrize("name", [*GRACE, "a temporary file", "no head"])
def test_what_may_be_under_way_is_left_alone(
    backend: ObjectBackend, store: Store, root: Path, name: str
) -> None:
    CASES[name].damage(store.scope("s"), root)
    before = files(root)
    assert not any(each.repaired for each in inspect(backend, repair=True))
    assert files(root) == before


@pytest.mark.parametrize("name", GRACE)
def test_the_grace_time_is_a_day(
    backend: ObjectBackend, store: Store, root: Path, name: str
) -> None:
    CASES[name].damage(store.scope("s"), root)
    age(root, 86_400 - 600)
    assert inspect(backend, repair=True) == []
    age(root, 86_400 + 600)
    assert CASES[name].found in codes(inspect(backend, repair=True))
    assert inspect(backend) == []


@pytest.mark.parametrize("name", ["the copy of the head", "no pointer by label"])
def test_what_anybody_may_do_at_any_time_is_done_at_once(
    backend: ObjectBackend, store: Store, root: Path, name: str
) -> None:
    CASES[name].damage(store.scope("s"), root)
    assert [each.repaired for each in inspect(backend, repair=True)] == [True]
    assert inspect(backend) == []


# Space


GRAVE = b'{"limpet":"deleted","line":null,"seq":"0","born":""}'


def graves(root: Path) -> dict[str, bytes]:
    return {name: data for name, data in files(root).items() if b'"limpet":"deleted"' in data}


def test_compact_removes_old_tombstones_and_nothing_else(
    backend: ObjectBackend, store: Store, root: Path
) -> None:
    scope = store.scope("s")
    scope.save({"tiny": 1}, id="tiny")
    scope.delete_snapshot("a")
    scope.delete_snapshot("tiny")
    write(root, f"{HISTORY}/snapshot_small.json", b'{"data":1}')  # another tool's, as small
    write(root, f"{HISTORY}/snapshot_empty.json", b"")
    write(root, f"{FOLDER}/notes/deleted", b'{"limpet":"deleted","line":null,"seq":"0","born":""}')
    before, gone = files(root), graves(root)
    assert backend.compact() == 0
    assert files(root) == before

    age(root)
    del gone[f"{FOLDER}/notes/deleted"]
    assert len(gone) == 2
    assert backend.compact() == sum(map(len, gone.values()))
    assert files(root) == {name: data for name, data in before.items() if name not in gone}
    assert backend.compact() == 0


def test_what_was_deleted_stays_deleted(backend: ObjectBackend, store: Store, root: Path) -> None:
    """Also for a writer that remembers its own head, and for one that is new."""
    scope = store.scope("s")
    for id in ("c", "a"):
        scope.delete_snapshot(id)
        age(root)
        backend.compact()
        with store_over(engine(root)) as other:
            for mine in (scope, other.scope("s")):
                assert mine.load(id) is None
                assert id not in [*mine.ids(), *(info.id for info in mine.history())]
                shown = mine.load()
                assert shown is not None
                assert shown.id == "b"
        assert codes(inspect(backend, repair=True)) in ([], ["pointer_dangling"])
    scope.save({"id": "d"}, id="d")
    assert [info.id for info in scope.history()] == ["d", "b"]
    scope.save({"id": "again"}, id="a")
    assert [info.id for info in scope.history()] == ["a", "d", "b"]
    assert inspect(backend) == []


def test_compact_goes_over_every_page(tmp_path: Path) -> None:
    """More than one listing returns."""
    backend = engine(tmp_path)
    with store_over(backend) as store:
        store.scope("s").save({"id": "first"}, id="first")
        folder = tmp_path / HISTORY
        for number in range(1100):
            (folder / f"snapshot_x{number:04}.json").write_bytes(GRAVE)
        age(tmp_path)
        assert backend.compact() == 1100 * len(GRAVE)
        assert [each.name for each in folder.iterdir()] == ["snapshot_first.json"]


# Pages


def wreck(store: Store, root: Path) -> None:
    """Do several damages at once, in scopes of their own."""
    for number in range(3):
        scope = store.scope(f"w-{number}")
        for id in "ab":
            scope.save({"id": id}, id=id)
        folder = root / f"sessions/w-{number}/scopes/agent/main/snapshots"
        flip(root, f"{folder}/immutable_history/snapshot_a.json", -3)
        (folder / "immutable_history/snapshot_b.json").unlink()
        write(root, f"{folder}/foreign.txt", b"")
        write(root, f"{folder}/notes/scope/n.json", b"x")
        write(root, f"{folder}/.limpet-{number}", b"half")
    age(root)


def key_of(finding: Finding) -> tuple[Any, ...]:
    return finding.code, finding.scope, finding.id, finding.message


@pytest.mark.parametrize("repair", [False, True])
@pytest.mark.parametrize(
    "limit", [1, *(pytest.param(each, marks=pytest.mark.slow) for each in (2, 5, 1000))]
)
def test_pages_go_over_everything_once(store: Store, root: Path, limit: int, repair: bool) -> None:
    wreck(store, root)
    whole = sorted(map(key_of, inspect(engine(root), limit=10_000)))
    assert len(whole) == 3 * 5
    found = inspect(engine(root), repair=repair, limit=limit)
    assert sorted(map(key_of, found)) == whole


def test_a_page_is_small(store: Store, root: Path) -> None:
    wreck(store, root)
    backend = engine(root)
    after: str | None = ""
    while after is not None and after != "leftovers:":
        found, after = backend.check(after, repair=False, limit=1)
        assert len(found) <= 1


# A store in use


def use(store: Store, rounds: int, name: str) -> None:
    """Do something of everything."""
    for number in range(rounds):
        scope = store.scope(f"use-{name}")
        first = scope.save({"n": number}, labels={"n": str(number % 3)})
        scope.save({"n": number}, keep=False)
        scope.append("items", [number])
        scope.save({"n": number}, head=False, labels=LABELS)
        scope.update(first.id, lambda was: was.with_(labels={"new": "label"}))
        scope.set_note("n", number, on=first.id)
        scope.set_note("manifest", {"n": number})
        scope.fork(first.id, scope_id=f"fork-{number}")
        if number % 2:
            head = scope.info()
            assert head is not None
            scope.delete_snapshot(head.id)
            scope.delete_note("n", on=first.id)
        scope.prune(keep_last=4)
        store.scope(f"gone-{name}").save({"n": number})
        store.delete_session(f"gone-{name}")


@pytest.mark.parametrize("root_name", ["sessions/", ""])
def test_a_store_that_was_used_is_healthy(tmp_path: Path, root_name: str) -> None:
    backend = engine(tmp_path, root_name=root_name)
    with store_over(backend) as store:
        use(store, 6, "x")
        assert inspect(backend) == []
        before = files(tmp_path)
        assert inspect(backend, repair=True) == []
        assert files(tmp_path) == before
        age(tmp_path)
        # What pointers are left over from labels that were changed goes now, and no more.
        assert {each.code for each in inspect(backend, repair=True)} <= {"pointer_dangling"}
        assert inspect(backend) == []
        backend.compact()
        assert inspect(backend) == []


def test_a_store_that_others_write_to_is_healthy(root: Path) -> None:
    """What a writer has under way is no damage, and mending it does no harm."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            with store_over(engine(root)) as mine:
                use(mine, 12, "x")
        except BaseException as error:
            failed.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    found: list[Finding] = []
    while worker.is_alive():
        found += inspect(engine(root))
        found += inspect(engine(root), repair=True)
    worker.join()
    # Heads go before the rest, so a deletion that is under way shows as copies without one.
    deleted = {("head_missing", "gone-x")}
    reported = {(each.code, each.scope and each.scope.session_id) for each in found}
    assert (failed, reported - deleted) == ([], set())
    assert inspect(engine(root)) == []


# The command line


def test_the_command_shows_them(
    store: Store, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"file://{root}"
    assert run(["check", "--url", url]) == 0
    assert capsys.readouterr().out == "✓ no errors\n"

    flip(root, COPY, -3)
    (root / HEAD_COPY).unlink()
    age(root)
    assert run(["check", "--url", url]) == 5
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("error    snapshot_damaged  a document fails its check. key=`")
    assert lines[1] == "         s · main · agent · a"
    assert lines[2].startswith("warning  copy_missing  the head is not in history yet")
    assert lines[-1] == "1 error, 1 warning"

    assert run(["check", "--repair", "--json", "--url", url]) == 5
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["code"]: row["repaired"] for row in rows} == {
        "snapshot_damaged": False,
        "copy_missing": True,
    }
    assert run(["check", "--url", str(root)]) == 5
    assert "copy_missing" not in capsys.readouterr().out


def test_a_store_opened_by_its_url_has_a_grace_time_of_a_day(store: Store, root: Path) -> None:
    earlier_life(store.scope("s"), root)
    backend = open_backend(f"file://{root}")
    assert inspect(backend) == []
    age(root)
    assert "line_over" in codes(inspect(backend))
    backend.close()
