"""A folder of documents whose disk is full, whose files are damaged, or which others write to."""

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import Conflict, Corrupt, Scope, Snapshot, Store, Unavailable
from limpet.backends.buckets.directory.bucket import DirectoryBucket
from limpet.backends.objects.backend import ObjectBackend
from limpet.core.layout import Layout
from limpet.model import Expect
from limpet.opening import CLOCK, draw, store_over
from tests.crash.mortal_objects import dump, sealed, strangers

FOLDER = "sessions/s/scopes/agent/main/snapshots"
HEAD, COPY = f"{FOLDER}/snapshot_latest.json", f"{FOLDER}/immutable_history/snapshot_a.json"
NOTE, NOTED = f"{FOLDER}/notes/scope/n.json", f"{FOLDER}/notes/on/a/n.json"
MANIFEST = f"{FOLDER}/manifest.json"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    with limpet.open(f"file://{root}", sync=False) as store:
        yield store


def fill(scope: Scope) -> Scope:
    scope.save(sealed("a"), id="a", labels={"colour": "red"})
    scope.save(sealed("b"), id="b")
    scope.set_note("n", sealed("n"))
    scope.set_note("n", sealed("m"), on="a")
    return scope


def changed(was: Snapshot) -> Snapshot:
    return was.with_(state=sealed(was.state["text"] + "+"))


def text_of(found: Snapshot | None) -> str | None:
    return None if found is None else str(found.state["text"])


# A full disk


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


# Damage


def without_end(stored: bytes) -> bytes:
    return stored[: len(stored) // 2]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda stored: b"",
    "truncated": without_end,
    "without its last byte": lambda stored: stored[:-1],
    "with a BOM": lambda stored: b"\xef\xbb\xbf" + stored,
    "a list": lambda stored: b"[]",
    "a text": lambda stored: b'"text"',
    "null": lambda stored: b"null",
    "no JSON": lambda stored: b"\x00\xff" * 100,
    "an object without data": lambda stored: b'{"scope":"agent","schemaVersion":"1.0"}',
    "one bit": lambda stored: stored[:-3] + bytes([stored[-3] ^ 1]) + stored[-2:],
}


# There the header passes its check: the snapshot is listed, and only its state cannot be read.
STATE_ONLY = {"without its last byte", "one bit"}


def damage(root: Path, place: str, how: str) -> bytes:
    path = root / place
    path.write_bytes(DAMAGE[how](path.read_bytes()))
    return path.read_bytes()


def refuses(*verbs: Callable[[], object]) -> None:
    for verb in verbs:
        with pytest.raises(Corrupt):
            verb()


def check_others(store: Store) -> None:
    """See that what is not damaged is listed and read."""
    assert list(store.sessions()) == ["other", "s"]
    assert {info.key.session_id for info in store.scopes()} == {"other", "s"}
    found = store.scope("other").load("o")
    assert found is not None
    assert found.state == sealed("o")
    assert [info.id for info in store.history(labels={"colour": "blue"})] == ["o"]


@pytest.fixture
def scope(store: Store) -> Scope:
    store.scope("other").save(sealed("o"), id="o", labels={"colour": "blue"})
    return fill(store.scope("s"))


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_copy(store: Store, scope: Scope, root: Path, how: str) -> None:
    stored = damage(root, COPY, how)
    refuses(
        lambda: scope.load("a"),
        lambda: list(scope.load_many(["b", "a"])),
        lambda: scope.update("a", changed),
        lambda: scope.save(sealed("c"), id="a"),
        lambda: scope.save(sealed("c"), id="a", overwrite=True),
        lambda: scope.fork("a"),
    )
    check_others(store)
    assert [info.id for info in scope.history()] == (["b", "a"] if how in STATE_ONLY else ["b"])
    scope.save(sealed("d"), id="d")
    assert (root / COPY).read_bytes() == stored
    assert scope.delete_snapshot("a") == 1
    assert scope.load("a") is None
    assert list(scope.ids()) == ["b", "d"]
    scope.save(sealed("again"), id="a")
    assert [info.id for info in scope.history()] == ["a", "d", "b"]


@pytest.mark.parametrize("continuing", [True, False])
@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_head(store: Store, scope: Scope, root: Path, how: str, continuing: bool) -> None:
    stored = damage(root, HEAD, how)
    with limpet.open(f"file://{root}", sync=False) as other:
        mine = scope if continuing else other.scope("s")
        refuses(
            mine.load,
            lambda: mine.append("items", [1]),
            lambda: mine.update("b", changed) if how in STATE_ONLY else mine.save(sealed("c")),
        )
        if how in STATE_ONLY:
            refuses(lambda: mine.load("b"))
        else:
            refuses(
                mine.info,
                lambda: mine.save(sealed("c"), id="a"),
                lambda: mine.save(sealed("c"), keep=False),
                lambda: mine.save(sealed("c"), head=False, expect=None),
                lambda: mine.update("a", changed),
                lambda: mine.delete_snapshot("a"),
            )
            assert text_of(mine.load("b")) == "b"  # what is in history is whole
            mine.save(sealed("d"), id="d", head=False)  # and can be added to
            assert [info.id for info in mine.history()] == ["d", "b", "a"]
        assert text_of(mine.load("a")) == "a"
        assert [info.id for info in mine.history()][-2:] == ["b", "a"]
        assert list(mine.ids())[:2] == ["a", "b"]
        check_others(other)
        assert (root / HEAD).read_bytes() == stored
        assert [each.severity for each in other.check()] == ["error"]
    store.delete_session("s")
    assert (scope.load(), list(scope.history())) == (None, [])
    scope.save(sealed("new"), id="new")
    assert [info.id for info in scope.history()] == list(scope.ids()) == ["new"]


