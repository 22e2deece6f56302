"""What we export, Genkit in JavaScript reads, and what it writes, we import."""

from pathlib import Path
from typing import Any

from limpet import Store
from limpet.compat.genkit import Transfer, export_sessions, import_sessions
from tests.interop.genkit.peer import Theirs
from tests.interop.genkit.rows import Ours, Wire, wire

RICH: dict[str, Any] = {
    "text": 'NUL \0 astral 🎉 BOM \ufeff line \u2028 quote " back \\ tab \t del \x7f esc \x1b',
    "numbers": [0, -1, 1.5, 2**53 - 1, 1e300],
    "nested": {"null": None, "empty": [[], {}], "yes": True, "": "no name"},
}


def rows() -> list[Wire]:
    return [
        wire("a1", "chat"),
        wire("a2", "chat", "a1", state={"custom": RICH, "messages": []}),
        wire("a3", "chat", "a2", status="failed", error={"status": "INTERNAL", "message": "no"}),
        wire("b1", "sólo 🎉", extraField={"kept": [1]}),
    ]


def test_they_read_what_we_export(theirs: Theirs, ours: Ours, store: Store, folder: Path) -> None:
    for row in rows():
        ours.save(row)
    for _ in range(2):
        assert export_sessions(store, folder) == Transfer(4)
    for row in rows():
        assert theirs.get(row["snapshotId"]) == row
    assert [theirs.latest("chat"), theirs.latest("sólo 🎉")] == ["a3", "b1"]
    assert theirs.latest("nobody") is None


def test_we_import_what_they_write(theirs: Theirs, ours: Ours, store: Store, folder: Path) -> None:
    for row in rows():
        theirs.save(row)
    for new in (4, 0):
        done = import_sessions(store, folder)
        assert (done.count, done.count + done.unchanged, done.skipped) == (new, 4, ())
    for row in rows():
        assert ours.get(row["snapshotId"]) == row
    assert [ours.latest("chat"), ours.latest("sólo 🎉")] == ["a3", "b1"]


def test_the_bytes_are_the_same(
    theirs: Theirs, ours: Ours, store: Store, folder: Path, tmp_path: Path
) -> None:
    row = wire("a1", "chat", "a0", state={"custom": {**RICH, "numbers": [0, -1, 1.5]}})
    theirs.save(row)
    ours.save(row)
    export_sessions(store, tmp_path / "out")
    name = Path("global") / "a1.json"
    assert (tmp_path / "out" / name).read_bytes() == (folder / name).read_bytes()
    pointers = [each / "global/.pointers/chat.json" for each in (folder, tmp_path / "out")]
    first, second = (each.read_text().splitlines() for each in pointers)
    assert first[:2] == second[:2]
    assert [len(line) for line in first] == [len(line) for line in second]


def test_there_and_back(theirs: Theirs, ours: Ours, store: Store, folder: Path) -> None:
    """Each side continues what the other has written, and a branch is the latest of both."""
    parent = None
    for number in range(1, 7):
        row = wire(f"t{number}", "chat", parent)
        if number % 2:
            ours.save(row)
            export_sessions(store, folder)
        else:
            theirs.save(row)
            import_sessions(store, folder)
        parent = f"t{number}"
        assert (ours.latest("chat"), theirs.latest("chat")) == (parent, parent)
    theirs.save(wire("x9", "chat", "t1"))
    import_sessions(store, folder)
    assert (ours.latest("chat"), theirs.latest("chat")) == ("x9", "x9")


def test_tenants_are_folders(theirs: Theirs, ours: Ours, store: Store, folder: Path) -> None:
    ours.save(wire("a1", "chat"), tenant="alice")
    theirs.save(wire("a1", "chat", status="failed"), tenant="bob")
    assert export_sessions(store, folder).count == 1
    assert import_sessions(store, folder).count == 2
    for side in (ours, theirs):
        assert side.get("a1", tenant="alice")["status"] == "completed"
        assert side.get("a1", tenant="bob")["status"] == "failed"
        assert side.get("a1") is None
        assert side.latest("chat") is None
        assert side.latest("chat", tenant="alice") == "a1"
