"""The start page, and logging in: a browser keeps a ticket for a token, for the pages alone."""

from urllib.parse import urlsplit

from limpet.core.operations import Param
from limpet.core.schema import TEXT, record
from limpet.inspector.page import error_page, page, redirect
from limpet.server.access import Refused, cookie_name
from limpet.server.call import Call, Response

_TOKEN = Param("token", TEXT, "the token")
_OWN = ("/ui/login", "/ui/logout")  # no pages to go back to


@page("/ui/", public=True)
@page("/", public=True)
async def start(call: Call) -> Response:
    """The first page."""
    return redirect("/ui")


@page("/ui/login", _TOKEN, public=True)
async def open_with_token(call: Call) -> Response:
    """Log in with the token of an address that was printed in a terminal."""
    # A link on another site, or on another port of this host, could make the browser use a token of
    # that site's.
    if call.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        why = "another site led here: copy the address that was printed into the browser"
        raise Refused(403, "Forbidden", why)
    return _logged_in(call, call.params.get("token", ""), "/ui")


@page("/ui/login", form=record({"token": TEXT}), public=True)
async def log_in(call: Call) -> Response:
    """Log in with a token that was typed, and go back to the page that asked for it."""
    return _logged_in(call, call.body["token"].strip(), _back(call))


@page("/ui/logout", form=record({}), public=True)
async def log_out(call: Call) -> Response:
    """Forget the ticket."""
    return redirect("/ui", {"set-cookie": _cookie(call, "") + "; Max-Age=0"})


def _back(call: Call) -> str:
    try:
        came_from = urlsplit(call.headers.get("referer", ""))
    except ValueError:
        return "/ui"
    is_here = came_from.netloc == call.headers.get("host")
    is_page = came_from.path == "/ui" or came_from.path.startswith("/ui/")
    if not is_here or not is_page or came_from.path in _OWN:
        return "/ui"
    return f"{came_from.path}?{came_from.query}" if came_from.query else came_from.path


def _logged_in(call: Call, token: str, where: str) -> Response:
    tokens = call.access.tokens
    if tokens is None:
        return redirect(where)
    now_s = call.driver.tools.draw().now // 1_000_000
    ticket = tokens.ticket(token, now_s=now_s) if token.isascii() else None
    if ticket is None:
        wrong = Refused(401, "Unauthorized", "This token is not known here.")
        return error_page(wrong, call.grant, is_wrong=True)
    return redirect(where, {"set-cookie": _cookie(call, ticket)})


def _cookie(call: Call, ticket: str) -> str:
    ticket_cookie, safe = f"{cookie_name(call.own)}={ticket}", "HttpOnly; SameSite=Strict"
    if call.own.startswith("https:"):
        return f"{ticket_cookie}; Path=/; {safe}; Secure"  # `__Host-` wants this path
    return f"{ticket_cookie}; Path=/ui; {safe}"
