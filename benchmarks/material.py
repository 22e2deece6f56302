"""What is saved: a window of messages of real prose that slides by one from save to save.

That is what an agent with a bounded memory hands over.
"""

from functools import cache

import orjson

from benchmarks.prose import prose
from limpet import JSON

MESSAGE_CHARS = 500


@cache
def messages() -> list[dict[str, str]]:
    """Return all the prose there is as messages of a conversation, none of them twice."""
    text = prose()
    texts = [text[at : at + MESSAGE_CHARS] for at in range(0, len(text), MESSAGE_CHARS)]
    roles = ("user", "assistant")
    return [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]


def state_of(number: int, *, size_bytes: int) -> JSON:
    """Return the state after so many steps: its encoding has about the size asked for."""
    all_messages = messages()
    count = max(1, round(size_bytes / _encoded_bytes_per_message()))
    start = number % len(all_messages)
    window = (all_messages * (1 + (start + count) // len(all_messages)))[start : start + count]
    return {"messages": [dict(each) for each in window], "step": number}


@cache
def _encoded_bytes_per_message() -> float:
    return len(orjson.dumps(messages())) / len(messages())
