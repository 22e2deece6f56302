"""Exports, imports and copies: everything is carried over, in order, and can be repeated."""

import io
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import portable
from limpet.errors import Conflict, Corrupt, InvalidInput
from limpet.portable import copying
from tests.cases import for_each
from tests.portable.stores import LONG, LOSSES, fill, lines, lose, save_rolled
from tests.runs.conftest import place_of
from tests.runs.hands import Place

ENGINES = ["memory", "sqlite", "directory", "postgres"]
SLOWLY = [pytest.param("s3", marks=pytest.mark.slow)]


@pytest.fixture
def full() -> Iterator[limpet.Store]:
    with limpet.open("memory:") as store:
        fill(store)
        yield store


@pytest.fixture(params=[*ENGINES, *SLOWLY])
def place(request: pytest.FixtureRequest) -> Place:
    return place_of(request.param, request)


def test_a_copy_holds_the_same(full: limpet.Store, place: Place) -> None:
    expected = lines(full)
    with limpet.open(place.url, **place.options) as target:
        done = portable.copy(full, target)
        assert lines(target) == expected
        assert done.written == done.snapshots + done.notes > 40
        for scope in full.scopes():  # not only by our own export
            ours, theirs = full.scope(*scope.key), target.scope(*scope.key)
            assert [_facts(i) for i in ours.history()] == [_facts(i) for i in theirs.history()]
            assert _facts(ours.load()) == _facts(theirs.load())
        again = portable.copy(full, target)
        assert (again.written, again.snapshots) == (0, done.snapshots)
        assert [each for each in target.check() if each.severity != "info"] == []
        with limpet.open("memory:") as back:
            portable.copy(target, back)
            assert lines(back) == expected


def _facts(info: limpet.SnapshotInfo | None) -> Any:
    if info is None:
        return None
    names = ("scope", "id", "parent_id", "forked_from", "status", "labels", "metadata", "kept")
    facts = [getattr(info, name) for name in (*names, "created_at", "size")]
    return [*facts, info.state] if isinstance(info, limpet.Snapshot) else facts


