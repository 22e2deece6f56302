"""A state as a chat: its messages in one model, whatever framework wrote them.

Reads the messages of Strands, Genkit, Gemini, Anthropic, OpenAI, LangGraph, Pydantic AI, LlamaIndex
and AG2, of supervised runs, and plain ones. An unknown part is kept as JSON: no message raises an
error, and nothing in it is lost except what `model.TECHNICAL` names, and its like in Pydantic AI.
"""

from limpet.views.chat.model import (
    Answer,
    Call,
    Chat,
    ChatTurn,
    Inner,
    Media,
    Part,
    Result,
    Text,
    Value,
)
from limpet.views.chat.nodes import nodes_of, without_internals
from limpet.views.chat.reader import News, chat_news, other_values, read_chat
from limpet.views.chat.text import call_text, media_text, turn_text, value_text

__all__ = [
    "Answer",
    "Call",
    "Chat",
    "ChatTurn",
    "Inner",
    "Media",
    "News",
    "Part",
    "Result",
    "Text",
    "Value",
    "call_text",
    "chat_news",
    "media_text",
    "nodes_of",
    "other_values",
    "read_chat",
    "turn_text",
    "value_text",
    "without_internals",
]
