"""One session: its history as a graph, with one snapshot beside it."""

from typing import Any

from limpet.api.store import Store
from limpet.errors import NotFound
from limpet.inspector import links
from limpet.inspector.page import page, render
from limpet.inspector.pages.snapshot import DETAIL_PARAMS, read_detail
from limpet.server.answers import Response
from limpet.server.call import Call
from limpet.server.operations.declare import SCOPE_PARAMS, SNAPSHOT


@page("/ui/session", *SCOPE_PARAMS, SNAPSHOT, *DETAIL_PARAMS)
async def show_session(call: Call) -> Response:
    """The history of a session, and one of its snapshots."""
    key = call.scope

    def read(store: Store) -> dict[str, Any]:
        info = store.scope(*key).info(call.id)
        if info is None:
            raise NotFound("there is no such snapshot")
        return read_detail(store, info, call.params, call.grant)

    detail = await call.store.run(read)
    command = links.command(call.driver.opened.url, "log", key.session_id)
    return render(call, "session.html", **detail, command=command)
