"""Every operation of the API, by topic."""

from limpet.server.operations import notes, snapshots, store, watching
from limpet.server.operations.declare import OPERATIONS, Operation

__all__ = ["OPERATIONS", "Operation", "notes", "snapshots", "store", "watching"]