@pytest.mark.parametrize("place", [NOTE, NOTED])
@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_note(store: Store, scope: Scope, root: Path, how: str, place: str) -> None:
    on = None if place == NOTE else "a"
    scope.set_note("other", sealed("x"), on=on)
    stored = damage(root, place, how)
    refuses(
        lambda: scope.note("n", on=on),
        lambda: scope.set_note("n", 1, on=on),
        lambda: scope.set_note("n", lambda was: 1, on=on),
    )
    assert [note.name for note in scope.notes(on=on)] == ["other"]
    check_others(store)
    found = scope.load()
    assert found is not None
    assert (root / place).read_bytes() == stored
    assert scope.delete_note("n", on=on) == 1
    scope.set_note("n", sealed("new"), on=on)
    assert [note.name for note in scope.notes(on=on)] == ["n", "other"]


@pytest.mark.parametrize("how", ["empty", "truncated", "with a BOM", "no JSON"])
def test_a_damaged_manifest(store: Store, scope: Scope, root: Path, how: str) -> None:
    scope.set_note("manifest", {"schemaVersion": "1.0"})
    stored = damage(root, MANIFEST, how)
    refuses(lambda: scope.note("manifest"), lambda: scope.set_note("manifest", 1))
    assert [note.name for note in scope.notes()] == ["n"]
    check_others(store)
    assert (root / MANIFEST).read_bytes() == stored
    assert scope.delete_note("manifest") == 1
    scope.set_note("manifest", 2)


@pytest.mark.parametrize("value", [[], "text", None, 1])
def test_a_manifest_is_any_json(scope: Scope, root: Path, value: Any) -> None:
    scope.set_note("manifest", {"schemaVersion": "1.0"})
    (root / MANIFEST).write_text(json.dumps(value))
    note = scope.note("manifest")
    assert note is not None
    assert note.value == value


# Another tool writes during our update


def foreign(text: str) -> bytes:
    """Return a snapshot as another tool writes it."""
    envelope = {"scope": "agent", "schemaVersion": "1.0", "createdAt": "2026-01-01T00:00:00.000Z"}
    return json.dumps({**envelope, "appData": {}, "data": sealed(text)}).encode()


class Meddled(DirectoryBucket):
    """A folder in which another tool overwrites a file just before we first replace it."""

    meddle: tuple[Path, bytes] | None = None

    def put(self, key: str, data: bytes, *, expect: Expect) -> str:
        if self.meddle is not None and self.meddle[0].as_posix().endswith(key):
            path, other = self.meddle
            self.meddle = None
            path.write_bytes(other)
        return super().put(key, data, expect=expect)


@pytest.fixture
def meddled(root: Path) -> Meddled:
    return Meddled(
        str(root), token=lambda: os.urandom(8).hex(), now=lambda: 0, clock=CLOCK, sync=False
    )


@pytest.fixture
def mine(meddled: Meddled) -> Iterator[Scope]:
    """A scope of a store in which others write."""
    backend = ObjectBackend(meddled, layout=Layout(), index=True, clock=CLOCK, draw=draw)
    with store_over(backend) as store:
        yield fill(store.scope("s"))


def test_a_save_that_expects_loses_to_a_foreign_one(
    mine: Scope, meddled: Meddled, root: Path
) -> None:
    head = mine.info()
    assert head is not None
    meddled.meddle = (root / HEAD, foreign("theirs"))
    with pytest.raises(Conflict):
        mine.save(sealed("c"), id="c", expect=head.revision)
    assert (text_of(mine.load()), mine.load("c")) == ("theirs", None)
    assert [info.id for info in mine.history()] == ["b", "a"]


def test_a_save_comes_after_a_foreign_one(mine: Scope, meddled: Meddled, root: Path) -> None:
    meddled.meddle = (root / HEAD, foreign("theirs"))
    mine.save(sealed("c"), id="c")
    assert text_of(mine.load()) == "c"
    assert [info.id for info in mine.history()] == ["c", "b", "a"]


def test_an_update_of_the_head_outlives_a_foreign_one(
    mine: Scope, meddled: Meddled, root: Path
) -> None:
    """The head is theirs then, and the snapshot is changed in history."""
    meddled.meddle = (root / HEAD, foreign("theirs"))
    assert mine.update("b", changed) is not None
    assert [text_of(mine.load()), text_of(mine.load("b"))] == ["theirs", "b+"]


def test_an_update_below_is_made_of_what_others_wrote(
    mine: Scope, meddled: Meddled, root: Path
) -> None:
    meddled.meddle = (root / COPY, foreign("theirs"))
    seen: list[str] = []

    def change(was: Snapshot) -> Snapshot:
        seen.append(was.state["text"])
        return changed(was)

    assert mine.update("a", change) is not None
    assert (seen, text_of(mine.load("a"))) == (["a", "theirs"], "theirs+")


def test_an_append_is_made_to_what_others_wrote(mine: Scope, meddled: Meddled, root: Path) -> None:
    meddled.meddle = (root / HEAD, foreign("theirs"))
    mine.append("items", [1])
    found = mine.load()
    assert found is not None
    assert found.state == {**sealed("theirs"), "items": [1]}


def test_a_delete_does_not_take_what_others_wrote(
    mine: Scope, meddled: Meddled, root: Path
) -> None:
    meddled.meddle = (root / HEAD, foreign("theirs"))
    assert mine.delete_snapshot("b") == 1
    assert text_of(mine.load()) == "theirs"
    assert [info.id for info in mine.history()] == ["a"]
