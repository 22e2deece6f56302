"""The frameworks; each has an environment of its own, and its tests in the folder of its name.

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
}
TOOLS = ("pytest>=9", "pytest-timeout>=2.3", "hypothesis>=6.100")


def python_with(name: str, *, lowest: bool = False) -> Path:
    """Return the Python of a framework's environment, which is made if it is not there."""
    framework = FRAMEWORKS[name]
    wanted = limpet_with(framework.extra, "cli", "postgres", "s3")
    folder = f"{name}-{'lowest' if lowest else 'newest'}"
    return python_of(folder, (*wanted, *TOOLS, *framework.beside), lowest=lowest)
