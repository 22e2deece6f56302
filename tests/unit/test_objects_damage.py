"""Damage, redaction, leftovers and a full disk."""

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import zstandard

import limpet
from limpet import Scope, Snapshot, Store, Unavailable, opening
from limpet.backends.objects.format import facts_end
from limpet.core import prepare
from limpet.engine import rolling
from limpet.errors import Conflict, Corrupt, NotFound, Unsupported
from limpet.model import ANY, Expect
from limpet.protocol import Stamp
from tests.buckets.counting import CountingBucket
from tests.buckets.opened import engine_on, store_on
from tests.cases import for_each
from tests.crash.mortal_objects import dump, sealed, strangers


def text(n: int) -> str:
    """Return some text that occurs nowhere else and does not compress."""
    return "".join(f"{(n + 1) * 7919 * m % 1_000_003:06d}" for m in range(1, 700))


FRAME = b"\x28\xb5\x2f\xfd"
BIG = "".join(map(text, range(40)))  # so large that it does not stay in a head


def empty(_: Path) -> CountingBucket:
    return CountingBucket()


@pytest.fixture
def bucket() -> CountingBucket:
    return CountingBucket()


@pytest.fixture
def chat(bucket: CountingBucket) -> list[str]:
    """The ids of a chat long enough for a segment."""
    scope = store_on(bucket).scope("chat")
    turns: list[str] = []
    ids = []
    for n in range(48):
        turns.append(text(n))
        ids.append(scope.save({"turns": turns[-4:], "n": n}, labels={"run": "1"}).id)
    assert segments(bucket)
    return ids


def segments(bucket: CountingBucket) -> list[str]:
    return [key for key in bucket.objects if "/segments/" in key]


def head_of(bucket: CountingBucket) -> str:
    return next(key for key in bucket.objects if key.endswith("/head"))


def spoil(bucket: CountingBucket, key: str) -> None:
    data, modified = bucket.objects[key]
    bucket.objects[key] = (data[:-9] + bytes([data[-9] ^ 1]) + data[-8:], modified)


@pytest.mark.parametrize("how", ["gone", "empty", "cut", "html"])
def test_a_lost_head_is_damage_and_never_an_empty_scope(
    bucket: CountingBucket, chat: list[str], how: str
) -> None:
    """Reads raise Corrupt, writes refuse, nothing is removed; `repair` rebuilds it."""
    path = head_of(bucket)
    data, modified = bucket.objects[path]
    spoiled = {"gone": None, "empty": b"", "cut": data[:300], "html": b"<html>\n"}[how]
    if spoiled is None:
        del bucket.objects[path]
    else:
        bucket.objects[path] = (spoiled, modified)
    kept = {key: bucket.objects[key] for key in segments(bucket)}

    store = store_on(bucket)
    scope = store.scope("chat")
    attempts: list[Callable[[], object]] = [
        scope.load,
        scope.info,
        lambda: scope.load(chat[0]),
        lambda: list(scope.history()),
        lambda: list(scope.ids()),
        lambda: scope.prune(keep_last=1),
        lambda: scope.save({"n": "new"}),
        lambda: scope.save({"n": "new"}, head=False),
        lambda: scope.append("turns", [1]),
        lambda: scope.update(chat[0], lambda s: s),
        lambda: scope.delete_snapshot(chat[0]),
        lambda: scope.fork(chat[0]),
    ]
    for attempt in attempts:
        with pytest.raises(Corrupt):
            attempt()
    store.compact()
    assert {key: bucket.objects.get(key) for key in kept} == kept
    found = [each for each in store.check() if each.severity == "error"]
    assert found
    assert {key: bucket.objects.get(key) for key in kept} == kept

    repaired = [each for each in store.repair() if each.severity == "error"]
    assert any(each.repaired and "lost" in each.message for each in repaired)
    left = [info.id for info in scope.history()]
    assert left == chat[: len(left)][::-1]
    assert len(left) > 10
    for n, id in enumerate(chat[: len(left)]):
        loaded = scope.load(id)
        assert loaded is not None
        assert loaded.state == {"turns": [text(m) for m in range(max(0, n - 3), n + 1)], "n": n}
    assert scope.save({"n": "new"}).parent_id == left[0]
    assert [each for each in store.check() if each.severity == "error"] == []
    assert store.delete_session("chat") == len(left) + 1


