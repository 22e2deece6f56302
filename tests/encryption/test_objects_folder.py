"""An encrypted folder: what is in its files, who can read it, and how its keys change."""

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import Corrupt, InvalidInput, Store, opening
from limpet.backends.buckets.directory.bucket import DirectoryBucket
from limpet.backends.buckets.protocol import Listed
from limpet.backends.objects import files as objects_files
from limpet.backends.objects import listing
from limpet.backends.objects.encrypted import EncryptedBucket
from limpet.cli._app import run
from limpet.core.encryption import Keys
from limpet.model import Expect
from tests.buckets.counting import CountingBucket, kills
from tests.buckets.opened import store_on
from tests.cases import for_each
from tests.encryption.objects_kit import (
    CANARY,
    ONE,
    THREE,
    TWO,
    ciphers_of,
    files,
    fill,
    noise,
    open_folder,
    shown,
)
from tests.unit.test_format import blocks

LONG = "L" * 300  # longer than a name in a key may be
HEAD = "sessions/s/scopes/agent/main/snapshots/head"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def check_is_hidden(root: Path) -> None:
    """No file and no name holds the canary, as it is or as labels are escaped."""
    found = files(root)
    assert any("/segments/" in key for key in found)
    for key, data in found.items():
        assert CANARY not in key
        assert CANARY.encode() not in data
        if key.startswith("sessions/") and data:
            assert data[:1] == b"\x01"
            assert b"limpet" not in data


def test_no_file_and_no_name_holds_any_content(root: Path) -> None:
    with limpet.open("memory:") as plain:
        fill(plain)
        expected = shown(plain)
    with open_folder(root) as store:
        fill(store)
        assert shown(store) == expected
        assert list(store.check()) == []
    check_is_hidden(root)
    with open_folder(root) as store:
        assert shown(store) == expected
        assert store.delete_session("s") == 6
    assert not files(root)


def test_the_example_on_the_page_decrypts_every_object(root: Path) -> None:
    with open_folder(root) as store:
        fill(store)
    keys = Keys(ONE, random=os.urandom, monotonic=lambda: 0.0)
    bucket = EncryptedBucket(opening.open_folder(str(root)), keys)
    (example,) = blocks("Encrypted objects", "python")
    page: dict[str, Any] = {}
    exec(example, page)
    objects = [key for key, data in files(root).items() if data and key.startswith("sessions/")]
    for key, stored in zip(objects, bucket.get(objects), strict=True):
        assert stored is not None
        assert page["decrypted"](root, key, base64.b64decode(ONE), "s") == stored.data


# Without a key


@for_each(
    "keys, message",
    [(None, "this is encrypted: open the store with keys="), (TWO, "not given")],
)
def test_without_the_key_nothing_is_read_and_nothing_is_lost(
    tmp_path: Path, keys: str | None, message: str
) -> None:
    root = tmp_path / "store"
    with open_folder(root) as store:
        fill(store)
        expected = shown(store)
    before = files(root)
    with open_folder(root, keys) as store:
        scope = store.scope("s")
        attempts: list[Callable[[], object]] = [
            scope.load,
            lambda: list(scope.history()),
            lambda: scope.save(1),
            lambda: scope.note("n"),
        ]
        for attempt in attempts:
            with pytest.raises(Corrupt, match=message):
                attempt()
        assert list(store.sessions()) == ["s"]
        assert list(store.history()) == []
        found = list(store.repair())
        assert {each.code for each in found} == {"keys_wrong"}
        assert all(message in each.message and not each.repaired for each in found)
    assert files(root) == before
    with open_folder(root) as store:
        assert shown(store) == expected


