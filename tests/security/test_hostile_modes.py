"""What is created can be read by its owner alone, whatever the umask."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import limpet
from tests.cli.conftest import Command, command  # noqa: F401
from tests.encryption.keys import ONE


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """The one that hides nothing: every other only takes rights away."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {
        str(each.relative_to(folder)): stat.S_IMODE(each.stat().st_mode)
        for each in folder.rglob("*")
    }


@pytest.mark.parametrize(
    "name", ["sqlite:///%s/a.db?synchronous=off", "file://%s/new/folder?sync=false"]
)
def test_a_new_store_is_private(tmp_path: Path, name: str) -> None:
    tmp_path.chmod(0o700)
    with limpet.open(name % tmp_path) as store:
        scope = store.scope("s")
        for number in range(40):
            scope.save({"items": ["x" * 2_000, number]})
        scope.set_note("n", 1)
        store.compact()
        found = modes(tmp_path)
        assert found
        assert all(mode & 0o077 == 0 for mode in found.values()), found
        if name.startswith("sqlite"):
            assert {"a.db", "a.db-wal", "a.db-shm"} <= found.keys()


def test_a_file_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.touch()
    path.chmod(0o640)
    with limpet.open(f"sqlite:///{path}") as store:
        store.scope("s").save(1)
        assert modes(tmp_path)["a.db"] == 0o640


def test_an_export_is_private_and_doctor_names_a_store_that_is_not(
    tmp_path: Path,
    command: Command,  # noqa: F811
) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    with limpet.open(url) as store:
        store.scope("s").save(1)
    assert command("export", "-o", "out.jsonl", LIMPET_URL=url).returncode == 0
    assert modes(tmp_path)["out.jsonl"] == 0o600
    (tmp_path / "link.jsonl").symlink_to("out.jsonl")
    for name, mode in (("out.jsonl", 0o644), ("out.jsonl", 0o666), ("link.jsonl", 0o644)):
        (tmp_path / "out.jsonl").chmod(mode)
        assert command("export", "-o", name, LIMPET_URL=url).returncode == 0
        assert (tmp_path / "out.jsonl").stat().st_mode & 0o777 == 0o600
    assert "other users can read" not in command("doctor", LIMPET_URL=url).stdout
    (tmp_path / "a.db").chmod(0o644)
    seen = command("doctor", LIMPET_URL=url)
    assert seen.returncode == 0
    assert "other users can read the store" in seen.stdout


def test_doctor_names_a_file_of_keys_that_others_can_read(
    tmp_path: Path,
    command: Command,  # noqa: F811
) -> None:
    keys = tmp_path / "keys"
    keys.write_text(ONE)
    url = f"sqlite:///{tmp_path}/a.db"
    by_url = {"LIMPET_URL": f"{url}?keys_file={keys}"}
    by_variable = {"LIMPET_URL": url, "LIMPET_KEYS_FILE": str(keys)}
    for mode, given in ((0o600, by_url), (0o640, by_url), (0o604, by_variable)):
        keys.chmod(mode)
        seen = command("doctor", **given)
        assert seen.returncode == 0
        assert ("can read the keys of the store" in seen.stdout) is (mode != 0o600)
