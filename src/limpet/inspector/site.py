"""All pages of the inspector, to be served with the API."""

from limpet.inspector import static
from limpet.inspector.page import OPERATIONS, error_page
from limpet.inspector.pages import (
    actions,
    events,
    export,
    login,
    search,
    session,
    sessions,
    snapshot,
)
from limpet.server.app import Pages

__all__ = [
    "PAGES",
    "actions",
    "events",
    "export",
    "login",
    "search",
    "session",
    "sessions",
    "snapshot",
]

PAGES = Pages((*OPERATIONS, *static.operations()), error_page)