@for_each("keys", [None, TWO])
def test_repair_does_not_replace_a_head_that_only_lacks_its_key(
    tmp_path: Path, keys: str | None
) -> None:
    """Its segments can be read, so that it could be rebuilt from them: the tail would be lost."""
    root = tmp_path / "store"
    with open_folder(root, keys) as store:
        fill(store)
    older = files(root)
    with open_folder(root, f"{ONE}\n{keys or ''}", allow_plaintext=True) as store:
        store.rekey()
        expected = shown(store)
    newer = files(root)
    for key, data in older.items():
        if "/segments/" in key:
            (root / key).write_bytes(data)
    with open_folder(root, keys) as store:
        found = [each for each in store.repair() if each.severity == "error"]
        assert {each.code for each in found} == {"keys_wrong"}
        assert not any(each.repaired for each in found)
    assert (root / HEAD).read_bytes() == newer[HEAD]
    with open_folder(root, f"{ONE}\n{keys or ''}", allow_plaintext=True) as store:
        assert shown(store) == expected


def test_repair_rebuilds_a_damaged_head_and_keeps_it_aside(root: Path) -> None:
    with open_folder(root) as store:
        fill(store)
    damaged = (root / HEAD).read_bytes()[:-400] + b"spoilt"
    (root / HEAD).write_bytes(damaged[:40] + b"spoilt" + damaged[46:])
    with open_folder(root) as store:
        (found,) = (each for each in store.repair() if each.code == "head_damaged")
        assert found.repaired
        assert store.scope("s").load("a") is not None
        assert [each.code for each in store.check()] == ["foreign_file"]
    (aside,) = (key for key in files(root) if "/damaged/" in key)
    assert files(root)[aside][:1] == b"\x01"
    with open_folder(root, f"{TWO}\n{ONE}") as store:
        store.rekey()
    with open_folder(root, TWO) as store:
        assert store.scope("s").load("a") is not None
    assert files(root)[aside][1:5] == (root / HEAD).read_bytes()[1:5]


def test_what_is_not_encrypted_is_refused_unless_that_is_allowed(root: Path) -> None:
    with open_folder(root, None) as store:
        fill(store)
        expected = shown(store)
    before = files(root)
    with open_folder(root) as store:
        with pytest.raises(Corrupt, match="limpet rekey"):
            store.scope("s").load()
        with pytest.raises(Corrupt, match="limpet rekey"):
            store.scope("s").save(1)
        list(store.repair())
    assert files(root) == before
    with open_folder(root, allow_plaintext=True) as store:
        assert shown(store) == expected


# A key for each tenant


def test_a_tenant_without_its_key_is_forgotten_and_the_others_are_not(root: Path) -> None:
    """Also where keys have a long id only clipped."""
    acme, other = ("acme/1", f"acme/{LONG}"), ("zeta/1", f"zeta/{LONG}")
    with open_folder(root, f"{ONE} acme/\n{TWO} zeta/") as store:
        for session in (*acme, *other):
            store.scope(session).save({"of": session}, labels={"task": "tax"})
        assert len(list(store.history(labels={"task": "tax"}))) == 4
        assert len(list(store.history(labels={"task": "tax"}, prefix="acme/"))) == 2
        with pytest.raises(InvalidInput, match="no key for this session"):
            store.scope("nobody").save(1)
        with pytest.raises(InvalidInput, match="no key for this session"):
            store.scope("nobody").set_note("n", 1)
        assert not any("nobody" in key for key in files(root))
    with open_folder(root, f"{TWO} zeta/") as store:
        for session in acme:
            with pytest.raises(Corrupt, match="the key of what is stored is not given"):
                store.scope(session).load()
        for session in other:
            assert store.scope(session).load().state == {"of": session}  # type: ignore[union-attr]
        assert {i.scope.session_id for i in store.history()} == {*other}
        assert {i.scope.session_id for i in store.history(labels={"task": "tax"})} == {*other}
        minted = store.scope("zeta/1").info().id  # type: ignore[union-attr]
        begun = store.driver.run(lambda backend: backend.find_refs(minted[:4], limit=9))
        assert {ref.scope.session_id for ref in begun} == {*other}
        assert store.find(minted).scope.session_id == "zeta/1"  # type: ignore[union-attr]
        assert (store.stats().snapshots, store.compact(), store.rekey()) == (2, 0, 0)
        assert {each.code for each in store.repair()} == {"keys_wrong"}
        for session in acme:
            store.delete_session(session)
        assert set(store.sessions()) == {*other}
        assert not any("acme" in key for key in files(root) if key.startswith("sessions/"))


