"""Over HTTP the keys are at the server: nobody else needs them, and nothing shows them."""

import base64
from pathlib import Path

import pytest

import limpet
from tests.encryption.objects_kit import ONE, TWO, files, fill, open_folder, shown
from tests.server.process import Server

SECRETS = {ONE, base64.b64decode(ONE).hex(), str(base64.b64decode(ONE))}
PATHS = (
    "/metrics",
    "/openapi.json",
    "/v1",
    "/v1/stats",
    "/v1/check",
    "/v1/sessions",
    "/v1/scope?session_id=s",
    "/v1/scope?session_id=theirs",
    "/ui",
    "/ui/session?session_id=s",
    "/ui/session?session_id=theirs",
)


@pytest.mark.slow
def test_a_server_has_the_keys_and_shows_them_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    (tmp_path / "keys").write_text(ONE)
    with limpet.open("memory:") as plain:
        fill(plain)
        expected = shown(plain)
    with open_folder(root, TWO) as theirs:
        theirs.scope("theirs").save(1)
    monkeypatch.setenv("LIMPET_KEYS_FILE", str(tmp_path / "keys"))
    with Server(tmp_path, "--ui", url=f"file://{root}?sync=false") as server:
        monkeypatch.delenv("LIMPET_KEYS_FILE")
        with limpet.open(server.url) as client:
            fill(client)
            with pytest.raises(limpet.Corrupt, match="the key of what is stored is not given"):
                client.scope("theirs").load()
            with pytest.raises(limpet.Unsupported, match="where it runs"):
                client.rekey()
            client.delete_session("theirs")
            assert shown(client) == expected
        answers = [server.ask("GET", path) for path in PATHS]
        texts = [server.log, *(f"{each.headers}{each.body.decode()}" for each in answers)]
        assert sum(each.status == 200 for each in answers) >= 6
        assert not any(secret in text for secret in SECRETS for text in texts)
    stored = [data for key, data in files(root).items() if "sessions/" in key and data]
    assert all(data.startswith(b"\x01") for data in stored)