@for_each("session", ["young", "Y" * 300], bucket=empty)
def test_a_lost_head_of_a_scope_without_a_segment_is_damage(
    bucket: CountingBucket, session: str
) -> None:
    """Not an empty scope, whose history would begin again; a deletion ends it."""
    with store_on(bucket) as store:
        info = store.scope(session).save({"n": 1})
        other = store.scope("other").save({"n": 1})
    path = next(key for key in bucket.objects if key.endswith("/head") and "other" not in key)
    del bucket.objects[path]
    before = dict(bucket.objects)
    with store_on(bucket) as store:
        scope = store.scope(session)
        attempts: list[Callable[[], object]] = [
            scope.load,
            lambda: scope.load(info.id),
            lambda: list(scope.history()),
            lambda: list(scope.ids()),
            lambda: scope.save(1),
            lambda: scope.save(1, expect=None),
            lambda: scope.append("turns", [1]),
            lambda: scope.delete(expect=info.revision),
        ]
        for attempt in attempts:
            with pytest.raises(Corrupt, match="head of a scope is missing"):
                attempt()
        for found in (list(store.check()), list(store.repair())):
            assert [(each.code, each.repaired) for each in found] == [("head_missing", False)]
        assert bucket.objects == before
        assert [each.key.session_id for each in store.scopes()] == sorted(
            ["other"] if len(session) > 99 else ["other", session]
        )
        scope.delete()
        assert scope.load() is None
        assert {each.code for each in store.check()} <= {"pointer_dangling"}
        assert scope.save({"n": 2}, expect=None).parent_id is None
        assert store.find(other.id) is not None


class Killed(BaseException):
    """The process ends."""


class Mortal(CountingBucket):
    """Its process ends before one of its writes, if `left` of them are made before."""

    left = 1_000_000

    def _live(self) -> None:
        if not self.left:
            raise Killed
        self.left -= 1

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        self._live()
        return super().put(key, data, expect=expect)

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._live()
            super().delete([key])


def test_a_killed_first_save_is_no_lost_head() -> None:
    """Whatever it has written before the head: the scope is empty, and can begin."""
    for writes in range(99):
        bucket = Mortal()
        bucket.left = writes
        try:
            store_on(bucket).scope("s").save({"n": 1}, id="own", labels={"a": "b"})
            break
        except Killed:
            bucket.left = Mortal.left
        with store_on(bucket) as store:
            scope = store.scope("s")
            found = scope.load()
            assert found is None or found.state == {"n": 1}
            assert [each for each in store.check() if each.severity == "error"] == []
            scope.save({"n": 2}, expect=None if found is None else found.revision)
            store.delete_session("s")
            assert scope.load() is None
    assert writes > 4


@for_each("is_repeated", [True, False])
def test_a_killed_deletion_is_completed(is_repeated: bool) -> None:
    """By its repetition, or by the next save: no note and no byte is left to the next scope."""
    for writes in range(99):
        bucket = Mortal()
        with store_on(bucket) as store:
            scope = store.scope("s")
            scope.save({"big": BIG, "n": 0})
            shown = scope.append("list", [1])
            for n in range(70):  # more than are in a head
                scope.set_note(f"mine {n}", n, on=shown if n % 2 else None)
        assert segments(bucket)
        assert any("/notes/" in key for key in bucket.objects)
        bucket.left = writes
        killed = store_on(bucket).scope("s")
        try:
            killed.delete(expect=shown.revision)
            break
        except Killed:
            bucket.left = Mortal.left
        with store_on(bucket) as store:
            scope = store.scope("s")
            if scope.load() is None and not is_repeated:
                scope.set_note("new", 3)
                scope.save({"n": 1}, expect=None)
                assert [note.name for note in scope.notes()] == ["new"]
            else:
                with suppress(Conflict):  # it was completed
                    assert scope.delete(expect=shown.revision) == 2
                assert scope.load() is None
                assert list(scope.notes()) == []
            assert list(scope.notes(on=shown.id)) == []
            assert not is_stored(bucket, text(1))
            assert not any(
                "mine" in plain(data).decode("latin-1") for data, _ in bucket.objects.values()
            )
            assert {each.code for each in store.check()} <= {"pointer_dangling"}
    assert writes > 4


