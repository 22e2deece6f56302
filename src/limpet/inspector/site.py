"""All pages of the inspector, to be served with the API."""

from limpet.inspector import static
from limpet.inspector.page import OPERATIONS, error_page
from limpet.inspector.pages import (  # noqa: F401  (to import one declares its operations)
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

PAGES = Pages((*OPERATIONS, *static.operations()), error_page)
