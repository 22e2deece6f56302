"""Exports, imports and copies: everything is carried over, in order, and can be repeated."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import portable
from holdfast.errors import Conflict, Corrupt, InvalidInput
from tests.portable.stores import LONG, fill, lines
from tests.runs.conftest import place_of
from tests.runs.hands import Place

ENGINES = ["memory", "sqlite", "directory", "postgres"]
SLOWLY = [pytest.param("s3", marks=pytest.mark.slow)]


@pytest.fixture
def full() -> Iterator[holdfast.Store]:
    with holdfast.open("memory:") as store:
        fill(store)
        yield store


@pytest.fixture(params=[*ENGINES, *SLOWLY])
def place(request: pytest.FixtureRequest) -> Place:
    return place_of(request.param, request)


def test_a_copy_holds_the_same(full: holdfast.Store, place: Place) -> None:
    expected = lines(full)
    with holdfast.open(place.url, **place.options) as target:
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
        with holdfast.open("memory:") as back:
            portable.copy(target, back)
            assert lines(back) == expected


def _facts(info: holdfast.SnapshotInfo | None) -> Any:
    if info is None:
        return None
    names = ("scope", "id", "parent_id", "forked_from", "status", "labels", "metadata", "kept")
    facts = [getattr(info, name) for name in (*names, "created_at", "size")]
    return [*facts, info.state] if isinstance(info, holdfast.Snapshot) else facts


def test_an_import_holds_the_same(full: holdfast.Store) -> None:
    expected = lines(full)
    whole = expected.splitlines(keepends=True)
    for end in (2, 9, len(whole) // 2, len(whole)):
        with holdfast.open("memory:") as store:
            cut = [*whole[:end], whole[end][:-5]] if end < len(whole) else whole
            if end < len(whole):
                with pytest.raises((InvalidInput, Conflict), match=r"cut off|shows something else"):
                    portable.import_lines(store, cut)
            portable.import_lines(store, whole)
            assert lines(store) == expected
            assert portable.import_lines(store, whole).written == 0


def test_a_copy_goes_on_wherever_it_was_stopped(full: holdfast.Store) -> None:
    expected = lines(full)
    total = portable.copy(full, holdfast.open("memory:")).snapshots
    for stop in range(0, total, 3):
        with holdfast.open("memory:") as target:

            def stopping(told: portable.Progress, stop: int = stop) -> None:
                if told.snapshots > stop:
                    raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                portable.copy(full, target, report=stopping)
            portable.copy(full, target)
            assert lines(target) == expected


def test_what_is_new_or_changed_is_brought_over(full: holdfast.Store) -> None:
    with holdfast.open("memory:") as target:
        portable.copy(full, target)
        chat = full.scope("alice/chat-1", "planner")
        chat.append("more", [1])  # on the draft, which is gone by it
        middle = next(iter(chat.history(limit=1, after=next(chat.history()).id))).id
        chat.update(middle, lambda before: before.with_(status="changed", state={"n": 1}))
        full.scope("noted").set_note("1", "other", on="a")
        full.scope("older-head", kind="graph").save([3], keep=False)
        assert portable.copy(full, target).written == 4
        assert lines(target) == lines(full)
        full.scope("older-head", kind="graph").delete_snapshot(
            holdfast_id(full.scope("older-head", kind="graph"))
        )
        portable.copy(full, target)
        shown = target.scope("older-head", kind="graph").info()
        assert shown is not None
        assert shown.kept


def holdfast_id(scope: holdfast.Scope) -> str:
    info = scope.info()
    assert info is not None
    return info.id


def test_a_part_of_a_store(full: holdfast.Store) -> None:
    with holdfast.open("memory:") as target:
        portable.copy(full, target, prefix="bob/")
        assert list(target.sessions()) == ["bob/chat-1"]
        portable.copy(full, target, session_id="deep")
        assert list(target.sessions()) == ["bob/chat-1", "deep"]
    assert lines(full, session_id="bob/chat-1") == lines(full, prefix="bob/")
    assert len(lines(full, session_id="nobody").splitlines()) == 1


def test_other_saves_in_the_target_are_not_touched(full: holdfast.Store) -> None:
    with holdfast.open("memory:") as target:
        target.scope("older-head", kind="graph").save("mine", id="mine")
        before = lines(target)
        with pytest.raises(Conflict, match=r"something else in this scope.*older-head:main.*mine"):
            portable.copy(full, target, session_id="older-head")
        assert lines(target) == before
    with holdfast.open("memory:") as target:
        portable.copy(full, target, session_id="older-head")
        target.scope("older-head", kind="graph").save("mine", id="mine")
        target.scope("another").save(1)
        before = lines(target)
        with pytest.raises(Conflict, match="more in this scope than in the source"):
            portable.copy(full, target, session_id="older-head")
        assert lines(target) == before
    with pytest.raises(InvalidInput, match="itself"):
        portable.copy(full, full.aio.sync)


def test_a_target_that_loses_something_is_found_out(full: holdfast.Store) -> None:
    with holdfast.open("memory:") as target:

        def meddle(told: portable.Progress) -> None:
            target.scope("alice/chat-1", "planner").set_note("meddled", told.snapshots)

        with pytest.raises(Conflict, match="does not hold what was read"):
            portable.copy(full, target, session_id="alice/chat-1", report=meddle)
        portable.copy(full, target, session_id="deep", verify=False)


def test_the_lines_hold_nothing_of_the_engine(full: holdfast.Store) -> None:
    first, *rest = (json.loads(line) for line in lines(full).splitlines())
    assert first == {"type": "holdfast", "version": 1}
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        ("hello", "the first line does not say so"),
        ('{"type":"holdfast","version":2}', "another version. found=`2`"),
        ('{"type":"holdfast","version":1}\n{"type":"sc', "cut off? line=`2`"),
        ('{"type":"holdfast","version":1}\n\n[]', "not understood. line=`3`"),
        ('{"type":"holdfast","version":1}\n{"type":"other"}', "not understood. line=`2`"),
        (
            '{"type":"holdfast","version":1}\n{"type":"note","session_id":"s","kind":"agent",'
            '"scope_id":"m","on":null,"name":"n","value":1}',
            "outside its scope",
        ),
        (
            '{"type":"holdfast","version":1}\n{"type":"scope","session_id":"","kind":"agent",'
            '"scope_id":"m","head":null}',
            "line=`2`",
        ),
    ],
)
def test_what_is_no_export_is_refused(text: str, message: str) -> None:
    with holdfast.open("memory:") as store:
        with pytest.raises(InvalidInput) as refused:
            portable.import_lines(store, text.encode().splitlines())
        assert message in str(refused.value)
        assert list(store.sessions()) == []


def test_damage_is_told_and_left_out(tmp_path: Path, full: holdfast.Store) -> None:
    with holdfast.open(str(tmp_path)) as store:
        scope = store.scope("s")
        for number in range(20):
            scope.save({"n": number}, id=f"id-{number:02}")
    for name, where in (("id-05", b'"n":'), ("id-07", b'{"n":'), ("id-19", b'{"n":')):
        (file,) = tmp_path.rglob(f"snapshot_{name}.json")
        head, found, tail = file.read_bytes().rpartition(where)
        assert found
        file.write_bytes(head + found.replace(b"n", b"m") + tail)
        if name == "id-05":  # so that not even its facts can be read
            file.write_bytes(file.read_bytes()[:300])
    (latest,) = tmp_path.rglob("snapshot_latest.json")
    latest.write_bytes(latest.read_bytes()[:-20])
    with holdfast.open(str(tmp_path)) as store, holdfast.open("memory:") as target:
        done = portable.copy(store, target)
        assert {finding.id for finding in done.skipped} == {None, "id-05", "id-07", "id-19"}
        shown = target.scope("s").load()
        assert shown is not None
        assert shown.state == {"n": 18}
        assert [info.id for info in target.scope("s").history()] == [
            f"id-{n:02}" for n in range(18, -1, -1) if n not in (5, 7)
        ]
        with pytest.raises(Corrupt):
            lines(store)