def test_a_prefix_that_names_do_not_have_is_refused(root: Path) -> None:
    with pytest.raises(InvalidInput, match="the prefix of a key is too long"):
        open_folder(root, f"{ONE}\n{TWO} {LONG}")


# New keys


def test_keys_change_while_the_store_is_used(root: Path) -> None:
    """Before, during and after `rekey` everything is found; afterwards the old key can go."""
    with open_folder(root) as store:
        fill(store)
    given = [ONE]
    with (
        open_folder(root, lambda: "\n".join(given)) as old,
        open_folder(root, TWO + "\n" + ONE) as new,
    ):
        expected = shown(old)
        assert shown(new) == expected
        coloured = len(list(old.history(labels={"colour": CANARY}))) + 1
        labels = {"colour": CANARY, CANARY: "late"}
        new.scope("s").save({"by": "the new key"}, id="late", labels=labels)
        given.insert(0, TWO)
        assert old.scope("s").load().state == {"by": "the new key"}  # type: ignore[union-attr]
        assert len(list(new.history(labels={"colour": CANARY}))) == coloured
        assert list(new.check()) == []
        count = new.rekey()
        assert count >= 8
        assert new.rekey() == 0
    with open_folder(root, TWO) as store:
        assert len(list(store.history(labels={"colour": CANARY}))) == coloured
        assert list(store.check()) == []
        store.scope("s").delete_snapshot("late")
        assert shown(store)["found"] == expected["found"]
        store.delete_session("s")
    assert not files(root)


