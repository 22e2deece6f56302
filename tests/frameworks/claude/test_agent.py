"""The real agent, with a fake model, over a store."""

from pathlib import Path

import claude_agent_sdk as sdk
import pytest

import limpet
from examples.claude_agent import fake_model, talk
from limpet.compat.claude import LimpetClaudeStore
from tests.frameworks.claude.keys import key


@pytest.mark.slow
async def test_a_conversation_goes_on_from_the_store(memory: limpet.Store, tmp_path: Path) -> None:
    sessions = LimpetClaudeStore(memory)
    options = sdk.ClaudeAgentOptions(
        session_store=sessions,
        env=fake_model(str(tmp_path / "one")),
        model="fake",
        tools=[],
        setting_sources=[],
        stderr=lambda line: None,
    )
    await talk(options, "hello")
    (found,) = await sdk.list_sessions_from_store(sessions)
    options.continue_conversation = True
    options.env["CLAUDE_CONFIG_DIR"] = str(tmp_path / "two")
    await talk(options, "faster")
    messages = await sdk.get_session_messages_from_store(sessions, found.session_id)
    said = [each.message["content"] for each in messages]
    assert [said[0], said[2]] == ["hello", "faster"]
    assert [each[0]["text"] for each in (said[1], said[3])] == [
        "I would take the night train.",
        "I would take a flight.",
    ]
    entries = await sessions.load(key(found.session_id)) or []
    uuids = [each["uuid"] for each in entries if "uuid" in each]
    assert len(uuids) == len({*uuids})
