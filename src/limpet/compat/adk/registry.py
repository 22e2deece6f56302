"""Makes `adk web --session_service_uri=limpet+sqlite:///agents.db` work."""

from typing import Any

from google.adk.cli.service_registry import get_service_registry

from limpet.compat.adk.service import LimpetSessionService
from limpet.opening import open as open_store

_PREFIX = "limpet+"
_SCHEMES = ("sqlite", "postgresql", "postgres", "file", "s3", "gs", "az", "http", "https", "memory")


def open_session_service(uri: str, **options: Any) -> LimpetSessionService:
    """Return a service on the store of a URI: that of `limpet.open`, after `limpet+`.

    `close` closes the store. This is also the `class` for a `services.yaml` of ADK.

    Args:
        uri: `limpet+sqlite:///agents.db`, `limpet+postgresql://…`, `limpet+s3://…`, …
        options: what ADK passes to every service; not used.
    """
    return LimpetSessionService(open_store(uri.removeprefix(_PREFIX)), owns_store=True)


def register() -> None:
    """Register `limpet+sqlite`, `limpet+postgresql` and so on with ADK. May be repeated."""
    registry = get_service_registry()
    for scheme in _SCHEMES:
        registry.register_session_service(_PREFIX + scheme, open_session_service)
