"""Holdfast keeps the state of AI agents safe.

Open a store, take a scope, save after each step; after a crash the same state is there again::

    import holdfast

    with holdfast.open("sqlite:///agents.db") as store:
        chat = store.scope("chat-42", "planner")
        chat.append("messages", [{"role": "user", "content": "hello"}])
"""

from holdfast.aio import AsyncStore
from holdfast.aio_scope import AsyncLease, AsyncScope
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
    Change,
    Diff,
    Finding,
    Note,
    Pruned,
    ScopeInfo,
    ScopeKey,
    Snapshot,
    SnapshotInfo,
    SnapshotRef,
    Stats,
)
from holdfast.opening import open, open_async
from holdfast.scope import Lease, Scope
from holdfast.store import Store

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
    "HoldfastError",
    "InvalidInput",
    "Lease",
    "NotFound",
    "Note",
    "Pruned",
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
    "open",
    "open_async",
]
