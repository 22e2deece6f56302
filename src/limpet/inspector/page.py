"""How a page is declared and rendered."""

import hashlib
from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from limpet.core.operations import Handler, Operation, Param
from limpet.core.schema import TEXT, Schema
from limpet.core.times import from_us
from limpet.errors import LimpetError, NotFound
from limpet.inspector import links
from limpet.server.access import Grant, Refused, ticket_of
from limpet.server.app import problem
from limpet.server.call import Call, Response, Stream
from limpet.views.document import labels_text, scope_name, session_name
from limpet.views.format import (
    age_text,
    ago_text,
    count_text,
    masked_url,
    moment_text,
    short_id,
    shown_labels,
    size_text,
    visible,
)
from limpet.views.page.page import STYLE, status_html
from limpet.views.usage import usage_text

HTML_TYPE = "text/html; charset=utf-8"
OPERATIONS: list[Operation] = []
HEADERS: Mapping[str, str] = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    # Not `no-referrer`: a form would then be sent without its origin.
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",  # browsers that do not know frame-ancestors
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def page(
    path: str, *params: Param, form: Schema | None = None, public: bool = False
) -> Callable[[Handler], Handler]:
    """Declare a page, or a part of one that a script fetches; or what a `form` of a page does.

    A form needs a token that may write, unless it is public.
    """

    def declare(handler: Handler) -> Handler:
        OPERATIONS.append(
            Operation(
                handler.__name__,
                "GET" if form is None else "POST",
                path,
                handler.__doc__ or "",
                {each.name: each for each in params},
                form,
                writes=form is not None and not public,
                handler=handler,
                form=form is not None,
                public=public,
            )
        )
        return handler

    return declare


def render(call: Call, template: str, status: int = 200, **values: Any) -> Response:
    """Return a page. `command` is what to type in a terminal for the same (see `links`)."""
    return html(rendered(call, template, **values), status)


def stream(parts: AsyncGenerator[str, None]) -> Response:
    """Return a page whose parts are sent as they come. It must handle its own errors."""

    async def encoded() -> AsyncGenerator[bytes, None]:
        async for part in parts:
            yield part.encode()

    return Response(200, Stream(encoded(), HTML_TYPE), headers=HEADERS)


def rendered(call: Call, template: str, **values: Any) -> str:
    """Return a template as text, such as a part of a stream."""
    return _text(template, {**_about(call), **values})


T = TypeVar("T")


def existing(found: T | None) -> T:
    """Return a snapshot that was read; NotFound if there is none."""
    if found is None:
        raise NotFound("there is no such snapshot: it may have been deleted")
    return found


def html(text: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(status, text.encode(), HTML_TYPE, {**HEADERS, **(headers or {})})


def redirect(where: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(303, b"", HTML_TYPE, {**HEADERS, "location": where, **(headers or {})})


def error_page(error: LimpetError, grant: Grant, *, is_wrong: bool = False) -> Response:
    """Return an error as a page; without a token it asks for one, `is_wrong`: for another."""
    found = problem(error, grant)
    template = "login.html" if isinstance(error, Refused) and error.status == 401 else "error.html"
    values = {"store_url": "", "writes": False, "now": None, "command": None, "has_token": False}
    about = {"message": grant.told(error), "status": found.status, "is_wrong": is_wrong}
    more = error.headers if isinstance(error, Refused) else None
    return html(_text(template, {**values, **about}), found.status, more)


def store_url(call: Call) -> str:
    """Return the URL for commands: with a token for a prefix, that of this server."""
    return call.own if call.grant.prefix else call.driver.opened.url


def _about(call: Call) -> dict[str, Any]:
    url = store_url(call)
    return {
        "store_url": masked_url(url),
        "typed": lambda command: command.text(url),
        "writes": call.grant.write,
        "now": from_us(call.driver.tools.draw().now),
        "command": None,
        "has_token": call.access.tokens is not None and ticket_of(call.headers, call.own) != "",
    }


def _text(template: str, values: Mapping[str, Any]) -> str:
    return _templates().get_template(template).render(values)


def _time(moment: datetime, text: str | None = None) -> Markup:
    """Return a moment as `text`, or as it is in the browser's time zone; in UTC on hover."""
    utc = f"{moment_text(moment)} UTC"
    shown = Markup('<time data-shows="{}" datetime="{}" title="{}">{}</time>')
    return shown.format("age" if text else "moment", moment.isoformat(), utc, text or utc)


@cache
def _templates() -> Environment:
    found = Environment(
        loader=PackageLoader("limpet.inspector"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals |= {
        "url": links.url,
        "address": links.address,
        "asset": asset,
        "scope_name": scope_name,
        "session_name": session_name,
        "labels_text": labels_text,
    }
    found.filters |= {
        "age": lambda moment, now: _time(moment, age_text(moment, now)),
        "ago": lambda moment, now: _time(moment, ago_text(moment, now)),
        "count": count_text,
        "labels": shown_labels,
        "moment": _time,
        "short": short_id,
        "shown": visible,
        "size": size_text,
        "tokens": usage_text,
        "status": lambda status: Markup(status_html(status)),  # noqa: S704  (it escapes)
    }
    return found


# Styles, scripts and the icon

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
    "search.js",
)


def asset(name: str) -> str:
    """Return the address of a file, which changes with its content."""
    return links.url(f"/static/{name}", v=_version(name))


def file_operations() -> list[Operation]:
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