def test_a_plain_store_is_encrypted(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_folder(root, None) as store:
        fill(store)
        expected = shown(store)
    foreign = root / "sessions" / "readme.txt"
    foreign.write_text("mine")
    dangling = next(key for key in files(root) if "/labels/" in key)
    (root / dangling).with_name((root / dangling).name[:-16] + "0" * 16).touch()
    (tmp_path / "keys").write_text(ONE)
    assert (
        run(["rekey", "--plaintext", "--url", f"file://{root}?keys_file={tmp_path}/keys", "--json"])
        == 0
    )
    assert json.loads(capsys.readouterr().out)["errors"] == 0
    assert foreign.read_text() == "mine"
    foreign.unlink()
    check_is_hidden(root)
    with open_folder(root) as store:
        assert shown(store) == expected
        assert list(store.check()) == []


def test_without_keys_there_is_nothing_to_encrypt_with(root: Path) -> None:
    with open_folder(root, None) as store, pytest.raises(InvalidInput, match="without keys"):
        store.rekey()


def test_rekey_leaves_alone_what_it_cannot_decrypt(root: Path) -> None:
    with open_folder(root, THREE) as store:
        store.scope("theirs").save(1)
    with open_folder(root, ONE) as store:
        store.scope("ours").save(noise(1))
    path = root / "sessions/ours/scopes/agent/main/snapshots/head"
    path.write_bytes(path.read_bytes()[:-1] + b"x")  # of which the facts can still be read
    before = files(root)
    with open_folder(root, f"{TWO}\n{ONE}") as store:
        assert store.rekey() == 0
    assert files(root) == before


def test_a_rekey_that_is_killed_is_repeated() -> None:
    """Until then everything is found, and can be changed; afterwards with the new key alone."""
    given, labels = [ONE], {"task": "tax"}

    def opened(bucket: CountingBucket) -> Store:
        return store_on(bucket, ciphers=ciphers_of("\n".join(given)))

    def fill(store: Store) -> None:
        for at in range(5):
            store.scope(f"s-{at}").save({"n": at}, labels=labels)
        given.insert(0, TWO)

    for bucket in kills(opened, fill, Store.rekey):
        with opened(bucket) as store:
            assert len(list(store.history(labels=labels))) == 5
            store.scope("s-1").append("turns", [1])
            store.rekey()
        with store_on(bucket, ciphers=ciphers_of(TWO)) as store:
            assert len(list(store.history(labels=labels))) == 5
            assert store.scope("s-1").load().state == {"n": 1, "turns": [1]}  # type: ignore[union-attr]
            assert not [each for each in store.check() if each.severity != "info"]


def test_what_is_saved_while_a_rekey_is_under_way_stays() -> None:
    """Between its read of a head and its write of it."""
    meanwhile: list[Callable[[], object]] = []

    class Bucket(CountingBucket):
        def put(self, key: str, data: bytes, *, expect: Expect) -> str:
            if key.endswith("/head") and meanwhile:
                meanwhile.pop()()
            return super().put(key, data, expect=expect)

    bucket = Bucket()
    store_on(bucket, ciphers=ciphers_of(ONE)).scope("s").save({"n": 1})
    store = store_on(bucket, ciphers=ciphers_of(f"{TWO}\n{ONE}"))
    meanwhile.append(lambda: store.scope("s").append("turns", [1]))
    store.rekey()
    assert not meanwhile
    found = store_on(bucket, ciphers=ciphers_of(TWO)).scope("s").load()
    assert found.state == {"n": 1, "turns": [1]}  # type: ignore[union-attr]


def test_labels_are_found_by_a_program_that_has_not_met_the_new_key(root: Path) -> None:
    given = [ONE]
    labels = {"task": "tax"}
    with (
        open_folder(root, lambda: "\n".join(given)) as old,
        open_folder(root, f"{TWO}\n{ONE}") as new,
    ):
        for at in range(3):
            old.scope(f"s-{at}").save(at, labels=labels)
        given.insert(0, TWO)
        new.rekey()
        assert len(list(old.history(labels=labels))) == 3


def test_a_pointer_that_moves_meanwhile_is_found(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing of several pages is continued after `rekey` has moved all pointers."""
    monkeypatch.setattr(objects_files, "PAGE", 3)
    monkeypatch.setattr(listing, "PAGE", 3)
    monkeypatch.setattr(objects_files, "_CHUNK", 2)
    labels = {"task": "tax"}
    with open_folder(root, ONE) as store:
        for at in range(10):
            store.scope(f"s-{at}").save(at, labels=labels)
    list_keys, others, moved = DirectoryBucket.list, list[Store](), list[int]()

    def moving(bucket: DirectoryBucket, prefix: str, **asked: Any) -> list[Listed]:
        if asked.get("after") and "/labels/" in prefix and not moved:
            moved.append(0)
            moved.append(others[0].rekey())
        return list_keys(bucket, prefix, **asked)

    monkeypatch.setattr(DirectoryBucket, "list", moving)
    with open_folder(root, f"{TWO}\n{ONE}") as store, open_folder(root, f"{TWO}\n{ONE}") as other:
        others.append(other)
        found = [info.scope.session_id for info in store.history(labels=labels)]
        assert moved[1] >= 20
        assert sorted(found) == [f"s-{at}" for at in range(10)]


def test_no_pointer_names_a_session_that_was_deleted_without_its_key(root: Path) -> None:
    with open_folder(root, f"{ONE} acme/\n{TWO} zeta/") as store:
        for session in ("acme/1", f"acme/{LONG}", "acme/2", "zeta/1"):
            fill(store, session)
        expected = shown(store)["zeta/1/main/agent"]
    with open_folder(root, f"{TWO} zeta/") as store:
        store.delete_session("acme/1")
        store.delete_session(f"acme/{LONG}")
        store.scope("acme/2").delete()
        store.scope("acme/2", "fork").delete()
        assert not [key for key in files(root) if "acme" in key]
        assert shown(store)["zeta/1/main/agent"] == expected
        assert list(store.check()) == []
