"""What stored JSON must look like to be a checkpoint, or what a task wrote. Pure."""

from typing import Any, TypeGuard

from limpet.errors import Corrupt
from limpet.model import Note

_APART = frozenset(("channel_values", "delta_history"))  # read by themselves


def is_checkpoint(tree: Any) -> TypeGuard[dict[str, Any]]:
    """Tell whether a state has the channels of a checkpoint, and beside them what is an object."""
    if not isinstance(tree, dict) or not isinstance(tree.get("channel_values"), dict):
        return False
    first = next((key for key in tree if key not in _APART), "")
    return not first.startswith("$")  # it would stand for something else than an object


def is_write(item: Any) -> bool:
    """Tell whether something is one write in the note of a task."""
    match item:
        case [int(), str(), _]:
            return True
    return False


def write_in(note: Note, path: str, item: Any) -> tuple[tuple[str, str, int], tuple[str, str, Any]]:
    """Return one write in the note of a task: its order among others, then task, channel, value.

    Raises:
        Corrupt: it makes no sense.
    """
    if is_write(item):
        place, channel, tree = item
        return (path, note.name, place), (note.name, channel, tree)
    where = f"task_id=`{note.name}` id=`{note.snapshot_id}`"
    raise Corrupt(f"what a task wrote makes no sense. {where}")
