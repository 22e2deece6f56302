"""Sessions of the OpenAI Agents SDK: its `Session` on every engine.

They branch, keep their history, and store runs that wait for a person::

    from agents import Agent, Runner
    from limpet.compat.openai import LimpetSession

    async with limpet.open_async("sqlite:///agents.db") as store:
        session = LimpetSession("chat-42", store)
        result = await Runner.run(agent, "Hello", session=session)
        again = await session.branch(turn=1)         # as it was before the first question

How the terms translate, so that other programs see what is saved here:

| OpenAI Agents SDK                  | Limpet                                                   |
|------------------------------------|----------------------------------------------------------|
| `session_id`                       | session                                                  |
| the branch: `main`, or its name    | scope id, kind `conversation`                            |
| items                              | the state: `{"items": [...]}`; each `add_items` a snapshot |
| metadata                           | note `metadata` of the scope `main`                      |
| a run that waits (`RunState`)      | scope `run`, or `run/` and the branch, kind `run`        |

`limpet import openai-sqlite` imports the files of the SDK's own sessions.
"""

from limpet.compat.extras import needs

with needs("agents", "the OpenAI Agents SDK", extra="openai"):
    from limpet.compat.openai.store import LimpetSession, SessionInfo, list_sessions

__all__ = ["LimpetSession", "SessionInfo", "list_sessions"]
