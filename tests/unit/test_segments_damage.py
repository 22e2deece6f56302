"""Damage, redaction and leftovers in the engine with segments."""

from collections.abc import Callable

import pytest
import zstandard

from limpet import opening
from limpet.api.store import Store
from limpet.backends.segments.backend import SegmentBackend
from limpet.errors import Corrupt, NotFound, Unsupported
from limpet.model import ANY
from tests.buckets.counting import CountingBucket


def store_on(bucket: CountingBucket, *, compress: bool = False) -> Store:
    backend = SegmentBackend(bucket, clock=opening.CLOCK, draw=opening.draw, compress=compress)
    return opening.store_over(backend)


def text(n: int) -> str:
    """Return some text that occurs nowhere else and does not compress."""
    return "".join(f"{(n + 1) * 7919 * m % 1_000_003:06d}" for m in range(1, 700))


@pytest.fixture
def bucket() -> CountingBucket:
    return CountingBucket()


@pytest.fixture
def chat(bucket: CountingBucket) -> list[str]:
    """The ids of a chat long enough for a segment."""
    scope = store_on(bucket).scope("chat")
    turns: list[str] = []
    ids = []
    for n in range(30):
        turns.append(text(n))
        ids.append(scope.save({"turns": turns[-4:], "n": n}, labels={"run": "1"}).id)
    assert segments(bucket)
    return ids


def segments(bucket: CountingBucket) -> list[str]:
    return [key for key in bucket.objects if "/segments/" in key]


def head_of(bucket: CountingBucket) -> str:
    return next(key for key in bucket.objects if key.endswith("/head"))


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


@pytest.mark.parametrize("compress", [False, True])
def test_no_byte_of_a_deleted_state_is_left(bucket: CountingBucket, compress: bool) -> None:
    """In tail, base, segment and draft: what is deleted or replaced is in no object any more."""
    store = store_on(bucket, compress=compress)
    scope = store.scope("chat")
    ids = [scope.save({"secret": text(n), "n": n}).id for n in range(40)]
    scope.save({"secret": text(99)}, keep=False)
    assert segments(bucket)

    def is_stored(n: int) -> bool:
        return any(text(n)[:400].encode() in _plain(data) for data, _ in bucket.objects.values())

    assert all(is_stored(n) for n in (0, 5, 20, 39, 99))
    for n in (0, 39, 20, 21, 5, 30):
        assert scope.delete_snapshot(ids[n]) == 1
        assert not is_stored(n)
    scope.update(ids[7], lambda s: s.with_(state="redacted"))
    assert not is_stored(7)
    scope.save("redacted", id=ids[38], overwrite=True)
    assert not is_stored(38)
    scope.save({"n": 1}, keep=False)
    assert not is_stored(99)
    scope.prune(keep_last=3)
    left = [info.id for info in scope.history()]
    assert len(left) == 3
    for n, id in enumerate(ids):
        assert is_stored(n) == (id in left and n not in (7, 38))
    assert store.delete_session("chat") == 4
    assert list(bucket.objects) == []


def _plain(data: bytes) -> bytes:
    if not data.startswith(b"\x50\x2a\x4d\x18"):
        return data
    reader = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
    return reader.read()


def test_a_missing_segment_is_damage(bucket: CountingBucket, chat: list[str]) -> None:
    gone = segments(bucket)[0]
    del bucket.objects[gone]
    store = store_on(bucket)
    scope = store.scope("chat")
    with pytest.raises(Corrupt):
        scope.load(chat[0])
    assert scope.load() is not None  # the head has the base of its tail
    assert [each.code for each in store.check()] == ["segment_missing"]
    assert store.delete_session("chat") == len(chat)


def test_damaged_last_states_leave_the_history(bucket: CountingBucket, chat: list[str]) -> None:
    """A head whose facts can be read: its segments are read, its states are Corrupt."""
    path = head_of(bucket)
    data, modified = bucket.objects[path]
    bucket.objects[path] = (data[:-9] + b"!" + data[-8:], modified)
    store = store_on(bucket)
    scope = store.scope("chat")
    assert [info.id for info in scope.history()] == chat[::-1]
    assert scope.load(chat[0]) is not None
    for attempt in (scope.load, lambda: scope.save(1), lambda: scope.append("turns", [1])):
        with pytest.raises(Corrupt):
            attempt()
    assert [each.code for each in store.check()] == ["head_damaged"]
    assert [each.repaired for each in store.repair()] == [False]
    assert scope.load(chat[0]) is not None


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
    bucket.objects[path] = (data.replace(b'"v":2', b'"v":3', 1), modified)
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
