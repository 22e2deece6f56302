"""Check and repair of a folder.

Every row of the table in docs/check.md is a case here. Files are compared byte by byte: what repair
does not mend stays as it is.
"""

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from limpet import Corrupt, Scope, Store, Unsupported
from limpet.backends.buckets.directory.bucket import DirectoryBucket
from limpet.backends.objects.format import VERSION, facts_end
from limpet.backends.objects.mending import SEVERITIES
from limpet.cli._app import run
from limpet.engine import Engine
from limpet.engine.rolling import Limits
from limpet.model import Finding
from limpet.opening import CLOCK, store_over
from tests.buckets.opened import engine_on
from tests.cases import for_each
from tests.unit.sql_damage import codes, inspect

PAGE = Path(__file__).resolve().parents[2] / "docs" / "check.md"
FOLDER = "sessions/s/scopes/agent/main/snapshots"
HEAD = f"{FOLDER}/head"
INDEX = ".limpet/index"
LONG = "L" * 300  # longer than a name in a key may be
LABELS = {"colour": "red"}
# The new head, the old one, and pointers to what was in its tail.
REBUILT = rf"{FOLDER}/(head|damaged/.*)|{INDEX}/.*"
PART = f"{1:016x}.{2:016x}.after-{3:016x}"
TAILS = Limits(3, newest_bytes=32 * 1024)


def engine(root: Path) -> Engine:
    bucket = DirectoryBucket(
        str(root),
        token=lambda: os.urandom(8).hex(),
        now=lambda: time.time_ns() // 1000,
        clock=CLOCK,
        sync=False,
    )
    return engine_on(bucket, tails=TAILS)


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


def age(root: Path) -> None:
    """Make every file as old as if it had been written days ago."""
    then = time.time() - 2 * 86_400
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            os.utime(path, (then, then))


def noise(seed: int) -> str:
    return "".join(f"{(seed + 1) * 7919 * each % 1_000_003:06d}" for each in range(1, 4000))


def fill(store: Store) -> None:
    """Make a scope with a segment and a page of notes, another one, and one with long names."""
    scope = store.scope("s")
    for at in range(70):  # more than are in a head
        scope.set_note(f"m{at}", at)
    for at, id in enumerate("abcd"):
        scope.save({"id": id, "text": noise(at)}, id=id, labels=LABELS)
        scope.set_note("n", id, on=id)
    scope.set_note("n", 1)
    store.scope("other").save({"id": "o"}, id="o", labels=LABELS)
    store.scope(LONG, LONG).save({"id": LONG}, id=LONG, labels={LONG[:200]: LONG[:200]})
    store.scope(LONG, LONG).set_note(LONG, 1, on=LONG)


Filled = tuple[Store, Engine, Path]


@contextmanager
def filled(folder: Path) -> Iterator[Filled]:
    root = folder / "store"
    backend = engine(root)
    with store_over(backend) as store:
        fill(store)
        assert segment_in(root)
        yield store, backend, root


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Filled]:
    with filled(tmp_path) as found:
        yield found


@pytest.fixture
def store(opened: Filled) -> Store:
    return opened[0]


@pytest.fixture
def backend(opened: Filled) -> Engine:
    return opened[1]


@pytest.fixture
def root(opened: Filled) -> Path:
    return opened[2]


def readable(root: Path) -> dict[tuple[str, str], Any]:
    """Return the states and labels of all snapshots that can be read by their ids."""
    found = {}
    with store_over(engine(root)) as store:
        for session, scope, ids in (
            ("s", "main", "abcd"),
            ("other", "main", "o"),
            (LONG, LONG, [LONG]),
        ):
            for id in ids:
                with suppress(Corrupt, Unsupported):
                    one = store.scope(session, scope).load(id)
                    if one is not None:
                        found[session, id] = (one.state, dict(one.labels))
    return found


# Damage


def segment_in(root: Path) -> str:
    (found,) = (root / FOLDER / "segments").iterdir()
    return f"{FOLDER}/segments/{found.name}"


def page_in(root: Path) -> str:
    (found,) = (root / FOLDER / "notes").iterdir()
    return f"{FOLDER}/notes/{found.name}"


