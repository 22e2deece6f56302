"""Promise 10, bit by bit: one flipped bit anywhere in a SQLite file.

Each answer is right, or `Corrupt`, or a listing without the damaged row; no error is foreign, and
`check` itself never fails. `is_explained` has the exceptions, which docs/format.md explains.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

import limpet
from limpet import Corrupt, LimpetError, ScopeInfo, SnapshotInfo, Stats, Store
from tests.cases import for_each

SESSIONS = ("s", "other")
IDS = ["id-0", "id-1", "id-2"]
PAGE_BYTES = 512  # the smallest, so that every bit can be tried


def make(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        for statement in (f"page_size = {PAGE_BYTES}", "auto_vacuum = INCREMENTAL"):
            conn.execute(f"PRAGMA {statement}")
        conn.execute("VACUUM")
    with limpet.open(f"sqlite:///{path}", synchronous="off") as store:
        for session in SESSIONS:
            scope = store.scope(session)
            for number, id in enumerate(IDS):
                state = {"messages": [f"{session} {each}" for each in range(number + 1)]}
                scope.save(state, id=id, labels={"n": id}, metadata={"m": id}, status="good")
            scope.save({"last": session}, id=f"only-{session}", head=False)
            scope.set_note("on it", {"v": 1}, on=IDS[0])
            scope.set_note("a", 1)
        store.scope("s").fork(IDS[1], scope_id="fork")
        store.scope("s").save({"draft": True}, id="draft", keep=False)


def questions(store: Store) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield what is asked of a store; a list may lack what is damaged."""
    yield "sessions", lambda: list(store.sessions())
    yield "scopes", lambda: list(store.scopes())
    yield "store.history", lambda: list(store.history())
    yield "by label", lambda: list(store.history(labels={"n": IDS[1]}))
    yield "find", lambda: [info for info in [store.find("only-s")] if info is not None]
    yield "stats", lambda: isinstance(store.stats(), Stats)  # counts what is there, damaged or not
    for key in (("s", "main"), ("s", "fork"), ("other", "main")):
        scope = store.scope(*key)
        yield f"{key} info", scope.info
        yield f"{key} head", scope.load
        yield f"{key} ids", partial(listed, scope.ids)
        yield f"{key} history", partial(listed, scope.history)
        yield f"{key} notes", partial(listed, scope.notes)
        yield f"{key} notes on", partial(listed, scope.notes, on=IDS)
        yield f"{key} note", partial(scope.note, "a")
        for each in [*IDS, "draft"]:
            yield f"{key} load {each}", partial(scope.load, each)


def listed(verb: Callable[..., Iterable[Any]], **options: Any) -> list[Any]:
    return list(verb(**options))


def answers(store: Store) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, ask in questions(store):
        try:
            found[name] = ask()
        except Corrupt:
            found[name] = Corrupt
        except Exception as error:
            found[name] = error
    return found


def is_right(answer: Any, expected: Any) -> bool:
    if answer is Corrupt or bool(answer == expected):
        return True
    if isinstance(answer, list):  # without the damaged ones, in the same order
        rest = iter(expected)
        return all(any(is_same(each, other) for other in rest) for each in answer)
    return False


def is_same(listed: Any, expected: Any) -> bool:
    """A scope is listed without its head if that is damaged."""
    if isinstance(listed, ScopeInfo) and listed.head is None:
        return bool(listed.key == expected.key)
    return bool(listed == expected)