def test_an_import_holds_the_same(full: limpet.Store) -> None:
    expected = lines(full)
    whole = expected.splitlines(keepends=True)
    for end in (2, 9, len(whole) // 2, len(whole)):
        with limpet.open("memory:") as store:
            if end < len(whole):
                with pytest.raises(Corrupt, match="the export is incomplete"):
                    portable.import_lines(store, whole[:end])
                with pytest.raises(Corrupt, match=rf"incomplete. line=`{end + 1}`"):
                    portable.import_lines(store, [*whole[:end], whole[end][:-5]])
                with pytest.raises(Corrupt, match=rf"was changed .*line=`{end + 1}`"):
                    portable.import_lines(store, [*whole[:end], whole[end][:-5] + b"\n"])
            portable.import_lines(store, whole)
            assert lines(store) == expected
            assert portable.import_lines(store, whole).written == 0
            windows = b"\xef\xbb\xbf" + expected.replace(b"\n", b"\r\n")
            twice = [*windows.splitlines(keepends=True), b"\n", *whole]
            assert portable.import_lines(store, twice).written == 0


def test_a_copy_goes_on_wherever_it_was_stopped(full: limpet.Store) -> None:
    expected = lines(full)
    total = portable.copy(full, limpet.open("memory:")).snapshots
    for stop in range(0, total, 3):
        with limpet.open("memory:") as target:

            def stopping(told: portable.Progress, stop: int = stop) -> None:
                if told.snapshots > stop:
                    raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                portable.copy(full, target, report=stopping)
            portable.copy(full, target)
            assert lines(target) == expected


Step = Callable[[limpet.Scope], object]


def _steps(*steps: Step) -> Step:
    return lambda scope: [step(scope) for step in steps]


TRANSITIONS: dict[str, tuple[Step, Step]] = {
    "a draft is kept as it is": (
        lambda s: s.save(1, id="x", keep=False),
        lambda s: s.save(1, id="x"),
    ),
    "a draft is kept with another body": (
        lambda s: s.save(1, id="x", keep=False),
        lambda s: s.save(2, id="x", head=False, overwrite=True),
    ),
    "a draft is saved again": (
        lambda s: s.save(1, id="x", keep=False, created_at=datetime(2020, 1, 1, tzinfo=UTC)),
        _steps(lambda s: s.delete_snapshot("x"), lambda s: s.save(1, id="x", keep=False)),
    ),
    "a draft gives way to another": (
        _steps(lambda s: s.save(1, id="a"), lambda s: s.save(2, id="b", keep=False)),
        lambda s: s.save(3, id="c", keep=False),
    ),
    "a draft is deleted, which uncovers the newest": (
        _steps(lambda s: s.save(1, id="a"), lambda s: s.save(2, id="b", head=False)),
        _steps(lambda s: s.save(3, id="d", keep=False), lambda s: s.delete_snapshot("d")),
    ),
    "a draft stays beside what is only kept": (
        _steps(lambda s: s.save(1, id="a"), lambda s: s.save(2, id="x", keep=False)),
        lambda s: s.save(5, id="w", head=False),
    ),
    "a draft becomes a note": (
        lambda s: s.save(1, id="a", keep=False),
        _steps(lambda s: s.delete_snapshot("a"), lambda s: s.set_note("n", 1)),
    ),
    "a note is set anew": (
        _steps(lambda s: s.save(1, id="a"), lambda s: s.set_note("1", "one", on="a")),
        lambda s: s.set_note("1", "other", on="a"),
    ),
    "one in the middle is changed in place": (
        _steps(*(partial(lambda n, s: s.save(n, id=f"i{n}"), n) for n in range(3))),
        lambda s: s.update("i1", lambda before: before.with_(status="changed", state={"n": 1})),
    ),
    "a line gets its first head": (
        lambda s: s.save(1, id="a", head=False),
        lambda s: s.save(2, id="b", keep=False),
    ),
}


@pytest.mark.parametrize("engine", ["memory", "sqlite", "directory"])
def test_a_second_copy_follows(engine: str, request: pytest.FixtureRequest) -> None:
    place = place_of(engine, request)
    with limpet.open("memory:") as source, limpet.open(place.url, **place.options) as target:
        for name, steps in TRANSITIONS.items():
            for step in steps:
                step(source.scope(name))
                portable.copy(source, target)
                assert lines(target) == lines(source), name


def test_what_was_deleted_in_the_source_is_a_conflict_of_its_scope_only() -> None:
    with limpet.open("memory:") as source, limpet.open("memory:") as target:
        for session in ("a", "b", "c"):
            source.scope(session).save(1, id="1")
            source.scope(session).save(2, id="2")
        source.scope("a").set_note("n", 1)
        portable.copy(source, target)
        source.scope("a").delete_note("n")  # a note that only the target has does no harm
        source.scope("b").delete_snapshot("1")
        source.scope("c").save(3, id="3")
        told: list[limpet.Finding] = []
        done = portable.copy(source, target, conflicts=told.append)
        assert [(each.code, each.scope and each.scope.session_id) for each in told] == [
            ("conflict", "b")
        ]
        assert done.written == 1
        assert [info.id for info in target.scope("c").history()] == ["3", "2", "1"]
        with pytest.raises(Conflict, match=r"deleted in the source.*b:main"):
            portable.copy(source, target)


def test_a_copy_of_what_changes_meanwhile_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is saved, kept or deleted between two reads: a moment of the source is copied.

    Snapshot by snapshot, as over HTTP.
    """
    monkeypatch.setattr(copying, "engine_of", lambda store: None)
    changes: list[Step] = [
        lambda s: s.save(3, id="c"),
        lambda s: s.save(3, id="c", head=False),
        lambda s: s.save(3, keep=False),
        lambda s: s.delete_snapshot("b"),
        lambda s: s.restore("a"),
    ]
    for change in changes:
        for number in range(8):
            with limpet.open("memory:") as source, limpet.open("memory:") as target:
                scope = source.scope("s")
                scope.save(1, id="a")
                scope.save(2, id="b")
                _changed_at(source, number, partial(change, scope))
                portable.copy(source, target)
                if number % 2:
                    scope.save([number])
                has_deleted = scope.info("b") is None and target.scope("s").info("b") is not None
                with pytest.raises(Conflict) if has_deleted else nullcontext():
                    portable.copy(source, target)
                    assert lines(target) == lines(source)


def _changed_at(store: limpet.Store, number: int, change: Callable[[], object]) -> None:
    """Let something happen before the n-th call of the engine."""
    run = store.driver.run
    count = 0

    def counted(work: Any) -> Any:
        nonlocal count
        count += 1
        if count == number + 1:
            change()
        return run(work)

    store.driver.run = counted  # type: ignore[method-assign]


def test_a_copy_of_a_part_of_a_store(full: limpet.Store) -> None:
    with limpet.open("memory:") as target:
        portable.copy(full, target, prefix="bob/")
        assert list(target.sessions()) == ["bob/chat-1"]
        portable.copy(full, target, session_id="deep")
        assert list(target.sessions()) == ["bob/chat-1", "deep"]
    assert lines(full, session_id="bob/chat-1") == lines(full, prefix="bob/")
    assert len(lines(full, session_id="nobody").splitlines()) == 2


def test_other_saves_in_the_target_are_not_touched(full: limpet.Store) -> None:
    with limpet.open("memory:") as target:
        target.scope("older-head", kind="graph").save("mine", id="mine")
        before = lines(target)
        with pytest.raises(Conflict, match=r"holds another snapshot.*older-head:main.*mine"):
            portable.copy(full, target, session_id="older-head")
        assert lines(target) == before
    with limpet.open("memory:") as target:
        portable.copy(full, target, session_id="older-head")
        target.scope("older-head", kind="graph").save("mine", id="mine")
        target.scope("another").save(1)
        before = lines(target)
        with pytest.raises(Conflict, match="more snapshots than the source"):
            portable.copy(full, target, session_id="older-head")
        assert lines(target) == before
    with pytest.raises(InvalidInput, match="itself"):
        portable.copy(full, full.aio.sync)


def test_a_target_that_loses_something_is_found_out(full: limpet.Store) -> None:
    with limpet.open("memory:") as target:

        def meddle(told: portable.Progress) -> None:
            ids = list(target.scope("alice/chat-1", "planner").ids())
            if len(ids) > 5:
                target.scope("alice/chat-1", "planner").delete_snapshot(ids[0])

        with pytest.raises(Conflict, match="the copy differs"):
            portable.copy(full, target, session_id="alice/chat-1", report=meddle)
        portable.copy(full, target, session_id="deep", verify=False)


def test_the_lines_hold_nothing_of_the_engine(full: limpet.Store) -> None:
    first, *rest, last = found = [json.loads(line) for line in lines(full).splitlines()]
    assert all(list(record)[-1] == "check" and record.pop("check") for record in found)
    assert first == {"type": "limpet", "version": 1}
    counts = Counter(f"{record['type']}s" for record in rest)
    assert last == {"type": "end", **counts}
    address = ["type", "session_id", "kind", "scope_id"]
    keys = {
        "scope": [*address, "head"],
        "snapshot": [
            *(*address, "id", "parent_id", "forked_from", "status", "labels", "metadata"),
            *("created_at", "kept", "state"),
        ],
        "note": [*address, "on", "name", "value"],
    }
    for record in rest:
        assert list(record) == keys[record["type"]]
    places = [(r["session_id"], r["kind"], r["scope_id"]) for r in rest if r["type"] == "scope"]
    assert places == sorted(places)
    assert (LONG, "agent", LONG) in places
    notes = [(r["on"] or "", r["name"]) for r in rest if r["type"] == "note"]
    assert notes == sorted(notes)
    assert len(notes) == 9


FIRST = '{"type":"limpet","version":1}\n'
SCOPE = '{"type":"scope","session_id":"s","kind":"agent","scope_id":"m","head":"a"}\n'
SNAPSHOT = (
    '{"type":"snapshot","session_id":"s","kind":"agent","scope_id":"m","id":"a","parent_id":null,'
    '"forked_from":null,"status":"c","labels":%s,"metadata":{},"kept":true,"state":1,'
    '"created_at":"2020-01-01T00:00:00Z"}'
)


@for_each(
    "text, message",
    [
        ("", "it is empty"),
        ("hello", "the first line does not name the format"),
        ('{"type":"limpet","version":2}', "another version. found=`2`"),
        ('{"type":"limpet","version":true}', "another version. found=`True`"),
        ('{"type":"limpet","version":1}\n{"type":"sc', "line=`2`"),
        ('{"type":"limpet","version":1}\n{"a":NaN}', "not JSON: "),
        (FIRST + SCOPE + SNAPSHOT % "[]", "not valid. line=`3`"),
        (FIRST + SCOPE + SNAPSHOT % "null", "not valid. line=`3`"),
        (FIRST + SCOPE + SNAPSHOT % '{"a":1}', "must be text. type=`int` line=`3`"),
        ('{"type":"limpet","version":1}\n\n[]', "not valid. line=`3`"),
        ('{"type":"limpet","version":1}\n{"type":"other"}', "not valid. line=`2`"),
        (
            '{"type":"limpet","version":1}\n{"type":"note","session_id":"s","kind":"agent",'
            '"scope_id":"m","on":null,"name":"n","value":1}',
            "not below its scope",
        ),
        (
            '{"type":"limpet","version":1}\n{"type":"scope","session_id":"","kind":"agent",'
            '"scope_id":"m","head":null}',
            "line=`2`",
        ),
    ],
)
def test_what_is_no_export_is_refused(text: str, message: str) -> None:
    with limpet.open("memory:") as store:
        with pytest.raises(InvalidInput) as refused:
            portable.import_lines(store, [line + b"\n" for line in text.encode().splitlines()])
        assert message in str(refused.value)
        assert list(store.sessions()) == []


def test_damage_is_reported_and_left_out(tmp_path: Path, full: limpet.Store) -> None:
    """A segment that cannot be read, a head whose last states are damaged, and a head that is."""
    with limpet.open(str(tmp_path)) as store:
        for name in ("segment", "states", "head"):
            save_rolled(store.scope(name), tmp_path)
    (segment,) = (tmp_path / "sessions" / "segment").rglob("segments/*")
    segment.write_bytes(segment.read_bytes()[:-20])
    for name, kept in (("states", -20), ("head", 200)):
        (head,) = (tmp_path / "sessions" / name).rglob("head")
        head.write_bytes(head.read_bytes()[:kept])
    with limpet.open(str(tmp_path)) as store, limpet.open("memory:") as target:
        done = portable.copy(store, target)
        found = {(each.scope.session_id, each.code) for each in done.skipped if each.scope}
        assert found >= {
            ("segment", "segment_damaged"),
            ("states", "state_damaged"),
            ("head", "damaged"),
        }
        ids = [f"id-{number}" for number in range(8)]
        newest = list(target.scope("segment").ids())
        assert newest
        assert newest == ids[-len(newest) :]
        assert list(target.scope("states").ids()) == ids[:-1]
        with pytest.raises(Corrupt):
            lines(store)


def test_damage_of_a_file_is_reported_and_left_out(tmp_path: Path) -> None:
    """A scope whose row cannot be read, a snapshot, and a state."""
    path = tmp_path / "store.db"
    with limpet.open(f"sqlite:///{path}") as store:
        for name in ("scope", "row", "state", "sound"):
            for number in range(3):
                store.scope(name).save({"n": number}, id=f"{name}-{number}")
        at = "(SELECT seq FROM snapshots WHERE id = '{}-1')"
        with closing(sqlite3.connect(path, isolation_level=None)) as conn:
            conn.execute("UPDATE scopes SET last = last + 5 WHERE session_id = 'scope'")
            conn.execute(f"UPDATE snapshots SET status = 'x' WHERE seq = {at.format('row')}")
            conn.execute(f"UPDATE tails SET body = x'5b5d' WHERE seq = {at.format('state')}")
        with pytest.raises(Corrupt):
            list(portable.export_lines(store))
        with limpet.open("memory:") as target:
            done = portable.copy(store, target)
            found = {each.scope.session_id for each in done.skipped if each.scope}
            assert found == {"scope", "row", "state"}
            left = {name: list(target.scope(name).ids()) for name in ("row", "state", "sound")}
        assert left["row"] == ["row-0", "row-2"]
        assert left["state"] == ["state-0", "state-2"]
        assert len(left["sound"]) == 3


@pytest.mark.slow
def test_every_flipped_bit_of_an_export_is_noticed() -> None:
    with limpet.open("memory:") as store:
        store.scope("s").save({"n": 1, "text": "some"}, id="a", labels={"l": "x"})
        store.scope("s").set_note("n", [1], on="a")
        whole = lines(store)
    for bit in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        with limpet.open("memory:") as target, pytest.raises((Corrupt, InvalidInput)):
            portable.import_lines(target, io.BytesIO(flipped))


@for_each("change", ["drop", "twice", "swap", "line ends", "bom"])
def test_lines_stay_as_they_were_written(full: limpet.Store, change: str) -> None:
    found = lines(full).splitlines(keepends=True)
    at = next(n for n, line in enumerate(found) if b'"on":"a-"' in line)
    if change == "drop":
        del found[at]
    elif change == "twice":
        found[at + 1] = found[at]  # as many as before
    elif change == "swap":
        found[at], found[at + 1] = found[at + 1], found[at]
    elif change == "line ends":
        found = [line.replace(b"\n", b"\r\n") for line in found]
        found[-1] = found[-1].rstrip()
    else:
        found[0] = b"\xef\xbb\xbf" + found[0]
    with limpet.open("memory:") as target:
        if change in ("line ends", "bom"):
            portable.import_lines(target, found)
            assert lines(target) == lines(full)
        else:
            with pytest.raises(Corrupt, match=f"line=`{at + 2 - (change != 'twice')}`"):
                portable.import_lines(target, found)


def test_a_line_is_bounded_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "sparse.jsonl"
    with path.open("wb") as file:
        file.write(FIRST.encode())
        file.truncate(20 * 1024**3)
    with limpet.open("memory:?state_bytes_max=1000") as store:
        with path.open("rb") as file, pytest.raises(InvalidInput, match=r"too long\. line=`2`"):
            portable.import_lines(store, file)
        long = b'{"type":"scope","x":[' + b"[]," * 400_000 + b"0]}\n"
        with pytest.raises(InvalidInput, match=r"too long\. line=`2`"):
            portable.import_lines(store, [FIRST.encode(), long])


@for_each("what", LOSSES)
def test_what_no_listing_shows_is_named(tmp_path: Path, what: str) -> None:
    root = tmp_path / what / "store"
    with limpet.open(str(root)) as store:
        save_rolled(store.scope("a", "p"), root)
        store.scope("b", "p").save({"n": 9})
        store.scope("gone").save(1)
        store.scope("gone").delete()
        assert portable.copy(store, limpet.open("memory:")).skipped == ()
    lose(root, what)
    with limpet.open(str(root)) as store:
        done = portable.copy(store, limpet.open("memory:"))
        codes = {
            "head lost": ["damaged"],
            "head link": ["damaged", "link_skipped"],
            "segment link": ["segment_missing", "link_skipped"],
        }
        assert [each.code for each in done.skipped] == codes.get(what, ["link_skipped"])
        assert all("a" in str(each.scope or each.message) for each in done.skipped)
        told: list[limpet.Finding] = []
        assert list(portable.export_lines(store, skipped=told.append))
        assert tuple(told) == done.skipped
        with pytest.raises(Corrupt):
            lines(store)
        assert portable.copy(store, limpet.open("memory:"), session_id="b").skipped == ()


def test_the_page_says_how_lines_are_checked(
    full: limpet.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "format.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page.partition("## Part five")[2], re.S)
    monkeypatch.chdir(tmp_path)
    Path("agents.jsonl").write_bytes(lines(full))
    exec(example, {})
    Path("agents.jsonl").write_bytes(lines(full).replace(b"message 1 ", b"message 2 "))
    with pytest.raises(AssertionError):
        exec(example, {})
