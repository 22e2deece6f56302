"""Limpet keeps the state of AI agents safe.

Open a store, take a scope, save after each step; after a crash the same state is there again::

    import limpet

    with limpet.open("sqlite:///agents.db") as store:
        chat = store.scope("chat-42", "planner")
        chat.append("messages", [{"role": "user", "content": "hello"}])
"""

from limpet.api.aio_scope import AsyncLease, AsyncScope
from limpet.api.jsonable import jsonable
from limpet.api.scope import Lease, Scope
from limpet.api.store import AsyncStore, Store
from limpet.errors import (
    AlreadyExists,
    Conflict,
    Corrupt,
    InvalidInput,
    LimpetError,
    NotFound,
    Unavailable,
    Unsupported,
)
from limpet.model import (
    ANY,
    HEAD,
    JSON,
    Change,
    Diff,
    Finding,
    Note,
    Pruned,
    Redacted,
    ScopeInfo,
    ScopeKey,
    Snapshot,
    SnapshotInfo,
    SnapshotRef,
    Stats,
)
from limpet.opening import open, open_async

__version__ = "0.1.0"

__all__ = [
    "ANY",
    "HEAD",
    "JSON",
    "AlreadyExists",
    "AsyncLease",
    "AsyncScope",
    "AsyncStore",
    "Change",
    "Conflict",
    "Corrupt",
    "Diff",
    "Finding",
    "InvalidInput",
    "Lease",
    "LimpetError",
    "NotFound",
    "Note",
    "Pruned",
    "Redacted",
    "Scope",
    "ScopeInfo",
    "ScopeKey",
    "Snapshot",
    "SnapshotInfo",
    "SnapshotRef",
    "Stats",
    "Store",
    "Unavailable",
    "Unsupported",
    "__version__",
    "jsonable",
    "open",
    "open_async",
]
