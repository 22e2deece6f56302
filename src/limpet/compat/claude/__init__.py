"""Sessions of the Claude Agent SDK: its `SessionStore` on every engine.

The SDK mirrors each transcript into it while the agent works, and resumes from it on any machine::

    from claude_agent_sdk import ClaudeAgentOptions, query
    from limpet.compat.claude import LimpetClaudeStore

    async with limpet.open_async("postgresql://localhost/agents") as store:
        options = ClaudeAgentOptions(session_store=LimpetClaudeStore(store), resume=session_id)
        async for message in query(prompt="Go on.", options=options):
            print(message)

How the terms translate, so that other programs see what is saved here:

| Claude Agent SDK                | Limpet                                                       |
|---------------------------------|--------------------------------------------------------------|
| `project_key`, `session_id`     | the session `claude/project_key/session_id`, each with `%`   |
|                                 | and `/` inside escaped as in URLs                            |
| the main transcript             | the scope `main`, of kind `conversation`                     |
| a subagent's, with a `subpath`  | the scope `main/<subpath>`                                   |
| the entries                     | `state["entries"]`; each append is a kept snapshot           |
| the `data` of the summary       | `metadata["claude"]` of the head                             |
| `mtime`                         | when the head was saved                                      |
"""

from limpet.compat.extras import needs

with needs("claude_agent_sdk", "the Claude Agent SDK", extra="claude"):
    from limpet.compat.claude.store import LimpetClaudeStore

__all__ = ["LimpetClaudeStore"]
