"""CrewAI without its telemetry."""

import os
import tempfile

os.environ |= {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_TRACKING": "true",
    "CREWAI_STORAGE_DIR": tempfile.mkdtemp(prefix="limpet-crewai-"),
    "CREWAI_TRACING_ENABLED": "false",
    "OTEL_SDK_DISABLED": "true",
}
