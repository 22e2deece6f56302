"""A store in a folder or a bucket meets what it did not write, or lost, or may not touch.

One clear error each, contained to the scope, and nothing is overwritten.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import boto3  # type: ignore[import-untyped]
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
from limpet.engine.rolling import Limits
from limpet.protocol import Stamp
from tests.buckets.counting import CountingBucket
from tests.buckets.opened import impatient_clock, store_on
from tests.cases import for_each
from tests.servers.service import Service
from tests.servers.stub import Stub

IDS = [
    "../x", "a/b", "A", "a", "con", "CON", "nul.txt", "..", ".", "x" * 500, "X" * 500,
    "x" * 499 + "y", "é" * 500, "\U0001f642", "é", "e\u0301", "+41", "~", "a~b", "a.b", "a b",
    "%2e%2e", "\\x", "-", "_", "c:x", "snapshot_latest", "scopes", ".limpet", "\n",
]  # fmt: skip


def root_in(folder: Path) -> Path:
    return folder / "store"


def open_folder(root: Path, **options: Any) -> Store:
    """Open a folder; saves roll at once."""
    bucket = opening.open_files(f"file://{root}", sync=False)
    return store_on(bucket, clock=impatient_clock(), **options)


def opened(folder: Path) -> Store:
    return open_folder(root_in(folder))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return root_in(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path) as store:
        yield store


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


def test_any_id_is_a_file_of_its_own_inside_the_folder(store: Store, root: Path) -> None:
    """Promise 11, looked at from outside: the files, and what they are called."""
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


def test_any_id_comes_back_and_goes_alone(store: Store, root: Path) -> None:
    for id in IDS:
        store.scope(id, id).save({"id": id}, id=id)
    assert sorted(store.sessions()) == sorted(IDS)
    for id in IDS:
        scope = store.scope(id, id)
        found = scope.load(id)
        assert found is not None
        assert found.state == {"id": id}
        assert list(scope.ids()) == [id]
        by_id = store.find(id)
        assert by_id is not None
        assert by_id.scope == scope.key
    left = list(IDS)
    for id in IDS:
        assert store.delete_session(id) == 1
        left.remove(id)
        assert sorted(store.sessions()) == sorted(left)
    assert not any(name.startswith("sessions/") for name in files(root))


# Links. What they lead to is neither read nor written nor deleted.


FOLDER = "sessions/s/scopes/agent/main/snapshots"
LINKS = [
    "sessions",
    "sessions/s",
    "sessions/s/scopes",
    "sessions/s/scopes/agent/main",
    FOLDER,
    f"{FOLDER}/head",
    f"{FOLDER}/segments",
    f"{FOLDER}/segments/*",
    f"{FOLDER}/notes",
    f"{FOLDER}/notes/*",
    ".limpet",
    ".limpet/index/labels",
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


def found_in(root: Path, place: str) -> Path:
    (found,) = root.glob(place)
    return found


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


@pytest.mark.timeout(300)
@for_each("place", LINKS, root=root_in, store=opened)
def test_a_link_leads_nowhere(store: Store, root: Path, tmp_path: Path, place: str) -> None:
    fill(store)
    fill(store, "other")
    outside, path = tmp_path / "outside", found_in(root, place)
    path.rename(outside)
    path.symlink_to(outside)
    before = files(outside) if outside.is_dir() else outside.read_bytes()

    refused = 0
    with open_folder(root) as other:
        for attempt in [*attempts(other), *attempts(store)]:
            try:
                attempt()
            except LimpetError:
                refused += 1
            assert path.is_symlink()
            assert (files(outside) if outside.is_dir() else outside.read_bytes()) == before
    assert refused > 0
    found = store.scope("other").load("other-01") if place != "sessions" else None
    assert place == "sessions" or (found is not None and found.state == {"text": text_of(1)})


# Whether a segment, the head and a note can still be read where something else is a link.
STILL_SHOWN = {
    f"{FOLDER}/segments": (False, True, True),
    f"{FOLDER}/segments/*": (False, True, True),
    f"{FOLDER}/notes": (True, True, False),
    f"{FOLDER}/notes/*": (True, True, False),
    ".limpet": (True, True, True),
    ".limpet/index/labels": (True, True, True),
}


@pytest.mark.timeout(300)
@for_each("place", LINKS, root=root_in, store=opened)
def test_what_a_link_leads_to_is_not_shown(
    store: Store, root: Path, tmp_path: Path, place: str
) -> None:
    fill(store)
    outside, path = tmp_path / "outside", found_in(root, place)
    path.rename(outside)
    path.symlink_to(outside)

    def is_shown(read: Callable[[], object]) -> bool:
        try:
            return read() is not None
        except Corrupt:
            return False

    with open_folder(root) as other:
        scope = other.scope("s")
        shown = tuple(
            is_shown(read)
            for read in (lambda: scope.load("s-01"), scope.load, lambda: scope.note("n03"))
        )
    assert shown == STILL_SHOWN.get(place, (False, False, False))


# Files and folders in each other's places


def test_a_url_that_names_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(InvalidInput):
        limpet.open(f"file://{path}")
    assert path.read_text() == "mine"


def test_a_url_below_a_file_is_refused_by_the_first_write(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    with limpet.open(f"file://{path}/store") as store, pytest.raises(Unavailable):
        store.scope("s").save({})
    assert path.read_text() == "mine"


@pytest.mark.timeout(300)
@for_each("place", LINKS, root=root_in, store=opened)
def test_a_file_in_the_place_of_a_folder_stays(store: Store, root: Path, place: str) -> None:
    """And a folder in the place of a file: nothing of it is taken for ours, or removed."""
    fill(store)
    fill(store, "other")
    path = found_in(root, place)
    if path.is_dir():
        shutil.rmtree(path)
        path.write_text("mine")
    else:
        path.unlink()
        path.mkdir()
        (path / "mine").write_text("mine")

    refused = 0
    with open_folder(root) as other:
        for attempt in attempts(other)[:-2]:
            try:
                attempt()
            except LimpetError:
                refused += 1
            assert (path if path.is_file() else path / "mine").read_text() == "mine"
    assert refused > 0
    found = store.scope("other").load("other-01") if place != "sessions" else None
    assert place == "sessions" or (found is not None and found.state == {"text": text_of(1)})


FOREIGN = [
    "README.md", ".DS_Store", "sessions/notes.txt", f"{FOLDER}/head.bak", f"{FOLDER}/head~",
    f"{FOLDER}/segments/copy of a segment", f"{FOLDER}/segments/~", f"{FOLDER}/sub/head",
    f"{FOLDER}/notes/scope/n (1).json", "sessions/UPPER/scopes/agent/main/snapshots/head",
    ".limpet/index/labels/k=v/foreign", "sessions/\xe9",
]  # fmt: skip


def test_foreign_files_are_left_alone(store: Store, root: Path) -> None:
    """They are not shown, do not disturb, and `check` reports those between our objects."""
    ids = fill(store)
    mine = {name: f"mine: {name}".encode() for name in FOREIGN}
    for name, data in mine.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)

    with open_folder(root) as other:
        assert list(other.sessions()) == ["s"]
        assert [info.id for info in other.scope("s").history()] == ids[::-1]
        assert [info.id for info in other.history(labels={"k": "v"})] == ids[::-1]
        for attempt in attempts(other)[:-3]:
            attempt()
        reported = {each.code for each in other.check()}
        assert reported == {"foreign_file"}
        list(other.repair())
        assert other.scope("s").prune(keep_last=2).count > 5
    assert {name: data for name, data in files(root).items() if name in mine} == mine


def test_the_folder_of_another_tool_is_no_empty_store(store: Store, root: Path) -> None:
    path = root / "s/scopes/agent/main/snapshots/snapshot_latest.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"{}")
    for number in range(len(attempts(store))):
        with (
            open_folder(root) as other,
            pytest.raises(Unsupported, match="sessions of the Strands SDK"),
        ):
            attempts(other)[number]()
    assert list(files(root)) == ["s/scopes/agent/main/snapshots/snapshot_latest.json"]


# Objects that are not what they were


def spoil(root: Path, place: str, how: str) -> None:
    path, source = found_in(root, place), found_in(root, place.replace("/s/", "/other/"))
    data = path.read_bytes()
    spoiled = {
        "empty": b"",
        "cut": data[: len(data) // 2],
        "cut at the end": data[:-9],
        "zeros": bytes(len(data)),
        "html": b"<!DOCTYPE html>\n<html></html>\n",
        "another's": source.read_bytes(),
    }[how]
    path.write_bytes(spoiled)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["empty", "cut", "cut at the end", "zeros", "html", "another's"])
@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("place", [f"{FOLDER}/head", f"{FOLDER}/segments/*"])
def test_a_damaged_object_damages_its_scope_alone(
    root: Path, place: str, compress: bool, how: str
) -> None:
    with open_folder(root, compress=compress) as store:
        fill(store)
        fill(store, "other")
    spoil(root, place, how)
    with open_folder(root, compress=compress) as store:
        before, scope = files(root), store.scope("s")
        refused: list[Callable[[], Any]] = [lambda: scope.load("s-01"), lambda: scope.fork("s-01")]
        refused.append(lambda: scope.update("s-01", changed))
        if "head" in place:
            others = [lambda: scope.save({}), *refused]
            refused = [scope.load, lambda: scope.append("a", [1]), lambda: scope.note("n69")]
            # What was cut off are states and notes; then the history is there, and goes on.
            refused = (
                refused[2:] if "end" in how else refused if "cut" in how else [*refused, *others]
            )
        if "cut" not in how:
            refused.append(lambda: scope.delete_snapshot("s-01"))
        for attempt in refused:
            with pytest.raises(Corrupt):
                attempt()
        assert files(root) == before
        assert {each.severity for each in store.check()} == {"error"}
        assert {each.scope for each in store.check()} == {scope.key}
        assert files(root) == before
        store.compact()
        assert [each for each in before if "segments" in each and each not in files(root)] == []
        list(store.repair())
        after = files(root)
        moved = [each for each in before if "segments" in each and each not in after]
        # A damaged segment is put aside, so that saves need not read it.
        assert len(moved) == ("segments" in place)
        assert all(any(name.rpartition("/")[2] in kept for kept in after) for name in moved)

        assert sorted(store.sessions()) == ["other", "s"]
        other = store.scope("other")
        assert len(list(other.history())) == COUNT
        assert other.save({"text": "more"}).parent_id == f"other-{COUNT - 1:02}"
        assert store.delete_session("s") >= 0
        assert list(store.sessions()) == ["other"]
        assert list(store.check()) == []


# Services and clocks


@pytest.mark.parametrize("ignores", [("If-Match",), ("If-None-Match",)])
def test_a_service_that_ignores_conditions_is_refused(ignores: tuple[str, ...]) -> None:
    with Stub(ignores=ignores) as stub:
        with limpet.open("s3://limpet-tests/here", **stub.service.options) as store:
            scope = store.scope("s")
            assert scope.load() is None
            writes: list[Callable[[], Any]] = [
                lambda: scope.save({}),
                lambda: scope.append("items", [1]),
                lambda: scope.set_note("n", 1),
                lambda: scope.claim(owner="a").__enter__(),
            ]
            for write in writes:
                with pytest.raises(Unsupported, match="ignores conditional writes"):
                    write()
        assert stub.objects == {}


def test_a_clock_that_jumps() -> None:
    """Order is commit order, whatever the clock of each writer says."""
    bucket = CountingBucket()
    saved: list[str] = []
    day_us = 24 * 3600 * 1_000_000
    for number, days in enumerate((0, 400, -400, 0, 1, -3000, 2) * 3):

        def draw(days: int = days) -> Stamp:
            stamp = opening.draw()
            return stamp._replace(now=stamp.now + days * day_us)

        store = store_on(bucket, draw=draw, tails=Limits(4))
        scope = store.scope("s")
        saved.append(scope.save({"text": text_of(number)}, labels={"k": "v"}).id)
        assert [info.id for info in scope.history()] == saved[::-1]
        assert sorted(saved) == saved, "a minted id is not greater than those before"
        assert [info.id for info in store.history(labels={"k": "v"})] == saved[::-1]
        found = store.find(saved[0])
        assert found is not None
        assert list(store.check()) == []
    assert any("/segments/" in key for key in bucket.objects)
    assert scope.prune(keep_last=3).count == len(saved) - 3


# No permission


UNPRIVILEGED = """
import os, sys, limpet
from limpet import Unavailable
path, place, mode = sys.argv[1:]
with limpet.open(f"file://{path}", sync=False) as store:
    store.scope("s").save({"n": 1}, id="a", labels={"k": "v"})
    for name, folders, names in os.walk(path):
        for each in [name, *(os.path.join(name, each) for each in names)]:
            if os.getuid() == 0:
                os.chown(each, 65534, 65534)
    os.chmod(os.path.join(path, place), int(mode, 8))
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    scope = store.scope("s")
    for verb in (scope.load, lambda: scope.save({"n": 2}, id="b"), lambda: list(store.sessions())):
        try:
            found = verb()
            print("none" if found in (None, []) else "some")
        except Unavailable as error:
            print("known" if error.outcome_known else "doubt", "EACCES" in str(error))
