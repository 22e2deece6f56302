"""A store in a folder or a bucket meets what it did not write, or lost, or may not touch.

One clear error each, contained to the scope, and nothing is overwritten.
"""

import os
import re
import shutil
from collections.abc import Callable
from hashlib import sha256
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

import limpet
from limpet import (
    Conflict,
    Corrupt,
    InvalidInput,
    LimpetError,
    NotFound,
    Store,
    Unavailable,
    Unsupported,
    opening,
)
from tests.buckets.counting import CountingBucket
from tests.buckets.opened import impatient_clock, store_on
from tests.cases import for_each

IDS = [
    "../x", "a/b", "A", "a", "con", "CON", "nul.txt", "..", ".", "x" * 500, "X" * 500,
    "x" * 499 + "y", "é" * 500, "\U0001f642", "é", "e\u0301", "+41", "~", "a~b", "a.b", "a b",
    "%2e%2e", "\\x", "-", "_", "c:x", "snapshot_latest", "scopes", ".limpet", "\n",
]  # fmt: skip


def open_folder(root: Path) -> Store:
    """Open a folder; saves roll at once."""
    bucket = opening.open_files(f"file://{root}", sync=False)
    return store_on(bucket, clock=impatient_clock())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def files(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder; a link is named, and not followed."""
    found: dict[str, bytes] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = os.readlink(path).encode()
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


# Ids


def name_of(id: str, bytes_max: int = 200) -> str:
    """Return the name of an id as docs/format.md says, told once more in other words."""

    def escaped(text: str) -> str:
        return "".join(
            chr(byte) if re.match(rb"[a-z0-9_-]", bytes([byte])) else f"+{byte:02x}"
            for byte in text.encode()
        )

    if len(escaped(id)) <= bytes_max:
        return escaped(id)
    count, room = 0, bytes_max - 33
    while len(escaped(id[count])) <= room:
        room -= len(escaped(id[count]))
        count += 1
    return f"{escaped(id[:count])}~{sha256(id.encode()).hexdigest()[:32]}"


def test_any_id_is_a_file_of_its_own_inside_the_folder(root: Path) -> None:
    """Promise 11, looked at from outside: the files, and what they are called."""
    with open_folder(root) as store:
        for id in IDS:
            scope = store.scope(id, id)
            scope.save({"id": id}, id=id, labels={id[:256]: id[:256]})
            scope.set_note(id, id)
            scope.set_note(id, id, on=id)

    assert [path.name for path in root.parent.iterdir()] == ["store"]
    found = files(root)
    for id in IDS:
        name = name_of(id)
        folder = f"sessions/{name}/scopes/agent/{name}/snapshots"
        inside = {each for each in found if each.startswith(f"sessions/{name}/")}
        assert {re.sub(r"\.[0-9a-f]{16}", "", each) for each in inside} == {
            f"{folder}/head",
            f"{folder}/started",
        }
    assert {each.partition("/")[0] for each in found} == {"sessions", ".limpet"}
    assert len({each.casefold() for each in found}) == len(found)
    assert all(len(part) <= 255 for each in found for part in each.split("/"))
    assert all(re.fullmatch(r"[\w.+~=/-]+", each, re.ASCII) for each in found)


# Links, and files and folders in each other's places


FOLDER = "sessions/s/scopes/agent/main/snapshots"
PLACES = [
    "sessions",
    "sessions/s",
    FOLDER,
    f"{FOLDER}/head",
    f"{FOLDER}/segments",
    f"{FOLDER}/segments/*",
    f"{FOLDER}/notes/*",
    ".limpet",
]
COUNT = 12


def text_of(number: int) -> str:
    """Return a text of its own, so long that a dozen of them need a segment."""
    return Random(number).randbytes(3_200).hex()


def fill(store: Store, session_id: str = "s") -> list[str]:
    """Save a history, of which the older part is in one segment; return the ids."""
    scope = store.scope(session_id)
    ids = [f"{session_id}-{number:02}" for number in range(COUNT)]
    for number, id in enumerate(ids):
        scope.save({"text": text_of(number)}, id=id, labels={"k": "v"})
    for number in range(70):  # more than are in a head
        scope.set_note(f"n{number:02}", {"secret": number})
    return ids


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `s` and `other` are filled."""
    root = tmp_path_factory.mktemp("filled") / "store"
    with open_folder(root) as store:
        fill(store)
        fill(store, "other")
    return root


def changed(was: limpet.Snapshot) -> limpet.Snapshot:
    return was.with_(state={"text": ""})


def attempts(store: Store) -> list[Callable[[], Any]]:
    """Return everything that touches a scope."""
    scope = store.scope("s")
    return [
        scope.load, lambda: scope.load("s-01"), lambda: list(scope.history()),
        lambda: list(scope.ids()), lambda: scope.note("n03"), lambda: list(scope.notes()),
        lambda: list(store.sessions()), lambda: list(store.scopes()), lambda: store.stats(),
        lambda: list(store.history(labels={"k": "v"})), lambda: store.find("s-01"),
        lambda: scope.save({}, id="c"), lambda: scope.save({}, keep=False),
        lambda: scope.save({}, id="s-01", overwrite=True), lambda: scope.append("items", [1]),
        lambda: scope.update("s-01", changed), lambda: scope.set_note("n03", 0),
        lambda: scope.fork("s-01", scope_id="f"),
        lambda: list(store.check()), lambda: list(store.repair()), lambda: store.compact(),
        lambda: scope.delete_note("n03"), lambda: scope.delete_snapshot("s-01"),
        lambda: scope.prune(keep_last=1), scope.delete, lambda: store.delete_session("s"),
    ]  # fmt: skip


# Whether a segment, the head and a note can still be read where something else is not ours.
STILL_SHOWN = {
    f"{FOLDER}/segments": (False, True, True),
    f"{FOLDER}/segments/*": (False, True, True),
    f"{FOLDER}/notes/*": (True, True, False),
    ".limpet": (True, True, True),
}


def is_shown(read: Callable[[], object]) -> bool:
    try:
        return read() is not None
    except Corrupt:
        return False


@for_each("place, is_link", product(PLACES, [True, False]))
def test_a_link_leads_nowhere(filled: Path, tmp_path: Path, place: str, is_link: bool) -> None:
    """Nor is a file taken for a folder: what is there is not shown, nor changed, nor removed."""
    root = Path(shutil.copytree(filled, tmp_path / "store"))
    outside = tmp_path / "outside"
    (path,) = root.glob(place)
    path.rename(outside)
    if is_link:
        path.symlink_to(outside)
    elif outside.is_dir():
        path.write_text("mine")
    else:
        path.mkdir()
        (path / "mine").write_text("mine")
    before = files(tmp_path)
    mine = {name: data for name, data in before.items() if b"mine" in data or "outside" in name}

    refused = 0
    with open_folder(root) as store:
        scope = store.scope("s")
        reads = (lambda: scope.load("s-01"), scope.load, lambda: scope.note("n03"))
        assert tuple(map(is_shown, reads)) == STILL_SHOWN.get(place, (False, False, False))
        for attempt in attempts(store)[: None if is_link else -2]:
            try:
                attempt()
            except LimpetError:
                refused += 1
            assert path.is_symlink() == is_link
        assert files(tmp_path).items() >= mine.items()
        assert refused > 0
        if place != "sessions":
            found = store.scope("other").load("other-01")
            assert found is not None
            assert found.state == {"text": text_of(1)}


def test_a_url_that_names_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    os.mkfifo(tmp_path / "pipe")
    for name in ("file", "pipe"):
        with pytest.raises(InvalidInput):
            limpet.open(f"file://{tmp_path}/{name}")
    with limpet.open(f"file://{path}/store") as store, pytest.raises(Unavailable):
        store.scope("s").save({})
    assert path.read_text() == "mine"


FOREIGN = [
    "README.md", ".DS_Store", "sessions/notes.txt", f"{FOLDER}/head.bak", f"{FOLDER}/head~",
    f"{FOLDER}/segments/copy of a segment", f"{FOLDER}/segments/~", f"{FOLDER}/sub/head",
    f"{FOLDER}/notes/scope/n (1).json", "sessions/UPPER/scopes/agent/main/snapshots/head",
    ".limpet/index/labels/k=v/foreign", "sessions/\xe9",
]  # fmt: skip


def test_foreign_files_are_left_alone(filled: Path, root: Path) -> None:
    """They are not shown, do not disturb, and `check` reports those between our objects."""
    shutil.copytree(filled, root)
    mine = {name: f"mine: {name}".encode() for name in FOREIGN}
    for name, data in mine.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)

    with open_folder(root) as store:
        ids = [f"s-{number:02}" for number in reversed(range(COUNT))]
        assert list(store.sessions()) == ["other", "s"]
        assert [info.id for info in store.scope("s").history()] == ids
        assert [info.id for info in store.history(labels={"k": "v"}, prefix="s")] == ids
        for attempt in attempts(store)[:-3]:
            attempt()
        reported = {each.code for each in store.check()}
        assert reported == {"foreign_file"}
        list(store.repair())
        assert store.scope("s").prune(keep_last=2).count > 5
    assert {name: data for name, data in files(root).items() if name in mine} == mine


