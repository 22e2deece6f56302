"""CrewAI without its telemetry."""

import os

from tests.frameworks.kit import quiet

os.environ |= quiet()