def test_a_killed_redaction_is_completed() -> None:
    """By its repetition, which may find nothing to replace, but what the first one has left."""
    for writes in range(99):
        bucket = Mortal()
        with store_on(bucket) as store:
            store.scope("s").save({"big": BIG})
            store.scope("s").save({"big": "-"})
        assert segments(bucket)
        bucket.left = writes
        try:
            store_on(bucket).scope("s").redact("/big", replacement="-")
            break
        except Killed:
            bucket.left = Mortal.left
        with store_on(bucket) as store:
            store.scope("s").redact("/big", replacement="-")
        assert not is_stored(bucket, text(1)), writes
    assert writes > 1


@for_each("session", ["s", "S" * 300])
def test_a_killed_deletion_of_a_session_is_no_lost_head(session: str) -> None:
    """What it has left is reported as that, and nothing is rebuilt from it; again it completes."""
    for writes in range(99):
        bucket = Mortal()
        with store_on(bucket) as store:
            scope = store.scope(session)
            scope.save({"big": BIG, "n": 0}, labels={"a": "b"})
            for n in range(70):  # more than are in a head
                scope.set_note(f"note {n}", n)
        bucket.left = writes
        try:
            store_on(bucket).delete_session(session)
            break
        except Killed:
            bucket.left = Mortal.left
        heads = [key for key in bucket.objects if key.endswith("/head")]
        with store_on(bucket) as store:
            for found in (list(store.check()), list(store.repair())):
                odd = {each.code for each in found if each.severity != "info"}
                assert odd <= ({"pointer_missing"} if heads else set())
            assert [key for key in bucket.objects if key.endswith("/head")] == heads
            store.delete_session(session)
            assert store.scope(session).load() is None
        assert not any(key.startswith("sessions/") for key in bucket.objects)
    assert writes > 4


@for_each("session, part", product(("s", "S" * 300), ("/head", "/segments/", "/notes/")))
def test_a_killed_repair_is_repeated(part: str, session: str) -> None:
    """And ends as one that was not killed; what is put aside is there once."""
    full = CountingBucket()
    with store_on(full, tails=rolling.Limits(3)) as store:
        scope = store.scope(session)
        for n in range(7):
            scope.save({"n": n, "text": text(n)}, id=f"i{n}", labels={"a": "b"})
        for n in range(70):  # more than are in a head
            scope.set_note(f"n{n}", n)
    (key,) = (key for key in full.objects if part in key and not key.startswith(".limpet"))
    full.objects[key] = (full.objects[key][0][:50], 1)
    for writes in range(99):
        bucket = Mortal()
        bucket.objects, bucket.left = dict(full.objects), writes
        is_killed = True
        with suppress(Killed):
            list(store_on(bucket).repair())
            is_killed = False
        bucket.left = Mortal.left
        with store_on(bucket) as store:
            list(store.repair())
            assert [each.code for each in store.check()] == ["foreign_file"]
            scope = store.scope(session)
            left = [each.state["n"] for each in scope.load_many(f"i{n}" for n in range(7))]
            assert left == list({"/head": range(6), "/segments/": [6]}.get(part, range(7)))
            # Some are in the head.
            assert len(list(scope.notes())) == {"/head": 65, "/notes/": 5}.get(part, 70)
            assert [info.id for info in store.history(labels={"a": "b"})] == [
                f"i{n}" for n in reversed(left)
            ]
            assert scope.save({"n": "next"}).parent_id == f"i{left[-1]}"
        (aside,) = (each for each in bucket.objects if "/damaged/" in each)
        assert bucket.objects[aside][0] == full.objects[key][0]
        if not is_killed:
            break
    assert 2 < writes < 99


