"""Prompts and other objects of langchain-core, in LangChain's own format.

A prompt holds types and functions that its constructor derives from the other fields, so it is made
by its constructor. Only the classes below are made: they hold data. LangChain's own list also has
runnables, which call others.
"""

from functools import cache
from importlib import import_module
from typing import Any

from langchain_core.documents import Document
from langchain_core.load.serializable import Serializable

from limpet.compat.langgraph import upstream
from limpet.compat.langgraph.allowed import MESSAGES
from limpet.compat.langgraph.objects import walk

_PARTS_MAX = 100_000

_NAMES = {
    "agents": ("AgentAction", "AgentActionMessageLog", "AgentFinish"),
    "output_parsers": ("CommaSeparatedListOutputParser", "StrOutputParser"),
    "outputs": ("ChatGeneration", "ChatGenerationChunk", "Generation", "GenerationChunk"),
    "prompt_values": ("ChatPromptValue", "ChatPromptValueConcrete", "StringPromptValue"),
    "prompts": (
        "AIMessagePromptTemplate",
        "ChatMessagePromptTemplate",
        "ChatPromptTemplate",
        "FewShotPromptWithTemplates",
        "HumanMessagePromptTemplate",
        "MessagesPlaceholder",
        "PromptTemplate",
        "SystemMessagePromptTemplate",
    ),
    "prompts.dict": ("DictPromptTemplate",),
    "prompts.image": ("ImagePromptTemplate",),
    "prompts.structured": ("StructuredPrompt",),
}


@cache
def _classes() -> frozenset[type[Serializable]]:
    # Not when this module is imported: the prompts take seconds, and few graphs store them.
    return frozenset(
        getattr(import_module(f"langchain_core.{module}"), name)
        for module, names in _NAMES.items()
        for name in names
    )


def is_known(value: Any) -> bool:
    kind = type(value)
    is_core = isinstance(value, Serializable) and kind.__module__.startswith("langchain_core.")
    return is_core and kind in _classes()


def dumped(value: Any) -> Any:
    """Return an object as JSON.

    Raises:
        ValueError: it has too many parts. LangChain would write shared ones again and again.
    """
    if sum(1 for _ in walk(value, _PARTS_MAX)) == _PARTS_MAX:
        raise ValueError("too many parts")
    return upstream.lc_dump(value)


def loaded(tree: Any) -> Any:
    """Return the object that `dumped` returned a tree for. Secrets are not filled in.

    Raises:
        ValueError, TypeError, NotImplementedError: it names another class, or does not fit it.
    """
    inside = [*_classes(), *MESSAGES.values(), Document]
    value = upstream.lc_load(tree, allowed_objects=inside, secrets_map={}, secrets_from_env=False)
    if not is_known(value):
        raise ValueError("not an object of LangChain")
    return value
