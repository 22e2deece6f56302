"""Holdfast keeps the state of AI agents safe.

Open a store, take a scope, save after each step; after a crash the same state is there again::

    import holdfast

    with holdfast.open("sqlite:///agents.db") as store:
        chat = store.scope("chat-42", "planner")
        chat.append("messages", [{"role": "user", "content": "hello"}])
"""

from holdfast.aio import AsyncScope, AsyncStore
from holdfast.errors import (
    AlreadyExists,
    Conflict,
    Corrupt,
    HoldfastError,
    InvalidInput,
    NotFound,
    Unavailable,
    Unsupported,
)
from holdfast.model import (
    ANY,
    HEAD,
    JSON,
    Note,
    ScopeInfo,
    ScopeKey,
    Snapshot,
    SnapshotInfo,
    SnapshotRef,
)
from holdfast.opening import open, open_async
from holdfast.store import Scope, Store

__version__ = "0.1.0"

__all__ = [
    "ANY",
    "HEAD",
    "JSON",
    "AlreadyExists",
    "AsyncScope",
    "AsyncStore",
    "Conflict",
    "Corrupt",
    "HoldfastError",
    "InvalidInput",
    "NotFound",
    "Note",
    "Scope",
    "ScopeInfo",
    "ScopeKey",
    "Snapshot",
    "SnapshotInfo",
    "SnapshotRef",
    "Store",
    "Unavailable",
    "Unsupported",
    "__version__",
    "open",
    "open_async",
]