@for_each("compress", [False, True], bucket=empty)
def test_no_byte_of_a_deleted_state_is_left(bucket: CountingBucket, compress: bool) -> None:
    """In tail, base, segment and draft: what is deleted or replaced is in no object any more."""
    store = store_on(bucket, compress=compress)
    scope = store.scope("chat")
    ids = [scope.save({"secret": text(n), "n": n}).id for n in range(40)]
    scope.save({"secret": text(99)}, keep=False)
    assert segments(bucket)

    def is_there(n: int) -> bool:
        return is_stored(bucket, text(n)[:400])

    assert all(is_there(n) for n in (0, 5, 20, 39, 99))
    for n in (0, 39, 20, 21, 5, 30):
        assert scope.delete_snapshot(ids[n]) == 1
        assert not is_there(n)
    scope.update(ids[7], lambda s: s.with_(state="redacted"))
    assert not is_there(7)
    scope.save("redacted", id=ids[38], overwrite=True)
    assert not is_there(38)
    scope.save({"n": 1}, keep=False)
    assert not is_there(99)
    scope.prune(keep_last=3)
    left = [info.id for info in scope.history()]
    assert len(left) == 3
    for n, id in enumerate(ids):
        assert is_there(n) == (id in left and n not in (7, 38))
    assert store.delete_session("chat") == 4
    assert list(bucket.objects) == []


def is_stored(bucket: CountingBucket, some: str) -> bool:
    """Return whether any object has a text, in any frame."""
    return any(some.encode() in plain(data) for data, _ in bucket.objects.values())


def plain(data: bytes) -> bytes:
    """Return an object and, behind it, what each frame in it unpacks to."""
    found, at = data, data.find(FRAME)
    while at >= 0:
        with suppress(zstandard.ZstdError):
            found += plain(zstandard.ZstdDecompressor().decompressobj().decompress(data[at:]))
        at = data.find(FRAME, at + 1)
    return found


