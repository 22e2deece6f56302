"""One snapshot: as a chat, as a tree of JSON, and as what changed."""

from collections.abc import Mapping
from typing import Any

from limpet.api.store import Store
from limpet.errors import NotFound
from limpet.inspector.page import page, render
from limpet.model import SnapshotInfo
from limpet.server.access import Grant
from limpet.server.answers import Response
from limpet.server.call import Call, Param
from limpet.server.operations.declare import SCOPE_PARAMS, SNAPSHOT
from limpet.server.schema import COUNT, ID, KIND, TEXT

VIEWS = ("chat", "state", "changes")
DETAIL_PARAMS = (
    Param("view", {"type": "string", "enum": VIEWS}, "chat, state or changes"),
    Param("turns", COUNT, "the message that must be among those shown; by default the last"),
    Param("path", TEXT, "the value of the state to begin with, as a JSON Pointer"),
    Param("start", COUNT, "its first member to show"),
    Param("base_session_id", ID, "compare with a snapshot of this session"),
    Param("base_scope_id", ID, "and of this scope"),
    Param("base_kind", KIND, "and of this kind"),
    Param("base_id", ID, "compare with this snapshot"),
    Param("base", TEXT, "compare with what this names, as in the command line"),
)
"""What says how a snapshot is shown, besides its address."""


@page("/ui/snapshot", *SCOPE_PARAMS, SNAPSHOT, *DETAIL_PARAMS)
async def show_snapshot(call: Call) -> Response:
    """One snapshot, as a part of the page of its session."""
    key = call.scope

    def read(store: Store) -> dict[str, Any]:
        info = store.scope(*key).info(call.id)
        if info is None:
            raise NotFound("there is no such snapshot")
        return read_detail(store, info, call.params, call.grant)

    return render(call, "_snapshot.html", **await call.store.run(read))


def read_detail(
    store: Store, info: SnapshotInfo, params: Mapping[str, Any], grant: Grant
) -> dict[str, Any]:
    """Return what the template `_snapshot.html` needs to show a snapshot.

    `params` are the checked parameters of the request, of which it uses `DETAIL_PARAMS`. A state
    that is damaged or was deleted just now is a message in the page, not an error.
    """
    return {"info": grant.visible(info), "view": params.get("view", "chat")}