"""


@pytest.mark.parametrize(
    ("place", "mode", "said"),
    [
        ("", "000", ["known True"] * 3),
        ("sessions", "000", ["known True"] * 3),
        ("sessions/s/scopes", "000", ["known True"] * 3),
        (FOLDER, "000", ["known True"] * 3),
        (FOLDER, "555", ["some", "known True", "some"]),
        (f"{FOLDER}/head", "000", ["known True"] * 2),
        (".limpet/index/ids", "555", ["some", "known True", "some"]),
    ],
)
def test_without_permission_nothing_passes_for_empty(
    place: str, mode: str, said: list[str]
) -> None:
    """What cannot be read is an error, never nothing; what cannot be written is not half there."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        command = [sys.executable, "-W", "error", "-c", UNPRIVILEGED, f"{folder}/store"]
        done = subprocess.run(
            [*command, place, mode], capture_output=True, text=True, check=False, timeout=60
        )
        os.chmod(Path(folder, "store", place), 0o700)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[: len(said)] == said


KEEPS = """
import os, sys, limpet
from limpet import Unavailable
path, folder = sys.argv[1:]
with limpet.open(f"file://{path}", sync=False) as store:
    for number in range(3):
        store.scope("s").save({"n": number})
    for number in range(70):
        store.scope("s").set_note(f"n{number}", number)
    if os.getuid() == 0:
        for name, _, names in os.walk(path):
            for each in [name, *(os.path.join(name, each) for each in names)]:
                os.chown(each, 65534, 65534)
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    os.chmod(os.path.join(path, folder), 0o555)
    for delete in (lambda: store.delete_session("s"), store.scope("s").delete) * 2:
        try:
            delete()
            print("deleted")
        except Unavailable as error:
            print(error)
    os.chmod(os.path.join(path, folder), 0o755)
    store.delete_session("s")
    print(list(store.sessions()), store.delete_session("s"), list(store.check()))
"""


