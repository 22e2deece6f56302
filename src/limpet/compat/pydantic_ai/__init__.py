"""Conversations of Pydantic AI agents: its `ConversationStore` on every engine.

Load a conversation before a run, and save the result after it::

    from pydantic_ai import Conversation
    from limpet.compat.pydantic_ai import LimpetConversationStore

    async with limpet.open_async("sqlite:///agents.db") as store:
        conversations = LimpetConversationStore(store)
        chat = await conversations.load("chat-42") or Conversation(conversation_id="chat-42")
        result = await agent.run("Hello!", conversation=chat)
        await conversations.save(result)

How the terms translate, so that other programs see what is saved here:

| Pydantic AI                | Limpet                                                           |
|----------------------------|------------------------------------------------------------------|
| `conversation_id`          | session; the scope is `main`, of kind `conversation`             |
| a save, a branch           | a kept snapshot, the new head                                    |
| the history up to the head | the state: `{"messages": [{"id": entry, "message": {...}}]}`     |
| the rest of the record     | `metadata["pydantic_ai"]`                                        |
| the entries of a save      | labels, by which they are found: `{entry: "entry"}`              |
| a fork                     | another session, whose first snapshot says where it comes from   |

`docs/decisions/0038-pydantic-ai.md` says why.
"""

from limpet.compat.extras import needs

with needs("pydantic_ai", "Pydantic AI", extra="pydantic-ai"):
    from limpet.compat.pydantic_ai.store import LimpetConversationStore

__all__ = ["LimpetConversationStore"]
