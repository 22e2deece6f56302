"""The start page, and the token: a browser keeps it in a cookie, for the pages alone."""

from urllib.parse import quote, urlsplit

from limpet.inspector.page import form, page, redirect
from limpet.server.access import cookie_name
from limpet.server.answers import Response
from limpet.server.call import Call, Param
from limpet.server.schema import TEXT, record

_TOKEN = Param("token", TEXT, "the token")


@page("/", public=True)
async def start(call: Call) -> Response:
    """The first page."""
    return redirect("/ui")


@page("/ui/login", _TOKEN, public=True)
async def open_with_token(call: Call) -> Response:
    """Keep the token of an address that was printed in a terminal."""
    return _kept(call, call.params.get("token", ""), "/ui")


@form("/ui/login", record({"token": TEXT}), public=True)
async def log_in(call: Call) -> Response:
    """Keep a token that was typed, and go back to the page that asked for it."""
    came_from = urlsplit(call.headers.get("referer", ""))
    is_page = came_from.path.startswith("/ui") and came_from.path != "/ui/login"
    is_here = is_page and came_from.netloc == call.headers.get("host")
    back = f"{came_from.path}?{came_from.query}" if is_here else "/ui"
    return _kept(call, call.body["token"].strip(), back)


def _kept(call: Call, token: str, where: str) -> Response:
    secure = "; Secure" if call.headers.get("origin", "").startswith("https:") else ""
    cookie = f"{cookie_name(call.headers)}={quote(token)}; Path=/ui; HttpOnly; SameSite=Strict"
    return redirect(where, {"set-cookie": cookie + secure})
