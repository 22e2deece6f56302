"""A folder meets odd ids, links, files of the wrong kind, no rights, and its end."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest

import limpet
from limpet import Conflict, Corrupt, InvalidInput, LimpetError, NotFound, Store, Unavailable
from tests.servers.service import Service

IDS = [
    "../x", "a/b", "A", "a", "con", "CON", "nul.txt", "..", ".", "x" * 500, "X" * 500,
    "x" * 499 + "y", "é" * 500, "\U0001f642", "é", "e\u0301", "+41", "~", "a~b", "a.b", "a b",
    "%2e%2e", "\\x", "-", "_", "c:x", "snapshot_latest", "scopes", ".limpet", "\n",
]  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    with limpet.open(f"file://{root}", sync=False) as store:
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
        short = name_of(id, 100)
        own = {
            f"{folder}/head",
            f"{folder}/notes/scope/{name}.json",
            f"{folder}/notes/on/{short}/{short}.json",
        }
        assert own <= found.keys()
        assert {each for each in found if each.startswith(f"sessions/{name}/")} == own
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
    f"{FOLDER}/notes",
    f"{FOLDER}/notes/scope/n.json",
    ".limpet",
    ".limpet/index/labels",
]


def fill(store: Store) -> None:
    scope = store.scope("s")
    scope.save({"secret": 1}, id="a", labels={"k": "v"})
    scope.save({"secret": 2, "long": noise()}, id="b", labels={"k": "v"})
    scope.save({"secret": 3}, id="z")  # so that the others are in a segment
    scope.set_note("n", {"secret": 4})


def noise() -> str:
    """Return a text that fills a head."""
    return "".join(f"{7919 * each % 1_000_003:06d}" for each in range(1, 8000))


def changed(was: limpet.Snapshot) -> limpet.Snapshot:
    return was.with_(state={"secret": 0})


def attempts(store: Store) -> list[Callable[[], Any]]:
    """Return everything that touches a scope."""
    scope = store.scope("s")
    return [
        scope.load, lambda: scope.load("a"), lambda: list(scope.history()),
        lambda: list(scope.ids()), lambda: scope.note("n"), lambda: list(scope.notes()),
        lambda: list(store.sessions()), lambda: list(store.scopes()), lambda: store.stats(),
        lambda: list(store.history(labels={"k": "v"})), lambda: store.find("a"),
        lambda: scope.save({}, id="c"), lambda: scope.save({}, keep=False),
        lambda: scope.save({}, id="a", overwrite=True), lambda: scope.append("items", [1]),
        lambda: scope.update("a", changed), lambda: scope.set_note("n", 0),
        lambda: scope.fork("a", scope_id="f"),
        lambda: list(store.check()), lambda: list(store.repair()), lambda: store.compact(),
        lambda: scope.delete_note("n"), lambda: scope.delete_snapshot("a"),
        lambda: scope.prune(keep_last=1), scope.delete, lambda: store.delete_session("s"),
    ]  # fmt: skip


@pytest.mark.parametrize("place", LINKS)
def test_a_link_leads_nowhere(store: Store, root: Path, tmp_path: Path, place: str) -> None:
    fill(store)
    store.scope("other").save({"n": 1}, id="o")
    outside = tmp_path / "outside"
    (root / place).rename(outside)
    (root / place).symlink_to(outside)
    before = files(outside) if outside.is_dir() else outside.read_bytes()

    refused = 0
    for attempt in attempts(store):
        try:
            attempt()
        except LimpetError:
            refused += 1
        assert (root / place).is_symlink()
        assert (files(outside) if outside.is_dir() else outside.read_bytes()) == before
    assert refused > 0
    found = store.scope("other").load("o") if place != "sessions" else None
    assert place == "sessions" or (found is not None and found.state == {"n": 1})


# What is still shown where something else is a link: states, and the values of notes.
STILL_SHOWN = {
    f"{FOLDER}/head": [4],
    f"{FOLDER}/segments": [4],
    f"{FOLDER}/notes": [3, 1],
    f"{FOLDER}/notes/scope/n.json": [3, 1],
    ".limpet": [3, 1, 4],
    ".limpet/index/labels": [3, 1, 4],
}


@pytest.mark.parametrize("place", LINKS)
def test_what_a_link_leads_to_is_not_shown(
    store: Store, root: Path, tmp_path: Path, place: str
) -> None:
    fill(store)
    outside = tmp_path / "outside"
    (root / place).rename(outside)
    (root / place).symlink_to(outside)
    with limpet.open(f"file://{root}", sync=False) as other:
        scope = other.scope("s")
        shown = []
        for read in (scope.load, lambda: scope.load("a"), lambda: scope.note("n")):
            with suppress(Corrupt):
                found: Any = read()
                value = getattr(found, "state", None) or getattr(found, "value", None)
                shown += [] if value is None else [value["secret"]]
    assert shown == STILL_SHOWN.get(place, [])


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


@pytest.mark.parametrize("place", LINKS)
def test_a_file_in_the_place_of_a_folder_stays(store: Store, root: Path, place: str) -> None:
    """And a folder in the place of a file: nothing of it is taken for ours, or removed."""
    fill(store)
    store.scope("other").save({"n": 1}, id="o")
    path = root / place
    if path.is_dir():
        shutil.rmtree(path)
        path.write_text("mine")
    else:
        path.unlink()
        path.mkdir()
        (path / "mine").write_text("mine")

    refused = 0
    for attempt in attempts(store)[:-2]:
        try:
            attempt()
        except LimpetError:
            refused += 1
        assert (path if path.is_file() else path / "mine").read_text() == "mine"
    assert refused > 0
    found = store.scope("other").load("o") if place != "sessions" else None
    assert place == "sessions" or (found is not None and found.state == {"n": 1})


# No permission


UNPRIVILEGED = """
import os, sys, limpet
from limpet import Unavailable
path, place, mode = sys.argv[1:]
with limpet.open(f"file://{path}", sync=False) as store:
    store.scope("s").save({"n": 1}, id="a")
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
