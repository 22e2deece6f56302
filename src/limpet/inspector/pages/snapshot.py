"""One snapshot: as a chat, as a tree of JSON, and as what changed."""

from typing import Any

from limpet.api.store import Store
from limpet.model import SnapshotInfo

VIEWS = ("chat", "state", "changes")


def read_detail(store: Store, info: SnapshotInfo, view: str) -> dict[str, Any]:
    """Return what the template `_snapshot.html` needs to show a snapshot."""
    return {"info": info, "view": view}
