"""How a checkpoint stands in a store: pure, and shared by both faces.

A run is the scope `main` of kind `run` in the session of its name, as it is to `limpet.runs`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

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


class Record(NamedTuple):
    """What is saved of a checkpoint, and where."""

    scope: ScopeKey
    options: dict[str, Any]  # of `Scope.save`


def record_of(checkpoint: Checkpoint | Mapping[str, JSON]) -> Record:
    """Return what is saved of a checkpoint."""
    found = taken(checkpoint)
    return Record(
        scope_of(found.run_id),
        {
            "state": {
                "messages": found.messages,
                "system_prompt": found.system_prompt,
                **found.extra,
            },
            "keep": False,
            # A run that has a checkpoint is under way: `limpet.runs` resumes it, too.
            "status": RUNNING,
            "labels": {TASK_LABEL: found.task_name} if found.task_name else None,
            "metadata": {
                **{name: getattr(found, name) for name in _COUNTS},
                "created_at": found.created_at,
            },
        },
    )


def loaded(run_id: str, found: Snapshot | None) -> Checkpoint:
    """Return the checkpoint that a head is, whoever wrote it.

    Raises:
        NotFound: there is none.
    """
    if found is None:
        raise NotFound(f"the run has no checkpoint. run_id=`{run_id}`")
    return Checkpoint(**_facts(found), **_parts(found.state))


def listed(scopes: Iterable[ScopeInfo]) -> list[Checkpoint]:
    """Return what a listing shows: the runs, by their metadata alone, newest first."""
    return newest_first(
        [
            (Checkpoint(**_facts(scope.head)), int(scope.head.updated_at.timestamp() * 10**6))
            for scope in scopes
            if scope.head is not None and scope.key.scope_id == SCOPE_ID
        ]
    )


def _facts(info: SnapshotInfo) -> dict[str, Any]:
    """Return the fields that are no state; those that are missing have their defaults."""
    counts = {name: info.metadata.get(name) for name in _COUNTS}
    return {
        "run_id": info.session_id,
        "task_name": info.labels.get(TASK_LABEL, ""),
        **{name: value for name, value in counts.items() if _is_count(value)},
        "created_at": _created_at(info),
    }


def _is_count(value: object) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _created_at(info: SnapshotInfo) -> str:
    text = info.metadata.get("created_at")
    try:
        if isinstance(text, str):
            instant_of(text)
            return text
    except InvalidInput:  # somebody else's, with another meaning
        pass
    return text_of(info.created_at)


def _parts(state: JSON) -> dict[str, Any]:
    """Return the fields in a state. What cannot stand under its own name is in `extra["state"]`."""
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
