"""Damage, redaction, and what killed processes leave."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import zstandard

from limpet import Store
from limpet.engine import rolling
from limpet.errors import Corrupt, Unsupported
from limpet.model import ANY
from tests.buckets.counting import CountingBucket, kills
from tests.buckets.opened import store_on
from tests.cases import for_each


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


@pytest.fixture(scope="module")
def long_chat() -> tuple[dict[str, tuple[bytes, int]], list[str]]:
    """The objects and the ids of a chat long enough for a segment."""
    bucket = CountingBucket()
    scope = store_on(bucket).scope("chat")
    turns: list[str] = []
    ids = []
    for n in range(48):
        turns.append(text(n))
        ids.append(scope.save({"turns": turns[-4:], "n": n}, labels={"run": "1"}).id)
    assert segments(bucket)
    return bucket.objects, ids


@pytest.fixture
def chat(
    bucket: CountingBucket, long_chat: tuple[dict[str, tuple[bytes, int]], list[str]]
) -> list[str]:
    bucket.objects |= long_chat[0]
    return long_chat[1]


def segments(bucket: CountingBucket) -> list[str]:
    return [key for key in bucket.objects if "/segments/" in key]


def head_of(bucket: CountingBucket) -> str:
    return next(key for key in bucket.objects if key.endswith("/head"))


def spoil(bucket: CountingBucket, key: str, at: int = -9) -> None:
    data, modified = bucket.objects[key]
    at %= len(data)
    bucket.objects[key] = (data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], modified)


def check_refused(*attempts: Callable[[], object]) -> None:
    for attempt in attempts:
        with pytest.raises(Corrupt):
            attempt()


def errors(store: Store) -> list[tuple[str, str | None]]:
    return [(each.code, each.id) for each in store.check() if each.severity == "error"]


@for_each("is_cut", [True, False])
def test_a_lost_head_is_damage_and_never_an_empty_scope(
    long_chat: tuple[dict[str, tuple[bytes, int]], list[str]], is_cut: bool
) -> None:
    """Reads raise Corrupt, writes refuse, nothing is removed; `repair` rebuilds it."""
    bucket, chat = CountingBucket(), long_chat[1]
    bucket.objects |= long_chat[0]
    path = head_of(bucket)
    data, modified = bucket.objects.pop(path)
    if is_cut:
        bucket.objects[path] = (data[:300], modified)
    kept = {key: bucket.objects[key] for key in segments(bucket)}

    store = store_on(bucket)
    scope = store.scope("chat")
    check_refused(
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
    )
    store.compact()
    assert errors(store) != []
    assert {key: bucket.objects.get(key) for key in kept} == kept

    repaired = [each for each in store.repair() if each.severity == "error"]
    assert any(each.repaired and "lost" in each.message for each in repaired)
    left = [info.id for info in scope.history()]
    assert left == chat[: len(left)][::-1]
    assert len(left) > 10
    for n, found in enumerate(scope.load_many(chat[: len(left)])):
        assert found.state == {"turns": [text(m) for m in range(max(0, n - 3), n + 1)], "n": n}
    assert scope.save({"n": "new"}).parent_id == left[0]
    assert errors(store) == []
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
        check_refused(
            scope.load,
            lambda: list(scope.history()),
            lambda: scope.save(1, expect=None),
            lambda: scope.append("turns", [1]),
            lambda: scope.delete(expect=info.revision),
        )
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


# Killed


def opened(bucket: CountingBucket) -> Store:
    return store_on(bucket, tails=rolling.Limits(3))


def fill_up(store: Store, session: str = "s") -> None:
    """Save what needs a segment, pages of notes, and pointers."""
    scope = store.scope(session)
    scope.save({"big": BIG, "n": 0}, labels={"a": "b"})
    shown = scope.append("list", [1])
    for n in range(70):  # more than are in a head
        scope.set_note(f"mine {n}", n, on=shown if n % 2 else None)


def test_a_killed_redaction_is_completed() -> None:
    """By its repetition, which may find nothing to replace, but what the first one has left."""

    def fill(store: Store) -> None:
        store.scope("s").save({"big": BIG})
        store.scope("s").save({"big": "-"})

    def redact(store: Store) -> None:
        store.scope("s").redact("/big", replacement="-")

    for bucket in kills(opened, fill, redact):
        redact(store_on(bucket))
        assert not is_stored(bucket, text(1))


@for_each("session", ["s", "S" * 300])
def test_a_killed_deletion_of_a_session_is_no_lost_head(session: str) -> None:
    """What it has left is reported as that, and nothing is rebuilt from it; again it completes."""

    def fill(store: Store) -> None:
        fill_up(store, session)

    for bucket in kills(opened, fill, lambda store: store.delete_session(session)):
        heads = [key for key in bucket.objects if key.endswith("/head")]
        with store_on(bucket) as store:
            for found in (list(store.check()), list(store.repair())):
                odd = {each.code for each in found if each.severity != "info"}
                assert odd <= ({"pointer_missing"} if heads else set())
            assert [key for key in bucket.objects if key.endswith("/head")] == heads
            store.delete_session(session)
            assert store.scope(session).load() is None
        assert not any(key.startswith("sessions/") for key in bucket.objects)


@for_each("session, part", product(("s", "S" * 300), ("/head", "/segments/", "/notes/")))
def test_a_killed_repair_is_repeated(part: str, session: str) -> None:
    """And ends as one that was not killed; what is put aside is there once."""
    spoilt = b""

    def fill(store: Store) -> None:
        nonlocal spoilt
        scope = store.scope(session)
        for n in range(7):
            scope.save({"n": n, "text": text(n)}, id=f"i{n}", labels={"a": "b"})
        for n in range(70):  # more than are in a head
            scope.set_note(f"n{n}", n)
        bucket: Any = store.driver.opened.backend.storage.files.bucket.below  # type: ignore[attr-defined]
        (key,) = (key for key in bucket.objects if part in key and not key.startswith(".limpet"))
        spoilt = bucket.objects[key][0][:50]
        bucket.objects[key] = (spoilt, 1)

    for bucket in kills(opened, fill, lambda store: list(store.repair())):
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
        assert bucket.objects[aside][0] == spoilt


# What is deleted


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


# Damage


def test_what_a_killed_writer_leaves_is_swept(bucket: CountingBucket, chat: list[str]) -> None:
    """A segment that no head names and none can; `compact` says how many bytes that gave back."""
    (name,) = segments(bucket)
    dead = f"{name.rpartition('/')[0]}/{1:016x}.{2:016x}.after-{3:016x}"
    bucket.put(dead, b"secret", expect=ANY)
    store = store_on(bucket)
    assert store.compact() == len(b"secret")
    assert segments(bucket) == [name]
    assert list(store.check()) == []


def test_another_layout_is_refused(bucket: CountingBucket, chat: list[str]) -> None:
    other = "sessions/old/scopes/agent/main/snapshots/snapshot_latest.json"
    bucket.put(other, b"{}", expect=ANY)
    with pytest.raises(Unsupported, match="import"):
        store_on(bucket).scope("old").save(1)


@for_each("how, is_known", product(["damaged", "missing"], [True, False]))
def test_saves_go_on_past_a_damaged_segment(
    long_chat: tuple[dict[str, tuple[bytes, int]], list[str]], how: str, is_known: bool
) -> None:
    """Also when the tail is full; `repair` puts it aside, and the rest of the history stays."""
    bucket, chat = CountingBucket(), long_chat[1]
    bucket.objects |= long_chat[0]
    (key,) = segments(bucket)
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
    assert [found.state for found in scope.load_many(later)] == [
        {"turns": [text(n)] * 3, "n": n} for n in range(60)
    ]
    check_refused(lambda: scope.load(chat[20]))
    assert {*later} < {info.id for info in scope.history()}

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
    check_refused(scope.load, lambda: scope.append("list", [1]))
    repaired = [(each.code, each.repaired) for each in store.repair()]
    assert repaired == [("segment_damaged", True), *[("state_damaged", True)] * 3]
    assert {each.code for each in store.check()} <= {"foreign_file", "pointer_dangling"}
    assert scope.load() is None
    scope.save({"n": "new"})
    assert [info.size for info in scope.history()] == [len('{"n":"new"}')]


def test_a_damaged_segment_is_pruned(bucket: CountingBucket, chat: list[str]) -> None:
    for key in segments(bucket):
        spoil(bucket, key)
    scope = store_on(bucket).scope("chat")
    kept = scope.prune(keep_last=1)
    assert kept.count == len(chat) - 1
    assert segments(bucket) == []
    assert [info.id for info in scope.history()] == chat[-1:]
    assert list(store_on(bucket).check()) == []


DELETIONS: list[Callable[[Store], object]] = [
    lambda store: store.delete_session("s"),
    lambda store: store.scope("s").delete(expect=store.scope("s").info().revision),  # type: ignore[union-attr]
    lambda store: store.scope("s").prune(keep_last=1),
]


@for_each("delete", DELETIONS)
def test_a_deletion_beside_a_redaction_is_no_damage(delete: Callable[[Store], object]) -> None:
    """Whichever object is read next when it is gone."""
    bucket = CountingBucket()
    fill_up(store_on(bucket))
    objects, get = dict(bucket.objects), bucket.get
    for number in range(99):
        bucket.objects, left = dict(objects), number

        def late(keys: Sequence[str], *, first: int | None = None) -> list[Any]:
            nonlocal left
            left -= 1
            if left == -1:
                delete(store_on(bucket))
            return get(keys, first=first)

        bucket.get = late  # type: ignore[method-assign]
        store_on(bucket).scope("s").redact(lambda path, value: value == 1)
        if left >= 0:
            break
    assert number > 5


def test_what_does_not_build_on_a_damaged_segment_stays(
    bucket: CountingBucket, chat: list[str]
) -> None:
    """When the segment is put aside: also a state that is damaged itself, and notes in the head."""
    with store_on(bucket) as store:
        store.scope("chat").set_note("n", 1)
        last = store.scope("chat").save({"n": "last"}).id
    path = head_of(bucket)
    at = bucket.objects[path][0].index(b'{"n":"last"}')
    spoil(bucket, path, at)
    spoiled = bucket.objects[path][0][at:][:12]
    spoil(bucket, segments(bucket)[0])
    with store_on(bucket) as store:
        found = {each.code: each.repaired for each in store.repair()}
        assert found == {"segment_damaged": True, "state_damaged": False}
        assert errors(store) == [("state_damaged", last)]
        assert spoiled in bucket.objects[path][0]
        assert [note.value for note in store.scope("chat").notes()] == [1]