def flip(root: Path, name: str, at: int | None = None, *, behind: int = 0) -> None:
    """Flip a bit, at a place or some bytes behind the end of the facts."""
    stored = bytearray((root / name).read_bytes())
    stored[facts_end(bytes(stored)) + behind if at is None else at] ^= 1
    (root / name).write_bytes(stored)


def change(root: Path, name: str, old: bytes, new: bytes) -> None:
    stored = (root / name).read_bytes()
    assert old in stored
    (root / name).write_bytes(stored.replace(old, new, 1))


def write(root: Path, name: str, data: bytes) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(data)


def unlink_pointer(root: Path, part: str, name: str) -> None:
    """Remove a pointer to `s`."""
    found = [each for each in (root / INDEX / part).rglob("*") if re.search(name, each.name)]
    mine = [each for each in found if each.is_file() and each.name.partition("s.agent")[1]]
    mine[0].unlink()


class Case(NamedTuple):
    """Damage, the code that check finds, the code left after a repair, and what repair changes.

    `changed` matches the names of the files that repair writes or removes; all others stay.
    """

    damage: Callable[[Scope, Path], object]
    found: str
    left: str = ""
    changed: str = ""


ASIDE = rf"{FOLDER}/(head|segments/.*|notes/.*|damaged/.*)|{INDEX}/(ids|labels)/.*"
V, NEXT_V = b'"v":%d' % VERSION, b'"v":%d' % (VERSION + 1)