PART = r"[0-9a-f.]*\.after-[0-9a-f]*"


@pytest.mark.parametrize(
    ("folder", "key"), [(FOLDER, r"(head|started\.\w+)"), (f"{FOLDER}/notes", PART)]
)
def test_what_could_not_be_deleted_is_named(folder: str, key: str) -> None:
    """And why; each time, until it can be deleted."""
    with tempfile.TemporaryDirectory() as above:
        os.chmod(above, 0o755)
        command = [sys.executable, "-W", "error", "-c", KEEPS, f"{above}/store", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        os.chmod(above, 0o700)
    assert done.returncode == 0, done.stderr
    *said, after = done.stdout.splitlines()
    assert after == "[] 0 []"
    assert len(said) == 4
    for each in said:
        assert re.search(rf"not all .* deleted: permission denied.*{folder}/{key}`", each)


def test_what_a_service_does_not_delete_is_named() -> None:
    with Stub(ignores=()) as stub:
        with limpet.open("s3://limpet-tests/here", **stub.service.options) as store:
            store.scope("s").save({"n": 1})
            for number in range(70):
                store.scope("s").set_note(f"n{number}", number)
            for part in ("started", "head", "notes/"):
                (stub.kept,) = ({key} for key in stub.objects if f"{FOLDER}/{part}" in key)
                for _ in range(2):
                    with pytest.raises(
                        Unavailable, match=f"denied.*{part}.*` reason=`AccessDenied"
                    ) as caught:
                        store.delete_session("s")
                    assert not caught.value.outcome_known
            stub.kept = set()
            store.delete_session("s")
            assert list(store.sessions()) == []
        assert not any("/sessions/" in key for key in stub.objects)


# What vanishes in mid-run


def test_a_folder_that_vanishes_is_watched_again(store: Store, root: Path) -> None:
    """Nothing that was remembered makes a write believe in what is gone."""
    scope = store.scope("s")
    scope.save({"n": 1}, id="a")
    made = scope.save({"n": 2}, id="b")
    shutil.rmtree(root)

    assert (scope.load(), scope.load("a"), list(scope.history())) == (None, None, [])
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


def test_a_folder_that_vanishes_between_drafts(store: Store, root: Path) -> None:
    scope = store.scope("s")
    scope.save({"n": 1}, keep=False)
    shutil.rmtree(root)
    assert scope.append("items", [1]).parent_id is None
    found = scope.load()
    assert found is not None
    assert found.state == {"items": [1]}


def test_a_bucket_that_vanishes_is_an_error_and_not_an_empty_store(
    seaweedfs: Service,
) -> None:
    name = f"vanishing-{uuid.uuid4()}"
    client: Any = boto3.client(
        "s3",
        endpoint_url=seaweedfs.url,
        region_name="us-east-1",
        aws_access_key_id=seaweedfs.access_key_id,
        aws_secret_access_key=seaweedfs.secret_access_key,
    )
    client.create_bucket(Bucket=name)
    with limpet.open(f"s3://{name}/here", **seaweedfs.options, retry_s=0.2) as store:
        fill(store)
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=name):
            for each in page.get("Contents", []):
                client.delete_object(Bucket=name, Key=each["Key"])
        client.delete_bucket(Bucket=name)
        for attempt in attempts(store):
            with pytest.raises(Unavailable):
                attempt()
    client.close()
