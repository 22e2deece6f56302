"""What is saved: real prose, since made-up text compresses and compares like nothing real.

The prose is the documentation of standard-library modules, cut into messages. A state is a window
of messages that slides by one from save to save: what an agent with a bounded memory hands over.
"""

import importlib
import inspect
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

import orjson

from holdfast import JSON

MESSAGE_CHARS = 500

# fmt: off
_MODULES = [
    "argparse", "asyncio.base_events", "collections", "configparser", "csv", "datetime", "decimal",
    "difflib", "doctest", "email.message", "ftplib", "http.client", "imaplib", "inspect", "json",
    "logging", "mailbox", "optparse", "os", "pathlib", "pdb", "pickletools", "pydoc", "random",
    "shutil", "smtplib", "socket", "statistics", "string", "subprocess", "tarfile", "tempfile",
    "textwrap", "threading", "turtle", "typing", "unittest.case", "unittest.mock",
    "urllib.request", "uuid", "zipfile",
]
# fmt: on


def _docstrings(owner: Any, module: ModuleType) -> Iterator[str]:
    yield inspect.getdoc(owner) or ""
    for member in vars(owner).values():
        if getattr(member, "__module__", None) == module.__name__:
            if inspect.isclass(member) and owner is module:
                yield from _docstrings(member, module)
            elif inspect.isroutine(member):
                yield inspect.getdoc(member) or ""


@cache
def messages() -> list[dict[str, str]]:
    """Return all the prose there is as messages of a conversation, none of them twice."""
    parts: dict[str, None] = {}
    for name in _MODULES:
        module = importlib.import_module(name)
        parts.update(dict.fromkeys(_docstrings(module, module)))
    prose = "\n\n".join(filter(None, parts))
    texts = [prose[at : at + MESSAGE_CHARS] for at in range(0, len(prose), MESSAGE_CHARS)]
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
