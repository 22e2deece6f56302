"""All pages of the inspector: a module for each, with the parts and forms that belong to it."""

from limpet.inspector.page import OPERATIONS, error_page, file_operations
from limpet.inspector.pages import (  # noqa: F401  (to import one declares its operations)
    actions,
    export,
    login,
    search,
    session,
    sessions,
    snapshot,
)
from limpet.server.app import Pages

PAGES = Pages((*OPERATIONS, *file_operations()), error_page)