class Flips:
    """Tries a flipped bit on a copy of one small file."""

    def __init__(self, folder: Path) -> None:
        make(folder / "made.db")
        self.path = folder / "flipped.db"
        self.intact = (folder / "made.db").read_bytes()
        with closing(sqlite3.connect(folder / "made.db")) as conn:
            self.pages = dict(conn.execute("SELECT pageno, name FROM dbstat").fetchall())
        self.expected = self.attempt(None)

    def page_of(self, bit: int) -> str:
        """Return the table or index that a bit belongs to."""
        return str(self.pages.get(bit // 8 // PAGE_BYTES + 1, "free"))

    def attempt(self, bit: int | None) -> dict[str, Any]:
        """Return all answers of a file with one bit flipped, and what became of writes."""
        content = bytearray(self.intact)
        if bit is not None:
            content[bit // 8] ^= 1 << bit % 8
        for suffix in ("-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        self.path.write_bytes(content)
        try:
            store = limpet.open(f"sqlite:///{self.path}", synchronous="off")
        except LimpetError as error:
            return {"open": type(error)}
        except Exception as error:
            return {"open": error}
        with store:
            found = answers(store)
            try:
                found["check"] = [each.code for each in store.check() if each.severity != "info"]
            except Exception as error:
                found["check"] = error
            found["writes"] = dict(writes(store))
        return found


def writes(store: Store) -> Iterator[tuple[str, Any]]:
    """Write everywhere; yield the errors that are not ours, and what was not kept."""
    for session in SESSIONS:
        scope = store.scope(session)
        verbs: dict[str, Callable[[], Any]] = {
            "save": partial(scope.save, {"messages": ["new"]}),
            "append": partial(scope.append, "messages", ["more"]),
            "note": partial(scope.set_note, "a", 2),
            "delete": partial(scope.delete_snapshot, IDS[1]),
        }
        for name, verb in verbs.items():
            try:
                done = verb()
                if isinstance(done, SnapshotInfo) and scope.load(done.id) is None:
                    head = scope.load()  # found without the index of ids
                    is_kept = head is not None and head.revision == done.revision
                    yield f"{session} {name}", "absent" if is_kept else "lost"
            except LimpetError:
                pass
            except Exception as error:
                yield f"{session} {name}", error


def faults(flips: Flips, bit: int) -> list[str]:
    """Return what is wrong with the answers of a file with one bit flipped."""
    found = flips.attempt(bit)
    if "open" in found:
        return [] if isinstance(found["open"], type) else [f"open: {found['open']!r}"]
    writes, check = found.pop("writes"), found.pop("check")
    bad = [f"{name}: {error}{'' if check else ' UNSEEN'}" for name, error in writes.items()]
    if isinstance(check, Exception):
        bad.append(f"check: {check!r}")
    for name, answer in found.items():
        if not is_right(answer, flips.expected[name]):
            what = repr(answer) if isinstance(answer, Exception) else "wrong"
            what = "absent" if answer is None else what
            bad.append(f"{name}: {what}{'' if check else ' UNSEEN'}")
    return bad


def is_explained(fault: str, page: str) -> bool:
    """Promise 10 says what one flipped bit may do.

    A name that is lost from its only index, or whose index is looked for elsewhere, is not found,
    which `check` reports.
    """
    indexes = ("sqlite_autoindex_", "snapshots_by_id", "snapshots_anywhere", "sqlite_schema")
    is_index = page.startswith(indexes)
    return is_index and fault.endswith(": absent")


@pytest.fixture(scope="module")
def flips(tmp_path_factory: pytest.TempPathFactory) -> Flips:
    return Flips(tmp_path_factory.mktemp("flips"))


def unexplained(flips: Flips, bits: Iterable[int]) -> list[tuple[int, str, str]]:
    found = ((bit, flips.page_of(bit), fault) for bit in bits for fault in faults(flips, bit))
    return [(bit, page, fault) for bit, page, fault in found if not is_explained(fault, page)]


def test_the_intact_file_answers_everything(flips: Flips) -> None:
    assert flips.expected["check"] == []
    assert flips.expected["writes"] == {}
    assert not [name for name, each in flips.expected.items() if isinstance(each, type)]


def test_some_bits(flips: Flips) -> None:
    count = len(flips.intact) * 8
    assert unexplained(flips, Random(7).sample(range(count), 30)) == []


@for_each("table", ["scopes", "snapshots", "tails", "notes", "labels"])
def test_some_bits_of_a_table(flips: Flips, table: str) -> None:
    """The bytes in use are at the end of a page; the types of the values are among them."""
    bits = [bit for bit in range(len(flips.intact) * 8) if flips.page_of(bit) == table]
    used = [bit for bit in bits if flips.intact[bit // 8]]
    assert unexplained(flips, Random(table).sample(used, 12)) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("part", "parts"),
    [(0, 610), *(pytest.param(n, 61, marks=pytest.mark.torture) for n in range(61))],
)
def test_every_bit(flips: Flips, part: int, parts: int) -> None:
    assert unexplained(flips, range(part, len(flips.intact) * 8, parts)) == []
