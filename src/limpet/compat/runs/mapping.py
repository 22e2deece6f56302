"""How a checkpoint is stored as the head of a run, and read back. Pure.

A run is the scope `main` of kind `run` in the session of its name, as in `limpet.runs`.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from limpet.compat.runs.checkpoint import (
    Checkpoint,
    field_of,
    instant_of,
    newest_first,
    taken,
    text_of,
)
from limpet.errors import InvalidInput, NotFound
from limpet.model import JSON, ScopeInfo, ScopeKey, Snapshot, SnapshotInfo
from limpet.runs.model import RUNNING, SCOPE_ID, TASK_LABEL
from limpet.runs.verbs import scope_of

_COUNTS = ("iteration", "input_tokens", "output_tokens")
_REST = "state"  # the extra field for what fits nowhere else


def save_options(checkpoint: Checkpoint | Mapping[str, JSON]) -> tuple[ScopeKey, dict[str, Any]]:
    """Return the scope of a checkpoint, and the options of `Scope.save`."""
    found = taken(checkpoint)
    state = {"messages": found.messages, "system_prompt": found.system_prompt, **found.extra}
    metadata = {name: getattr(found, name) for name in (*_COUNTS, "created_at")}
    return scope_of(found.run_id), {
        "state": state,
        "keep": False,
        "status": RUNNING,  # `limpet.runs` can resume a run that has a checkpoint
        "labels": {TASK_LABEL: found.task_name} if found.task_name else None,
        "metadata": metadata,
    }


def loaded(run_id: str, found: Snapshot | None) -> Checkpoint:
    """Return the checkpoint of a head, whichever program wrote it, or raise NotFound."""
    if found is None:
        raise NotFound(f"the run has no checkpoint. run_id=`{run_id}`")
    return Checkpoint(**_facts(found), **_parts(found.state))


def listed(scopes: Iterable[ScopeInfo]) -> list[Checkpoint]:
    """Return the checkpoints of runs by their metadata alone, newest first."""
    return newest_first(
        [
            (Checkpoint(**_facts(scope.head)), int(scope.head.updated_at.timestamp() * 10**6))
            for scope in scopes
            if scope.head is not None and scope.key.scope_id == SCOPE_ID
        ]
    )


def _facts(info: SnapshotInfo) -> dict[str, Any]:
    """Return the fields that are not in the state; missing ones have their defaults."""
    counts = {name: info.metadata.get(name) for name in _COUNTS}
    return {
        "run_id": info.session_id,
        "task_name": info.labels.get(TASK_LABEL, ""),
        **{k: n for k, n in counts.items() if type(n) is int and -(2**63) <= n < 2**63},
        "created_at": _created_at(info),
    }


def _created_at(info: SnapshotInfo) -> str:
    text = info.metadata.get("created_at")
    with suppress(InvalidInput):  # another program's, with another meaning
        if isinstance(text, str):
            instant_of(text)
            return text
    return text_of(info.created_at)


def _parts(state: JSON) -> dict[str, Any]:
    """Return the fields in a state. Values that cannot be fields are in `extra["state"]`."""
    if not isinstance(state, dict):
        return {} if state is None else {"extra": {_REST: state}}
    fields: dict[str, Any] = {}
    extra: dict[str, JSON] = {}
    rest: dict[str, JSON] = {}
    for key, value in state.items():
        if (key == "messages" and isinstance(value, list | None)) or (
            key == "system_prompt" and isinstance(value, str)
        ):
            fields[key] = value
        elif field_of(key) is None:
            extra[key] = value
        else:
            rest[key] = value
    if rest:
        if _REST in extra:
            rest[_REST] = extra[_REST]
        extra[_REST] = rest
    return {**fields, "extra": extra}
