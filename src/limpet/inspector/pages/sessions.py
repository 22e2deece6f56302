"""The list of sessions."""

from limpet.api.store import Store
from limpet.inspector import links
from limpet.inspector.page import page, render
from limpet.server.answers import Response
from limpet.server.call import Call
from limpet.views import overview


@page("/ui")
async def list_sessions(call: Call) -> Response:
    """The sessions of the store, the newest first."""

    def read(store: Store) -> list[overview.SessionOverview]:
        return list(overview.sessions(store, prefix=call.prefix, limit=50).shown)

    return render(
        call,
        "sessions.html",
        sessions=await call.store.run(read),
        command=links.command(call.driver.opened.url, "ls"),
    )
