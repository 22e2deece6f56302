"""How keys are given to a store: by name, in a file, in the environment, by a function."""

import base64
import sys
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet.cli._app import run
from tests.cases import for_each

KEY = base64.b64encode(bytes(range(32))).decode()
OTHER = base64.b64encode(bytes(32)).decode()


def save(url: str, **options: Any) -> None:
    with limpet.open(url, **options) as store:
        store.scope("chat").append("messages", ["hello"])


def load(url: str, **options: Any) -> object:
    with limpet.open(url, **options) as store:
        found = store.scope("chat").load()
        return None if found is None else found.state


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/agents.db"


def test_keys_come_by_name_from_a_function_a_file_or_the_environment(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# ours\n{KEY}\n")
    save(url, keys=KEY)
    expected = {"messages": ["hello"]}
    assert load(url, keys=lambda: KEY) == expected
    assert load(url, keys_file=str(file)) == expected
    assert load(f"{url}?keys_file={file}") == expected
    monkeypatch.setenv("LIMPET_KEYS_FILE", str(file))
    assert load(url) == expected
    monkeypatch.setenv("LIMPET_KEYS", KEY)
    monkeypatch.setenv("LIMPET_KEYS_FILE", "/nowhere")
    assert load(url) == expected


def test_without_the_key_a_state_is_not_read(url: str) -> None:
    save(url, keys=KEY)
    for options in ({}, {"keys": OTHER}):
        with pytest.raises(limpet.Corrupt, match="key"):
            load(url, **options)
    assert load(url, keys=KEY) == {"messages": ["hello"]}


def test_what_is_not_encrypted_is_read_only_if_that_is_allowed(url: str) -> None:
    save(url)
    with pytest.raises(limpet.Corrupt, match="limpet rekey"):
        load(url, keys=KEY)
    assert load(url, keys=KEY, allow_plaintext=True) == {"messages": ["hello"]}


def test_rekey_encrypts_what_is_plain_only_if_asked_to(url: str, tmp_path: Path) -> None:
    save(url)
    (tmp_path / "keys").write_text(KEY)
    command = ["rekey", "--url", f"{url}?keys_file={tmp_path}/keys"]
    assert run(command) == 5
    assert load(url) == {"messages": ["hello"]}
    assert run([*command, "--plaintext"]) == 0
    assert load(url, keys=KEY) == {"messages": ["hello"]}


def test_keys_are_never_part_of_a_url(url: str) -> None:
    with pytest.raises(limpet.InvalidInput, match="a URL does not hold keys") as found:
        limpet.open(f"{url}?keys={KEY}")
    assert KEY not in str(found.value)


@for_each(
    "options, message",
    [
        ({"keys": KEY, "keys_file": "keys"}, "not both"),
        ({"keys": ""}, "keys as text"),
        ({"keys": b"k" * 32}, "keys as text"),
        ({"keys": "short"}, "openssl rand"),
        ({"keys": lambda: None}, "must be text"),
        ({"keys_file": "/nowhere"}, "the keys cannot be read"),
        ({"allow_plaintext": "maybe"}, "true or false"),
    ],
)
def test_what_cannot_be_keys_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(limpet.InvalidInput, match=message):
        limpet.open("memory:", **options)


def test_a_client_of_a_server_takes_no_keys() -> None:
    with pytest.raises(limpet.Unsupported, match="give them to the server"):
        limpet.open("http://127.0.0.1:1", keys=KEY)


def test_without_the_extra_the_message_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(limpet.Unsupported, match=r"limpet\[encryption\]"):
        limpet.open("memory:", keys=KEY)