CASES = {
    "a file next to sessions": Case(
        lambda _, root: write(root, "sessions/readme.txt", b"hello"), "foreign_file", "foreign_file"
    ),
    "a file in the folder of a scope": Case(
        lambda _, root: write(root, f"{FOLDER}/.DS_Store", b"\0"), "foreign_file", "foreign_file"
    ),
    "a file in the index": Case(
        lambda _, root: write(root, f"{INDEX}/ids/x", b""), "foreign_file", "foreign_file"
    ),
    "a link": Case(
        lambda _, root: (root / FOLDER / "segments" / "x").symlink_to(root / HEAD),
        "foreign_file",
        "foreign_file",
    ),
    "a bit in the description of the head": Case(
        lambda _, root: flip(root, HEAD, 30), "head_damaged", changed=REBUILT
    ),
    "a bit in the facts of the head": Case(
        lambda _, root: flip(root, HEAD, 300),
        "head_damaged",
        changed=REBUILT,
    ),
    "an empty head": Case(
        lambda _, root: write(root, HEAD, b""),
        "head_damaged",
        changed=REBUILT,
    ),
    "the head of another scope": Case(
        lambda _, root: write(root, HEAD, (root / HEAD.replace("/s/", "/other/")).read_bytes()),
        "head_damaged",
        changed=REBUILT,
    ),
    "a head of another version": Case(
        lambda _, root: change(root, HEAD, V, NEXT_V), "head_damaged", "head_damaged"
    ),
    "a bit in a state of the head": Case(
        lambda _, root: flip(root, HEAD, behind=9), "state_damaged", "state_damaged"
    ),
    "a bit in a note of the head": Case(
        lambda _, root: flip(root, HEAD, -2), "note_damaged", "note_damaged"
    ),
    "no head": Case(lambda _, root: (root / HEAD).unlink(), "head_missing", changed=REBUILT),
    "an encrypted head": Case(
        lambda _, root: write(root, HEAD, b"\1encrypted"), "keys_wrong", "keys_wrong"
    ),
    "an encrypted segment": Case(
        lambda _, root: write(root, segment_in(root), b"\1encrypted"), "keys_wrong", "keys_wrong"
    ),
    "an encrypted page of notes": Case(
        lambda _, root: write(root, page_in(root), b"\1encrypted"), "keys_wrong", "keys_wrong"
    ),
    "a bit in a note of a page": Case(
        lambda _, root: flip(root, page_in(root), -2), "note_damaged", "note_damaged"
    ),
    "a bit in the facts of a page of notes": Case(
        lambda _, root: flip(root, page_in(root), behind=-9), "note_damaged", changed=ASIDE
    ),
    "a page of notes in the place of another": Case(
        lambda _, root: change(root, page_in(root), b'"name":"0', b'"name":"1'),
        "note_damaged",
        changed=ASIDE,
    ),
    "no page of notes": Case(
        lambda _, root: (root / page_in(root)).unlink(), "notes_missing", changed=ASIDE
    ),
    "a page of notes of a killed writer": Case(
        lambda _, root: write(root, f"{FOLDER}/notes/{PART}", b"half"),
        "notes_left",
        changed=f"{FOLDER}/notes/{PART}",
    ),
    "the sign that another line has begun": Case(
        lambda _, root: write(root, f"{FOLDER}/started.{1:016x}", b""),
        "pointer_dangling",
        changed=f"{FOLDER}/started.{1:016x}",
    ),
    "pointers to what is gone": Case(
        lambda _, root: write(root, f"{INDEX}/ids/b/s.agent.main.{1:016x}", b""),
        "pointer_dangling",
        changed=rf"{INDEX}/ids/b/.*",
    ),
    "no pointer by id": Case(
        lambda _, root: unlink_pointer(root, "ids/a", "s.agent"),
        "pointer_missing",
        changed=rf"{INDEX}/ids/a/.*",
    ),
    "no pointer by label": Case(
        lambda _, root: unlink_pointer(root, "labels", r"\.s\.agent"),
        "pointer_missing",
        changed=rf"{INDEX}/labels/.*",
    ),
    "no pointer to the line": Case(
        lambda _, root: unlink_pointer(root, "lines", "^s.agent"),
        "pointer_missing",
        changed=rf"{INDEX}/lines/.*",
    ),
    "a bit in the facts of a segment": Case(
        lambda _, root: flip(root, segment_in(root), behind=-9), "segment_damaged", changed=ASIDE
    ),
    "a bit in a state of a segment": Case(
        lambda _, root: flip(root, segment_in(root), -3), "segment_damaged", changed=ASIDE
    ),
    "a segment that is cut": Case(
        lambda _, root: write(root, segment_in(root), (root / segment_in(root)).read_bytes()[:900]),
        "segment_damaged",
        changed=ASIDE,
    ),
    "a segment of a killed writer": Case(
        lambda _, root: write(root, f"{FOLDER}/segments/{PART}", b"half"),
        "segment_left",
        changed=f"{FOLDER}/segments/{PART}",
    ),
    "a segment of another version": Case(
        lambda _, root: change(root, segment_in(root), V, NEXT_V),
        "segment_damaged",
        "segment_damaged",
    ),
    "no segment": Case(
        lambda _, root: (root / segment_in(root)).unlink(), "segment_missing", changed=ASIDE
    ),
    "a temporary file": Case(
        lambda _, root: write(root, f"{FOLDER}/.limpet-x", b"half"),
        "temporary_left",
        changed=rf"{FOLDER}/\.limpet-x",
    ),
}


@pytest.mark.timeout(300)
@for_each("name", CASES)
def test_damage(tmp_path: Path, name: str) -> None:
    with filled(tmp_path) as (store, backend, root):
        check_case(store, backend, root, CASES[name])


def check_case(store: Store, backend: Engine, root: Path, case: Case) -> None:
    case.damage(store.scope("s"), root)
    age(root)
    before, states = files(root), readable(root)

    found = inspect(backend)
    assert codes(found) == [case.found]
    assert not any(each.repaired for each in found)
    assert files(root) == before
    for each in found:
        assert each.severity == SEVERITIES[each.code]
        assert each.scope in (None, store.scope("s").key)
        assert each.scope is not None or "key=`" in each.message

    mended = inspect(backend, repair=True)
    left = [each.code for each in mended if not each.repaired]
    assert {each.code for each in mended} >= {case.found}
    assert sorted(set(left)) == ([case.left] if case.left else [])
    after = files(root)
    touched = {name for name in before.keys() | after if before.get(name) != after.get(name)}
    assert [name for name in touched if not re.fullmatch(case.changed, name)] == []
    assert bool(touched) == bool(case.changed)
    assert readable(root).items() >= states.items()  # what could be read before still can be

    again = inspect(backend, repair=True)
    # What was set aside is no longer ours, and what was in a lost tail needs no pointers.
    kept = {"foreign_file", "pointer_dangling"} if "damaged/" in case.changed else set()
    assert set(codes(again)) - kept == ({case.left} if case.left else set())


