"""Styles, scripts and the icon of the pages."""

import hashlib
from functools import cache
from importlib.resources import files

from limpet.core.operations import Operation, Param
from limpet.core.schema import TEXT
from limpet.inspector.links import url
from limpet.server.answers import Response
from limpet.server.call import Call
from limpet.views.page.page import STYLE

_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_VERSION = Param("v", TEXT, "the version of the file")
_STYLES = {  # the style of every page, and what a page adds: their names may be the same
    "inspector.css": ("base.css", "actions.css"),
    "sessions.css": ("sessions.css",),
    "session.css": ("session.css", "snapshot.css"),
    "search.css": ("search.css",),
}
NAMES = (
    *_STYLES,
    "icon.svg",
    "theme.js",
    "base.js",
    "sessions.js",
    "session.js",
    "snapshot.js",
    "actions.js",
)


def asset(name: str) -> str:
    """Return the address of a file, which changes with its content."""
    return url(f"/static/{name}", v=_version(name))


def operations() -> list[Operation]:
    """Return an operation for each file: there is no path to escape from."""
    return [_operation(name) for name in NAMES]


def _operation(name: str) -> Operation:
    async def file(call: Call) -> Response:
        is_current = call.params.get("v") == _version(name)
        kept = {"cache-control": "max-age=31536000, immutable" if is_current else "no-cache"}
        media_type = f"{_TYPES[name.rpartition('.')[2]]}; charset=utf-8"
        return Response(200, _content(name), media_type, kept)

    what, known = "A file of the pages.", {"v": _VERSION}
    return Operation("file", "GET", f"/ui/static/{name}", what, known, handler=file, public=True)


@cache
def _content(name: str) -> bytes:
    folder = files("limpet.inspector") / "static"
    if name in _STYLES:
        shared = [STYLE.encode()] if name == "inspector.css" else []
        return b"\n".join([*shared, *((folder / each).read_bytes() for each in _STYLES[name])])
    return (folder / name).read_bytes()


@cache
def _version(name: str) -> str:
    return hashlib.sha256(_content(name)).hexdigest()[:10]