def test_names_that_are_not_ours_end_no_listing() -> None:
    """Also where whole pages have no other."""
    bucket = CountingBucket()
    with store_on(bucket) as store:
        for at in range(3):
            store.scope(f"s{at}").save({"n": at}, labels={"k": "v"})
            store.scope("many", f"s{at}").save({}, id=f"i{at}")
            store.scope("s").save({}, id=f"i{at}")
        for key in list(bucket.objects):
            bucket.mark([f"{key}!{n:04}" for n in range(1100)])
        assert list(store.sessions()) == ["many", "s", "s0", "s1", "s2"]
        assert [info.key.scope_id for info in store.scopes("many")] == ["s0", "s1", "s2"]
        assert len(list(store.history(labels={"k": "v"}))) == 3
        assert list(store.scope("s").ids()) == ["i0", "i1", "i2"]


def test_the_folder_of_another_tool_is_no_empty_store(root: Path) -> None:
    path = root / "s/scopes/agent/main/snapshots/snapshot_latest.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"{}")
    with open_folder(root) as store:
        count = len(attempts(store))
    for number in range(count):
        with (
            open_folder(root) as other,
            pytest.raises(Unsupported, match="sessions of the Strands SDK"),
        ):
            attempts(other)[number]()
    assert list(files(root)) == ["s/scopes/agent/main/snapshots/snapshot_latest.json"]


# What vanishes in mid-run


def test_a_folder_that_vanishes_is_empty(root: Path) -> None:
    """Nothing that was remembered makes a write believe in what is gone."""
    with open_folder(root) as store:
        scope = store.scope("s")
        made = scope.save({"n": 2}, id="b")
        shutil.rmtree(root)

        assert (scope.load(), scope.load("b"), list(scope.history())) == (None, None, [])
        assert list(store.sessions()) == []
        assert not root.exists(), "a read has made a folder"
        with pytest.raises(Conflict):
            scope.save({"n": 3}, expect=made.revision)
        with pytest.raises(NotFound):
            scope.update("b", changed)
        assert files(root) == {}
        assert scope.save({"n": 4}, id="d").parent_id is None
    with limpet.open(f"file://{root}") as other:
        assert [info.id for info in other.scope("s").history()] == ["d"]