def test_every_code_has_a_case() -> None:
    unlike = {"link_skipped"}  # reported by `overview` alone
    assert {case.found for case in CASES.values()} == SEVERITIES.keys() - unlike


def test_the_page_lists_every_code() -> None:
    part = PAGE.read_text("utf-8").partition("\n## Directories and object stores\n")[2]
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", part, re.M)
    assert len(rows) == len(dict(rows))
    assert dict(rows) == SEVERITIES


# Pages


@pytest.mark.parametrize("repair", [False, True])
def test_pages_go_over_everything_once(store: Store, root: Path, repair: bool) -> None:
    for number in range(3):
        folder = f"sessions/w-{number}/scopes/agent/main/snapshots"
        store.scope(f"w-{number}").save({"n": number})
        flip(root, f"{folder}/head", -3)
        write(root, f"{folder}/foreign.txt", b"")
        write(root, f"{folder}/notes/{PART}", b"x")
        write(root, f"{folder}/.limpet-{number}", b"half")
    age(root)

    def facts(found: list[Finding]) -> list[tuple[Any, ...]]:
        return sorted((each.code, str(each.scope), each.message) for each in found)

    whole = facts(inspect(engine(root), limit=10_000))
    assert len(whole) == 3 * 4
    assert facts(inspect(engine(root), repair=repair, limit=1)) == whole


# A store in use


def use(store: Store, rounds: int, name: str) -> None:
    """Do something of everything."""
    for number in range(rounds):
        scope = store.scope(f"use-{name}")
        first = scope.save({"n": number, "text": noise(number)}, labels={"n": str(number % 3)})
        scope.save({"n": number}, keep=False)
        scope.append("items", [number])
        scope.save({"n": number}, head=False, labels=LABELS)
        scope.update(first.id, lambda was: was.with_(labels={"new": "label"}))
        scope.set_note("n", number, on=first.id)
        scope.fork(first.id, scope_id=f"fork-{number}")
        if number % 2:
            head = scope.info()
            assert head is not None
            scope.delete_snapshot(head.id)
            scope.delete_note("n", on=first.id)
        scope.prune(keep_last=4)
        store.scope(f"gone-{name}").save({"n": number})
        store.delete_session(f"gone-{name}")


def test_a_store_that_was_used_is_healthy(tmp_path: Path) -> None:
    backend = engine(tmp_path)
    with store_over(backend) as store:
        use(store, 6, "x")
        assert codes(inspect(backend)) in ([], ["pointer_dangling"])
        inspect(backend, repair=True)
        before = files(tmp_path)
        age(tmp_path)
        assert inspect(backend, repair=True) == []
        assert backend.compact() == 0
        assert files(tmp_path) == before


def test_a_store_that_others_write_to_is_healthy(root: Path) -> None:
    """What a writer has in progress is no damage, and repairing does no harm."""
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
    assert failed == []
    # A deletion removes a pointer to the scope before its head; a first save writes one after it.
    odd = [each for each in found if each.severity != "info"]
    assert {(each.code, each.scope and each.scope.session_id) for each in odd} <= {
        ("pointer_missing", "gone-x"),
        ("pointer_missing", "use-x"),
    }


# The command line


def test_the_command_shows_them(
    store: Store, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"file://{root}"
    assert run(["check", "--url", url]) == 0
    assert capsys.readouterr().out == "✓ no errors\n"

    (root / HEAD).unlink()
    assert run(["check", "--url", url]) == 5
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("error    head_missing  the head of a scope is missing. key=`")
    assert lines[1] == "         s · main · agent"

    assert run(["check", "--repair", "--json", "--url", url]) in (0, 5)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (row,) = (each for each in rows if each["code"] != "pointer_dangling")
    assert (row["code"], row["repaired"]) == ("head_missing", True)
    assert "what was saved later is lost" in row["message"]
    left = [info.id for info in store.scope("s").history()]
    assert left[0] == row["id"]
    assert left == list("abcd")[: len(left)][::-1]
