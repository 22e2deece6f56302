"""Where things are, as people name it: a folder, or a URL."""

import os
import re
from typing import Any

from limpet.errors import InvalidInput

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def address_of(place: object) -> tuple[str, str | None]:
    """Return what `limpet.open` takes, and the folder that it is if it was given as such."""
    if isinstance(place, str) and _SCHEME.match(place):
        return place, None
    folder = folder_of(place)
    return folder, folder


def folder_of(place: Any) -> str:
    """Return the absolute path of a folder, so that a later change of directory does no harm.

    It has one slash at its beginning: what has two is no plain path where a URL may stand.
    """
    try:
        path = os.fspath(place)
        os.fsencode(path)
    except (TypeError, UnicodeEncodeError):
        path = b""
    if not isinstance(path, str) or not path or "\0" in path:
        raise InvalidInput(f"that is no folder. type=`{type(place).__name__}`")
    return "/" + os.path.abspath(os.path.expanduser(path)).lstrip("/")
