"""CrewAI without its telemetry, and with few engines in fast tests: importing it takes seconds."""

import os
import tempfile

import pytest

from tests.effort import slowly
from tests.frameworks.kit import ENGINES, Places

os.environ |= {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_TRACKING": "true",
    "CREWAI_STORAGE_DIR": tempfile.mkdtemp(prefix="limpet-crewai-"),
    "CREWAI_TRACING_ENABLED": "false",
    "OTEL_SDK_DISABLED": "true",
}


@pytest.fixture(params=slowly(ENGINES, but={"memory", "sqlite"}))
def url(request: pytest.FixtureRequest, places: Places) -> str:
    return places.url(request.param)
