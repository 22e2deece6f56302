"""Check and repair of a folder of documents.

Every row of the table in docs/check.md is a case here. Files are compared byte by byte: what repair
does not mend stays as it is.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from limpet import Corrupt, Scope, Store
from limpet.backends.buckets.directory.bucket import DirectoryBucket
from limpet.backends.objects.backend import ObjectBackend
from limpet.backends.objects.check import SEVERITIES
from limpet.core.layout import Layout
from limpet.opening import CLOCK, draw, store_over
from tests.unit.damaged import codes, inspect

PAGE = Path(__file__).resolve().parents[2] / "docs" / "check.md"
DAYS_S = 2 * 86_400
FOLDER = "sessions/s/scopes/agent/main/snapshots"
HEAD = f"{FOLDER}/snapshot_latest.json"
HISTORY = f"{FOLDER}/immutable_history"
COPY = f"{HISTORY}/snapshot_a.json"
HEAD_COPY = f"{HISTORY}/snapshot_c.json"
INDEX = ".limpet/index"
NOTE = f"{FOLDER}/notes/scope/n.json"
NOTED = f"{FOLDER}/notes/on/a/n.json"
LONG = "L" * 300  # longer than a name in a key may be
LABELS = {"colour": "red"}


def engine(root: Path, *, root_name: str = "sessions/", **options: Any) -> ObjectBackend:
    bucket = DirectoryBucket(
        str(root),
        token=lambda: os.urandom(8).hex(),
        now=lambda: time.time_ns() // 1000,
        clock=CLOCK,
        sync=False,
    )
    index = root_name == "sessions/"
    return ObjectBackend(
        bucket, layout=Layout(root_name), index=index, clock=CLOCK, draw=draw, **options
    )


def files(root: Path) -> dict[str, bytes]:
    """Return everything below a folder, links and foreign names too."""
    found = {}
    for path in root.rglob("*"):
        name = os.fsencode(path.relative_to(root)).decode("utf-8", "backslashreplace")
        if path.is_symlink():
            found[name] = os.fsencode(path.readlink())
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


def age(root: Path, seconds: float = DAYS_S) -> None:
    """Make every file as old as if it had been written days ago."""
    then = time.time() - seconds
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            os.utime(path, (then, then))


def fill(store: Store) -> None:
    scope = store.scope("s")
    for id in ("a", "b", "c"):
        scope.save({"id": id}, id=id, labels=LABELS)
        scope.set_note("n", id, on=id)
    scope.set_note("n", 1)
    scope.set_note("manifest", {"schemaVersion": "1.0"})
    store.scope("other").save({"id": "o"}, id="o", labels=LABELS)
    store.scope(LONG, LONG).save({"id": LONG}, id=LONG, labels={LONG[:200]: LONG[:200]})
    store.scope(LONG, LONG).set_note(LONG, 1, on=LONG)


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


def readable(store: Store) -> dict[tuple[str, str], Any]:
    """Return the states and labels of all snapshots that can be read by their ids."""
    found = {}
    for session, scope, ids in (("s", "main", "abc"), ("other", "main", "o"), (LONG, LONG, [LONG])):
        for id in ids:
            with suppress(Corrupt):
                one = store.scope(session, scope).load(id)
                if one is not None:
                    found[session, id] = (one.state, dict(one.labels))
    return found


# Damage


def flip(root: Path, name: str, at: int) -> None:
    stored = bytearray((root / name).read_bytes())
    stored[at] ^= 1
    (root / name).write_bytes(stored)


def write(root: Path, name: str, data: bytes) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(data)


def pointers(root: Path, part: str, id: str) -> list[Path]:
    """Return the pointers of one sort to a snapshot of `s`."""
    found = (root / INDEX / part).rglob("*")
    mine = [each for each in found if each.is_file() and re.search(r"[./]s[./]agent", str(each))]
    return [each for each in mine if re.search(rf"[./]{id}[./]", str(each))]


def unlink_pointers(root: Path, part: str, id: str) -> None:
    found = pointers(root, part, id)
    assert len(found) == 1
    found[0].unlink()


def old_version(scope: Scope, root: Path) -> None:
    before = (root / HEAD_COPY).read_bytes()
    scope.update("c", lambda was: was.with_(state={"id": "c", "new": True}))
    write(root, HEAD_COPY, before)


def earlier_life(scope: Scope, root: Path) -> None:
    """Bring back a copy that a stalled writer stores after everything was deleted."""
    before = (root / COPY).read_bytes()
    scope.delete()
    scope.save({"id": "z"}, id="z")
    write(root, COPY, before)


def dropped_label(scope: Scope, root: Path) -> None:
    scope.update("b", lambda was: was.with_(labels={}))


def lost_pointers(scope: Scope, root: Path) -> None:
    """Leave the pointers of a snapshot whose writer died before its copy, long ago."""
    kept = {each: each.read_bytes() for part in ("snapshots", "order", "labels")
            for each in pointers(root, part, "b")}  # fmt: skip
    scope.delete_snapshot("b")
    for path, data in kept.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


class Case(NamedTuple):
    """Damage, the code that check finds, the code left after a repair, and what repair changes.

    `changed` matches the names of the files that repair writes or removes; all others stay. `also`
    is a code that may come with it.
    """

    damage: Callable[[Scope, Path], object]
    found: str
    left: str = ""
    changed: str = ""
    also: str = ""


ORDER = rf"{INDEX}/order/.*"
CASES = {
    "the copy of the head": Case(
        lambda _, root: (root / HEAD_COPY).unlink(), "copy_missing", changed=HEAD_COPY
    ),
    "an older copy of the head": Case(old_version, "copy_missing", changed=HEAD_COPY),
    "a file next to sessions": Case(
        lambda _, root: write(root, "sessions/readme.txt", b"hello"), "foreign_file", "foreign_file"
    ),
    "a file in history": Case(
        lambda _, root: write(root, f"{HISTORY}/.DS_Store", b"\0"), "foreign_file", "foreign_file"
    ),
    "a name that should be written otherwise": Case(
        lambda _, root: write(root, f"{HISTORY}/snapshot_+61.json", b"{}"),
        "foreign_file",
        "foreign_file",
    ),
    "a file in the index": Case(
        lambda _, root: write(root, f"{INDEX}/snapshots/x", b""), "foreign_file", "foreign_file"
    ),
    "a link": Case(
        lambda _, root: (root / HISTORY / "snapshot_x.json").symlink_to(root / COPY),
        "foreign_file",
        "foreign_file",
    ),
    "a bit in the header of the head": Case(
        lambda _, root: flip(root, HEAD, 200), "head_damaged", "head_damaged"
    ),
    "a bit in the state of the head": Case(
        lambda _, root: flip(root, HEAD, -3), "head_damaged", "head_damaged"
    ),
    "an empty head": Case(lambda _, root: write(root, HEAD, b""), "head_damaged", "head_damaged"),
    "no head": Case(lambda _, root: (root / HEAD).unlink(), "head_missing", "head_missing"),
    "a copy of an earlier life": Case(
        earlier_life,
        "line_over",
        changed=rf"{COPY}|{INDEX}/labels/.*\.s\..*",
        also="pointer_dangling",
    ),
    "a lease cut short": Case(
        lambda _, root: write(root, f"{FOLDER}/lease.json", b'{"hold'),
        "lease_damaged",
        changed=rf"{FOLDER}/lease\.json",
    ),
    "a bit in a note": Case(
        lambda _, root: flip(root, NOTE, -3),
        "note_damaged",
        "note_damaged",
    ),
    "a bit in a note on a snapshot": Case(
        lambda _, root: flip(root, NOTED, 30),
        "note_damaged",
        "note_damaged",
    ),
    "a note in the place of another": Case(
        lambda _, root: write(root, f"{FOLDER}/notes/scope/m.json", (root / NOTE).read_bytes()),
        "note_damaged",
        "note_damaged",
    ),
    "a note on another snapshot": Case(
        lambda _, root: write(root, NOTED, (root / FOLDER / "notes/on/b/n.json").read_bytes()),
        "note_damaged",
        "note_damaged",
    ),
    "a manifest cut short": Case(
        lambda _, root: write(root, f"{FOLDER}/manifest.json", b'{"schema'),
        "note_damaged",
        "note_damaged",
    ),
    "a label that was dropped": Case(
        dropped_label, "pointer_dangling", changed=rf"{INDEX}/labels/.*\.s\..*\.b\..*"
    ),
    "pointers to what is gone": Case(
        lost_pointers, "pointer_dangling", changed=rf"{INDEX}/.*[./]b[./].*"
    ),
    "no pointer by id": Case(
        lambda _, root: unlink_pointers(root, "snapshots", "a"),
        "pointer_missing",
        changed=rf"{INDEX}/snapshots/a/.*",
    ),
    "no pointer by place": Case(
        lambda _, root: unlink_pointers(root, "order", "a"), "pointer_missing", changed=ORDER
    ),
    "no pointer by label": Case(
        lambda _, root: unlink_pointers(root, "labels", "a"),
        "pointer_missing",
        changed=rf"{INDEX}/labels/.*",
    ),
    "a bit in the header of a copy": Case(
        lambda _, root: flip(root, COPY, 200), "snapshot_damaged", "snapshot_damaged"
    ),
    "a bit in the state of a copy": Case(
        lambda _, root: flip(root, COPY, -3), "snapshot_damaged", "snapshot_damaged"
    ),
    "the copy of the head, damaged": Case(
        lambda _, root: flip(root, HEAD_COPY, -3), "snapshot_damaged", "snapshot_damaged"
    ),
    "a copy in the place of another": Case(
        lambda _, root: write(root, COPY, (root / HEAD_COPY).read_bytes()),
        "snapshot_damaged",
        "snapshot_damaged",
    ),
    "an empty copy": Case(
        lambda _, root: write(root, COPY, b""), "snapshot_damaged", "snapshot_damaged"
    ),
    "a temporary file": Case(
        lambda _, root: write(root, f"{HISTORY}/.limpet-x", b"half"),
        "temporary_left",
        changed=rf"{HISTORY}/\.limpet-x",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_damage(backend: ObjectBackend, store: Store, root: Path, case: Case) -> None:
    case.damage(store.scope("s"), root)
    age(root)
    before, states = files(root), readable(store)

    found = inspect(backend)
    assert codes(found) in ([case.found], sorted((case.found, case.also)))
    assert not any(each.repaired for each in found)
    assert files(root) == before
    for each in found:
        assert each.severity == SEVERITIES[each.code]
        assert each.scope in (None, store.scope("s").key)
        assert each.scope is not None or "key=`" in each.message
        if each.code in {"copy_missing", "head_missing", "line_over", "pointer_missing"}:
            assert each.scope is not None
            assert each.id is not None

    mended = inspect(backend, repair=True)
    left = [each.code for each in mended if not each.repaired]
    assert {each.code for each in mended} >= {case.found}
    assert sorted(set(left)) == ([case.left] if case.left else [])
    after = files(root)
    touched = {name for name in before.keys() | after if before.get(name) != after.get(name)}
    assert [name for name in touched if not re.fullmatch(case.changed, name)] == []
    assert bool(touched) == bool(case.changed)
    assert readable(store) == states  # what could be read before still can be

    again = inspect(backend, repair=True)
    assert codes(again) == ([case.left] if case.left else [])
    assert not any(each.repaired for each in again)
    assert files(root) == after


def test_every_code_has_a_case() -> None:
    assert {case.found for case in CASES.values()} == SEVERITIES.keys()


def test_the_page_lists_every_code() -> None:
    part = PAGE.read_text("utf-8").partition("\n## Directories and object stores\n")[2]
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", part, re.M)
    assert len(rows) == len(dict(rows))
    assert dict(rows) == SEVERITIES