def test_a_pointer_goes_with_the_last_that_needs_it(
    bucket: CountingBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snapshots of one minute share the pointers of their labels, also across segments."""
    monkeypatch.setattr(rolling, "_SEGMENT_COUNT_MAX", 3)
    now = opening.draw().now

    def draw() -> Stamp:
        nonlocal now
        now += 7_000_000
        return opening.draw()._replace(now=now)

    backend = engine_on(bucket, draw=draw, tails=rolling.Limits(2))
    with opening.store_over(backend) as store:
        scope = store.scope("s")
        tools = scope.driver.tools
        ids = []
        for n in range(24):
            commit = prepare.save(
                scope.key,
                {"n": n},
                labels={"run": "1"} if n % 3 != 1 else {},
                stamp=draw(),
                state_bytes_max=tools.state_bytes_max,
            )
            ids.append(backend.commit(commit).id)
        assert len(segments(bucket)) > 4
        for id in ids[::2] + ids[1::2]:
            labelled = [info.id for info in scope.history() if info.labels]
            assert [info.id for info in store.history(labels={"run": "1"})] == labelled
            scope.delete_snapshot(id)
            assert list(store.check()) == []
        assert not [key for key in bucket.objects if "/labels/" in key]


def test_check_changes_nothing_where_a_head_and_a_segment_are_lost(
    bucket: CountingBucket, chat: list[str]
) -> None:
    """Only `repair` puts the damaged segment aside, when it writes a head that does not name it."""
    bucket.objects[segments(bucket)[0]] = (b"damaged", 1)
    del bucket.objects[head_of(bucket)]
    store, before = store_on(bucket), dict(bucket.objects)
    assert [each.code for each in store.check()] == ["head_missing"]
    assert bucket.objects == before


def test_a_missing_segment_is_damage(bucket: CountingBucket, chat: list[str]) -> None:
    gone = segments(bucket)[0]
    del bucket.objects[gone]
    store = store_on(bucket)
    scope = store.scope("chat")
    with pytest.raises(Corrupt):
        scope.load(chat[0])
    assert scope.load() is not None  # the head has the base of its tail
    listed = [info.id for info in scope.history()]  # what is in the head
    assert listed == chat[-len(listed) :][::-1]
    assert sorted(scope.ids()) == sorted(listed)
    assert [each.code for each in store.check()] == ["segment_missing"]
    assert store.delete_session("chat") == len(chat)


def test_a_damaged_state_in_a_head_concerns_no_other(
    bucket: CountingBucket, chat: list[str]
) -> None:
    """It stays as it is, also while others roll; saves go on, and it can be deleted."""
    path = head_of(bucket)
    spoil(bucket, path)
    spoiled = bucket.objects[path]
    store = store_on(bucket)
    scope = store.scope("chat")
    assert [info.id for info in scope.history()] == chat[::-1]
    assert len(list(scope.load_many(chat[:-1]))) == len(chat) - 1
    attempts: list[Callable[[], object]] = [
        scope.load,
        lambda: scope.load(chat[-1]),
        lambda: scope.append("turns", [1]),
        lambda: scope.update(chat[-1], lambda was: was.with_(status="x")),
        lambda: scope.fork(chat[-1]),
    ]
    for attempt in attempts:
        with pytest.raises(Corrupt):
            attempt()
    for found in (list(store.check()), list(store.repair())):
        assert [(each.code, each.id, each.repaired) for each in found] == [
            ("state_damaged", chat[-1], False)
        ]
    assert bucket.objects[path] == spoiled

    later = [scope.save({"turns": [text(n)] * 3, "n": n}).id for n in range(60)]
    assert len(list(scope.load_many(later))) == 60
    assert [(each.code, each.id) for each in store.check()] == [("state_damaged", chat[-1])]
    assert scope.delete_snapshot(chat[-1]) == 1
    assert list(store.check()) == []


def test_swapped_objects_are_damage(bucket: CountingBucket, chat: list[str]) -> None:
    """A head or a segment under the key of another is not believed."""
    other = store_on(bucket).scope("other")
    for n in range(30):
        other.save({"turns": [text(n)] * 3, "n": n})
    first, second = (key for key in bucket.objects if key.endswith("/head"))
    bucket.objects[first], bucket.objects[second] = bucket.objects[second], bucket.objects[first]
    store = store_on(bucket)
    for name in ("chat", "other"):
        with pytest.raises(Corrupt):
            store.scope(name).load()
        with pytest.raises(Corrupt):
            store.scope(name).save(1)


def test_what_a_killed_writer_leaves_is_swept(bucket: CountingBucket, chat: list[str]) -> None:
    """A segment that no head names and none can; but not that of a writer that may still commit."""
    name = segments(bucket)[0]
    folder = name.rpartition("/")[0]
    dead = f"{folder}/{1:016x}.{2:016x}.after-{3:016x}"
    bucket.put(dead, b"secret", expect=ANY)
    store = store_on(bucket)
    assert [(each.code, each.severity) for each in store.check()] == [("segment_left", "info")]
    assert dead in bucket.objects
    assert store.compact() == len(b"secret")
    assert dead not in bucket.objects
    assert name in bucket.objects
    assert list(store.check()) == []


def test_another_format_is_refused(bucket: CountingBucket, chat: list[str]) -> None:
    path = head_of(bucket)
    data, modified = bucket.objects[path]
    bucket.objects[path] = (data.replace(b'"v":3', b'"v":4', 1), modified)
    scope = store_on(bucket).scope("chat")
    for attempt in (scope.load, lambda: scope.save(1)):
        with pytest.raises(Unsupported):
            attempt()
    assert bucket.objects[path][0] != data

    other = "sessions/old/scopes/agent/main/snapshots/snapshot_latest.json"
    bucket.put(other, b"{}", expect=ANY)
    with pytest.raises(Unsupported, match="import"):
        store_on(bucket).scope("old").save(1)


def test_the_head_moves_while_a_segment_is_read(bucket: CountingBucket, chat: list[str]) -> None:
    """A reader whose segment was replaced reads the head again."""
    store, writer = store_on(bucket), store_on(bucket).scope("chat")
    scope = store.scope("chat")
    get, done = bucket.get, False

    def late(keys: list[str], *, first: int | None = None) -> object:
        nonlocal done
        if not done and "/segments/" in keys[0]:
            done = True
            writer.delete_snapshot(chat[3])
        return get(keys, first=first)

    bucket.get = late  # type: ignore[assignment,method-assign]
    loaded = scope.load(chat[1])
    assert loaded is not None
    assert done
    with pytest.raises(NotFound):
        scope.fork(chat[3])


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda stored: b"",
    "truncated": lambda stored: stored[: len(stored) // 2],
    "with a BOM": lambda stored: b"\xef\xbb\xbf" + stored,
    "a list": lambda stored: b"[]",
    "null": lambda stored: b"null",
    "no JSON": lambda stored: b"\x00\xff" * 100,
    "one bit": lambda stored: flipped(stored, facts_end(stored) - 3),
}


def flipped(stored: bytes, at: int) -> bytes:
    return stored[:at] + bytes([stored[at] ^ 1]) + stored[at + 1 :]


@for_each("how, what", product(DAMAGE, ("/head", "/notes/")), bucket=empty)
def test_what_is_damaged_is_contained(bucket: CountingBucket, what: str, how: str) -> None:
    """It is Corrupt where it is asked for, it stays as it is, and no other scope is concerned."""
    with store_on(bucket) as store:
        scope = fill(store.scope("s"))
        for n in range(70):  # more than are in a head
            scope.set_note(f"n{n:02}", n)
        store.scope("other").save({"n": 1}, id="o", labels={"colour": "blue"})
    key = next(key for key in bucket.objects if key.startswith("sessions/s/") and what in key)
    spoiled = DAMAGE[how](bucket.objects[key][0])
    bucket.objects[key] = (spoiled, 1)
    with store_on(bucket) as store:
        scope = store.scope("s")
        asked: list[Callable[[], object]] = [scope.load, lambda: scope.save(1)]
        if what != "/head":
            asked = [lambda: scope.note("n01"), lambda: scope.set_note("n01", 1)]
        for each in asked:
            with pytest.raises(Corrupt):
                each()
        assert bucket.objects[key][0] == spoiled
        assert list(store.sessions()) == ["other", "s"]
        assert {info.key.session_id for info in store.scopes()} == {"other", "s"}
        assert [info.id for info in store.history(labels={"colour": "blue"})] == ["o"]
        assert store.scope("other").load("o") is not None
        code = "head_damaged" if what == "/head" else "note_damaged"
        assert [each.code for each in store.check()] == [code]
        store.delete_session("s")
        assert list(store.sessions()) == ["other"]


# A full disk


def fill(scope: Scope) -> Scope:
    scope.save(sealed("a"), id="a", labels={"colour": "red"})
    scope.save(sealed("b"), id="b")
    scope.set_note("n", sealed("n"))
    scope.set_note("n", sealed("m"), on="a")
    return scope


def changed(was: Snapshot) -> Snapshot:
    return was.with_(state=sealed(was.state["text"] + "+"))


VERBS: dict[str, Callable[[Scope], object]] = {
    "the first save": lambda scope: Store(scope.driver).scope("new").save(sealed("c"), id="c"),
    "kept": lambda scope: scope.save(sealed("c"), id="c", labels={"colour": "red"}),
    "draft": lambda scope: scope.save(sealed("c"), keep=False),
    "aside": lambda scope: scope.save(sealed("c"), id="c", head=False),
    "update": lambda scope: scope.update("b", changed),
    "update below": lambda scope: scope.update("a", changed),
    "delete": lambda scope: scope.delete_snapshot("b"),
    "note": lambda scope: scope.set_note("n", sealed("o")),
    "fork": lambda scope: scope.fork("a", scope_id="fork"),
}


class FullDisk:
    """A disk that is full from the n-th step on that takes room."""

    def __init__(self, patched: pytest.MonkeyPatch, at: int) -> None:
        self.left = at
        for name in ("open", "mkdir", "write", "fsync", "link", "rename"):
            patched.setattr(os, name, self._wrap(name, getattr(os, name)))

    def _wrap(self, name: str, was: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            if name == "open" and not given[1] & os.O_CREAT:
                return was(*given, **named)
            self.left -= 1
            if self.left > 0:
                return was(*given, **named)
            if name == "write" and len(given[1]) > 1:
                was(given[0], bytes(given[1])[: len(given[1]) // 2])
            raise OSError(errno.ENOSPC, "injected")

        return call


@pytest.mark.parametrize(
    "verb",
    [
        verb if verb in ("kept", "update", "note") else pytest.param(verb, marks=pytest.mark.slow)
        for verb in VERBS
    ],
)
def test_a_full_disk_takes_nothing_and_leaves_nothing(tmp_path: Path, verb: str) -> None:
    """The verb raises Unavailable, whatever step it was at, and what it says of itself is so."""
    with limpet.open("memory:") as oracle:
        scope = fill(oracle.scope("s"))
        before = dump(oracle)
        VERBS[verb](scope)
        after = dump(oracle)
    for at in range(1, 100):
        root = tmp_path / str(at)
        with limpet.open(f"file://{root}") as store:
            scope = fill(store.scope("s"))
            said = "done"
            with pytest.MonkeyPatch.context() as patched:
                disk = FullDisk(patched, at)
                try:
                    VERBS[verb](scope)
                except Unavailable as error:
                    said = "nothing" if error.outcome_known else "doubt"
            allowed = {"done": [after], "nothing": [before], "doubt": [before, after]}
            with limpet.open(f"file://{root}") as other:
                assert dump(other) in allowed[said], f"{said} at step {at}"
            assert strangers(root) == []
            made = scope.save(sealed("z"))
            assert next(scope.history()).id == made.id
            dump(store)
        if disk.left > 0:
            assert said == "done"
            return
    pytest.fail("it never ends")


@pytest.mark.parametrize("how", ["damaged", "missing"])
@pytest.mark.parametrize("is_known", [True, False])
def test_saves_go_on_past_a_damaged_segment(
    bucket: CountingBucket, chat: list[str], how: str, is_known: bool
) -> None:
    """Also when the tail is full; `repair` puts it aside, and the rest of the history stays."""
    key = max(segments(bucket))
    scope = store_on(bucket).scope("chat")
    if is_known:
        scope.save("the head is known to this process")
    if how == "missing":
        del bucket.objects[key]
    else:
        spoil(bucket, key)
    later = [scope.save({"turns": [text(n)] * 3, "n": n}).id for n in range(60)]
    assert max(segments(bucket)) > key
    store = store_on(bucket)
    scope = store.scope("chat")
    for n, id in enumerate(later):
        loaded = scope.load(id)
        assert loaded is not None
        assert loaded.state == {"turns": [text(n)] * 3, "n": n}
    with pytest.raises(Corrupt):
        scope.load(chat[20])

    (found,) = store.repair()
    assert (found.code, found.repaired) == (f"segment_{how}", True)
    assert {each.code for each in store.repair()} <= {"foreign_file"}
    assert scope.load(chat[20]) is None
    assert {*later} <= {*scope.ids()}
    assert sum("/damaged/" in each for each in bucket.objects) == (how == "damaged")
    assert scope.append("turns", ["more"]).parent_id == later[-1]


def test_states_that_build_on_a_damaged_segment_are_put_aside_with_it(
    bucket: CountingBucket,
) -> None:
    scope = store_on(bucket).scope("big")
    scope.save({"big": BIG, "n": 0})
    for n in range(1, 4):
        scope.append("list", [n])
    (key,) = segments(bucket)
    spoil(bucket, key)
    store = store_on(bucket)
    scope = store.scope("big")
    for attempt in (scope.load, lambda: scope.append("list", [1])):
        with pytest.raises(Corrupt):
            attempt()
    repaired = [(each.code, each.repaired) for each in store.repair()]
    assert repaired == [("segment_damaged", True), *[("state_damaged", True)] * 3]
    assert {each.code for each in store.check()} <= {"foreign_file", "pointer_dangling"}
    assert scope.load() is None
    scope.save({"n": "new"})
    assert [info.size for info in scope.history()] == [len('{"n":"new"}')]


def test_what_does_not_build_on_a_damaged_segment_stays_where_it_is(
    bucket: CountingBucket, chat: list[str]
) -> None:
    """When the segment is put aside: also a state that is damaged itself, and notes in the head."""
    store = store_on(bucket)
    scope = store.scope("chat")
    scope.set_note("n", 1)
    last = scope.save({"n": "last"}).id
    path = head_of(bucket)
    spoiled, modified = bucket.objects[path]
    at = spoiled.index(b'{"n":"last"}')
    bucket.objects[path] = flipped(spoiled, at), modified
    spoil(bucket, segments(bucket)[0])
    store = store_on(bucket)
    scope = store.scope("chat")
    found = {each.code: each.repaired for each in store.repair()}
    assert found == {"segment_damaged": True, "state_damaged": False}
    assert [(each.code, each.id) for each in store.check() if each.severity == "error"] == [
        ("state_damaged", last)
    ]
    assert flipped(spoiled, at)[at:][:12] in bucket.objects[path][0]
    note = scope.note("n")
    assert note is not None
    assert note.value == 1


def test_several_parts_that_are_missing(bucket: CountingBucket) -> None:
    """Each is reported, the rest is listed, and saves, rolls and notes go on."""
    store = store_on(bucket, tails=rolling.Limits(2))
    scope = store.scope("s")
    ids = [scope.save({"text": text(n) * 9}).id for n in range(30)]
    for n in range(300):
        scope.set_note(f"n{n:03}", n)
    gone = [*segments(bucket)[:2], *[key for key in bucket.objects if "/notes/" in key][:2]]
    assert len({*gone}) == 4
    for key in gone:
        del bucket.objects[key]
    store = store_on(bucket, tails=rolling.Limits(2))
    scope = store.scope("s")
    assert {*scope.ids()} == {info.id for info in scope.history()} < {*ids}
    assert 0 < len(list(scope.notes())) < 300
    with pytest.raises(Corrupt):
        scope.fork(ids[0], scope_id="fork")
    ids += [scope.save({"text": text(n)}).id for n in range(30)]
    assert [info.id for info in scope.history()][:30] == ids[:29:-1]
    scope.set_note("z", 1)
    assert sorted(each.code for each in store.check()) == [
        *["notes_missing"] * 2,
        *["segment_missing"] * 2,
    ]
    assert all(each.repaired for each in store.repair())
    assert {each.code for each in store.check()} <= {"pointer_dangling"}
    for n in range(300):
        scope.set_note(f"n{n:03}", n)
    assert len(list(scope.notes())) == 301


def test_a_damaged_segment_is_pruned(bucket: CountingBucket, chat: list[str]) -> None:
    for key in segments(bucket):
        spoil(bucket, key)
    scope = store_on(bucket).scope("chat")
    kept = scope.prune(keep_last=1)
    assert kept.count == len(chat) - 1
    assert segments(bucket) == []
    assert [info.id for info in scope.history()] == chat[-1:]
    assert list(store_on(bucket).check()) == []


@for_each("how", ["session", "scope", "expect", "snapshots"])
def test_a_deletion_beside_a_redaction_is_no_damage(how: str) -> None:
    """Whichever object is read next when it is gone."""
    bucket = CountingBucket()
    with store_on(bucket) as store:
        scope = store.scope("s")
        scope.save({"big": BIG, "n": 0})
        scope.append("list", ["secret"])
    objects, get = dict(bucket.objects), bucket.get
    assert segments(bucket)

    def delete() -> None:
        other = store_on(bucket)
        if how == "session":
            other.delete_session("s")
        elif how == "scope":
            other.scope("s").delete()
        elif how == "expect":
            other.scope("s").delete(expect=other.scope("s").load().revision)  # type: ignore[union-attr]
        else:
            other.scope("s").prune(keep_last=1)

    for number in range(99):
        bucket.objects, left = dict(objects), number

        def late(keys: Sequence[str], *, first: int | None = None) -> list[Any]:
            nonlocal left
            left -= 1
            if left == -1:
                delete()
            return get(keys, first=first)

        bucket.get = late  # type: ignore[method-assign]
        store_on(bucket).scope("s").redact(lambda path, value: value == "secret")
        if left >= 0:
            break
    assert number > 5
