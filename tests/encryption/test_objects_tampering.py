"""Somebody who can write to the folder, but has no key: what is noticed, and what cannot be.

A read raises Corrupt, or returns what was saved there: never anything else.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from limpet import Corrupt, Scope, Store
from limpet.backends.objects.encrypted import EncryptedBucket
from limpet.core.encryption import Keys
from limpet.model import ANY
from tests.buckets.counting import CountingBucket
from tests.cases import for_each
from tests.encryption.objects_kit import ONE, files, noise, open_folder, outcome

SCOPES = (("s", "main"), ("s", "fork"), ("t", "main"))
HEAD = "sessions/s/scopes/agent/main/snapshots/head"
FIRST_BYTES, REST_BYTES = 37, 33


def fill(root: Path) -> None:
    with open_folder(root) as store:
        for session in "st":
            scope = store.scope(session)
            for at, id in enumerate("abc"):
                scope.save({"of": session, "id": id, "text": noise(at)}, id=id, labels={"l": id})
            scope.set_note("n", session)
            scope.set_note("n", id, on="a")
        store.scope("s").fork("b", scope_id="fork")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tampering") / "store"
    fill(root)
    return root


@pytest.fixture
def root(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "store"))


def revisions(scope: Scope) -> list[str]:
    return [each.revision for each in scope.history()]


def answers(store: Store, session: str | None = None) -> Iterator[tuple[Any, Any]]:
    """Return every read of a session, or of all, and what it gives."""
    for name, scope_id in SCOPES:
        if session not in (None, name):
            continue
        scope = store.scope(name, scope_id)
        yield (name, scope_id), outcome(scope.load)
        yield (
            (name, scope_id, "history"),
            outcome(partial(revisions, scope)),
        )
        yield (name, scope_id, "notes"), outcome(partial(scope.note, "n"))
        yield (name, scope_id, "noted"), outcome(partial(scope.note, "n", on="a"))
        for id in "abc":
            yield (name, scope_id, id), outcome(partial(scope.load, id))


def check_noticed(root: Path, expected: dict[Any, Any], session: str) -> set[Any]:
    """Read a session that was changed; return what is Corrupt of it."""
    with open_folder(root) as store:
        found = dict(answers(store, session))
        wrong = {place for place, each in found.items() if each != expected[place]}
        assert wrong
        for place in wrong:
            # A history leaves out a segment that cannot be read, as everywhere.
            is_less = "history" in place and found[place] is not Corrupt
            assert set(found[place]) < set(expected[place]) if is_less else found[place] is Corrupt
        assert any(each.severity == "error" for each in store.check())
    return wrong


@pytest.fixture
def expected(root: Path) -> dict[Any, Any]:
    with open_folder(root) as store:
        return dict(answers(store))


def objects(root: Path) -> dict[str, bytes]:
    """Return what is stored of sessions, without the marks, which are empty."""
    found = files(root).items()
    return {key: each for key, each in found if key.startswith("sessions/") and each}


@pytest.mark.slow
def test_an_object_under_the_key_of_another_is_noticed(
    root: Path, expected: dict[Any, Any]
) -> None:
    stored = objects(root)
    assert sum("/segments/" in key for key in stored) >= 2
    for here, there in permutations(stored, 2):
        (root / here).write_bytes(stored[there])
        check_noticed(root, expected, here.split("/")[1])
        (root / here).write_bytes(stored[here])


@pytest.mark.slow
def test_a_flipped_bit_and_what_is_cut_off_are_noticed(
    root: Path, expected: dict[Any, Any]
) -> None:
    for key, data in objects(root).items():
        if key.startswith("sessions/t"):
            continue
        border = int.from_bytes(data[5:9]) + FIRST_BYTES
        assert border < len(data)
        changed = [data + b"x"]
        for at in {*range(10), *range(12, 45, 3), border - 1, border, border + 33, len(data) - 1}:
            flipped = bytearray(data)
            flipped[at % len(data)] ^= 1 << at % 8
            changed += [bytes(flipped), data[: at % len(data)]]
        for each in changed:
            (root / key).write_bytes(each)
            check_noticed(root, expected, "s")
        (root / key).write_bytes(data)


def test_parts_of_two_versions_do_not_fit_together(root: Path, expected: dict[Any, Any]) -> None:
    before = (root / HEAD).read_bytes()
    with open_folder(root) as store:
        store.scope("s").append("more", [1])
        store.scope("s").delete_snapshot(store.scope("s").info().id)  # type: ignore[union-attr]
        expected = dict(answers(store))
    after = (root / HEAD).read_bytes()
    ends = [int.from_bytes(each[5:9]) + FIRST_BYTES for each in (before, after)]
    for mixed in (
        before[: ends[0]] + after[ends[1] :],
        after[: ends[1]] + before[ends[0] :],
        after + before[ends[0] :],
        after[:9] + before[9:],
        after[: ends[1]],
        after[:-1],
    ):
        (root / HEAD).write_bytes(mixed)
        check_noticed(root, expected, "s")


WRITES: dict[str, Callable[[Scope], object]] = {
    "append": lambda scope: scope.append("more", [1]),
    "deletion": lambda scope: scope.delete_snapshot("a"),
    "many": lambda scope: [scope.save({"n": n}) for n in range(40)],
}


def restore(root: Path, before: dict[str, bytes]) -> None:
    """Put all files of a moment back that are others now."""
    for key, data in before.items():
        path = root / key
        if not path.exists() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_head_that_was_put_back_is_noticed_by_who_wrote_the_newer_one(
    root: Path, write: Callable[[Scope], object]
) -> None:
    """Or has read it; nobody else can know: it was the head once."""
    before, put_back = files(root), "older than one that this process has read or written"
    with open_folder(root) as store, open_folder(root) as other:
        write(store.scope("s"))
        after = files(root)
        restore(root, before)
        attempts: list[Callable[[], object]] = [
            store.scope("s").load,
            lambda: store.scope("s").append("more", [2]),
            lambda: store.scope("s").set_note("n", 2),
        ]
        for attempt in attempts:
            with pytest.raises(Corrupt, match=put_back):
                attempt()
        for found in (list(store.check()), list(store.repair())):
            odd = [(each.code, each.repaired) for each in found if each.severity != "info"]
            assert odd == [("head_damaged", False)]
        assert (root / HEAD).read_bytes() == before[HEAD]
        assert store.scope("t").load() is not None
        assert other.scope("s").load().id == "c"  # type: ignore[union-attr]
        restore(root, after)
        assert store.scope("s").load() == other.scope("s").load()
        restore(root, before)
        with pytest.raises(Corrupt, match=put_back):
            other.scope("s").load()
        other.delete_session("s")
        store.scope("s").save("another line")
        assert store.scope("s").load().state == "another line"  # type: ignore[union-attr]


def test_what_cannot_be_noticed(root: Path, tmp_path: Path) -> None:
    """A whole scope that is removed, and the same place of another store with the same key."""
    fill(tmp_path / "other")
    with open_folder(tmp_path / "other") as store:
        store.scope("s").set_note("n", "of the other store")
    scope = HEAD.removesuffix("/head")
    shutil.rmtree(root / scope)
    shutil.copytree(tmp_path / "other" / scope, root / scope)
    shutil.rmtree(root / "sessions/t")
    with open_folder(root) as store:
        assert store.scope("s").note("n").value == "of the other store"  # type: ignore[union-attr]
        assert store.scope("t").load() is None


# The bucket itself


@for_each("size", [0, 1, 300, 70_000])
def test_the_first_bytes_are_those_of_the_facts(size: int) -> None:
    below = CountingBucket()
    keys = Keys(ONE, random=os.urandom, monotonic=lambda: 0.0)
    bucket = EncryptedBucket(below, keys)
    facts = b'{"frames":[%d,7]}\n' % size + b"f" * size
    data = facts + b"states!"
    bucket.put(HEAD, data, expect=ANY)
    assert len(below.objects[HEAD][0]) == len(data) + FIRST_BYTES + REST_BYTES
    (whole,) = bucket.get([HEAD])
    assert whole is not None
    assert (whole.data, whole.size) == (data, len(data))
    for first in (1, len(facts) - 1, len(facts), len(data) + 99):
        (found,) = bucket.get([HEAD], first=first)
        assert found is not None
        assert found.size == len(data)
        known = b"" if first < len(facts) else facts if first < len(data) + REST_BYTES else data
        assert found.data == known


def test_a_foreign_object_in_the_place_of_a_head_is_one_part() -> None:
    bucket = EncryptedBucket(CountingBucket(), Keys(ONE, random=os.urandom, monotonic=lambda: 0.0))
    for data in (b"", b"no line", b"[]\n", b'{"frames":["x"]}\n', b'{"frames":[99]}\n'):
        bucket.put(HEAD, data, expect=ANY)
        (found,) = bucket.get([HEAD])
        assert found is not None
        assert found.data == data
