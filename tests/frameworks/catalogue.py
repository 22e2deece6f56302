"""The frameworks; the tests of each are in the folder of its name.

Their newest versions share an environment, as in a program that uses several of them; CrewAI would
hold the others back. With the lowest versions each has an environment of its own.

`extra` is that of `pyproject.toml`, `package` the distribution that it installs, `page` the guide
in `docs/guides`, `example` the file in `examples`, `beside` what only tests and examples need.
"""

from dataclasses import dataclass
from pathlib import Path

from tests.environments import limpet_with, python_of


@dataclass(frozen=True, slots=True)
class Framework:
    extra: str
    package: str
    page: str
    example: str
    beside: tuple[str, ...] = ()


FRAMEWORKS = {
    "claude": Framework("claude", "claude-agent-sdk", "claude_agent_sdk", "claude_agent"),
    "openai": Framework(
        "openai", "openai-agents", "openai_agents", "openai_agents", ("cryptography>=45",)
    ),
    "adk": Framework("adk", "google-adk", "google_adk", "google_adk"),
    "pydantic_ai": Framework("pydantic-ai", "pydantic-ai-slim", "pydantic_ai", "pydantic_ai_chat"),
    "crewai": Framework("crewai", "crewai", "crewai", "crewai_flow"),
    "genkit": Framework("genkit", "genkit", "genkit_python", "genkit_python"),
    "agent_framework": Framework(
        "agent-framework", "agent-framework-core", "agent_framework", "agent_framework_workflow"
    ),
    "langchain": Framework("langchain", "langchain-core", "langchain", "langchain_history"),
    "llama_index": Framework("llama-index", "llama-index-core", "llama_index", "llama_index_chat"),
    "ag2": Framework("ag2", "ag2", "ag2", "ag2_agent"),
}
TOOLS = ("pytest>=9", "pytest-timeout>=2.3", "hypothesis>=6.100")


TOGETHER = tuple(name for name in FRAMEWORKS if name != "crewai")


def python_with(name: str, *, lowest: bool = False) -> Path:
    """Return the Python of a framework's environment, which is made if it is not there."""
    shared = name in TOGETHER and not lowest
    found = [FRAMEWORKS[each] for each in (TOGETHER if shared else (name,))]
    wanted = limpet_with(*(each.extra for each in found), "cli", "postgres", "s3")
    beside = [each for framework in found for each in framework.beside]
    folder = "frameworks" if shared else f"{name}-{'lowest' if lowest else 'newest'}"
    return python_of(folder, (*wanted, *TOOLS, *beside), lowest=lowest)
