"""`get_delta_channel_history`: the deltas of a channel along the ancestors of a checkpoint.

A delta channel of LangGraph has no value in most checkpoints: it is computed from the last value
that is stored (the seed) and what tasks wrote since. When ancestors are removed, their part is
stored in the state of the checkpoint that stays, under `delta_history`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice, takewhile
from typing import Any, NamedTuple

from limpet import Scope
from limpet.api.integrations import limits
from limpet.compat.langgraph import records
from limpet.compat.langgraph.checkpoints import SaverContext, notes_on
from limpet.compat.langgraph.records import Config
from limpet.errors import NotFound
from limpet.model import ScopeKey, SnapshotInfo


class ChannelHistory(NamedTuple):
    """A seed, if there is one, and the writes since (task id and value), oldest first; as JSON."""

    seed: tuple[Any, ...]
    writes: list[tuple[str, Any]]


def delta_history(context: SaverContext, config: Config, channels: Sequence[str]) -> dict[str, Any]:
    scope, wanted = records.scope_in(config), records.id_in(config)
    decode = context.codec.decoder.value
    return {
        name: {
            "writes": [(task_id, name, decode(tree)) for task_id, tree in writes],
            **({"seed": decode(seed[0])} if seed else {}),
        }
        for name, (seed, writes) in channel_histories(context, scope, wanted, channels).items()
    }


def channel_histories(
    context: SaverContext, scope: ScopeKey, checkpoint_id: str | None, channels: Iterable[str]
) -> dict[str, ChannelHistory]:
    """Walk from the newest ancestor to the oldest, until a state has a seed of each channel.

    What is older is not parsed: it may be malformed.
    """
    seeds: dict[str, tuple[Any, ...]] = dict.fromkeys(channels, ())
    writes: dict[str, list[tuple[str, Any]]] = {name: [] for name in seeds}
    left = {*seeds}
    there = context.store.scope(*scope)
    target = there.info(checkpoint_id)
    batch = [] if target is None else [target]
    ancestors = _ancestors(there, target)
    while left and batch:
        on = [info.id for info in batch]
        with_state = [info.id for info in batch if not _lacks(info, left)]
        states = context.backend.read_snapshots(scope, with_state) if with_state else []
        bodies = {info.id: body for info, body in states}
        notes = notes_on(context.backend, scope, on)
        for info in batch:
            is_ancestor = info is not target
            own = [note for note in notes if is_ancestor and note.snapshot_id == info.id]
            for task_id, channel, written in reversed(records.trees_of(own)):
                if channel in left:
                    writes[channel].append((task_id, written))
            found = _histories_in(info, bodies.get(info.id), with_values=is_ancestor)
            for name in left & found.keys():
                seeds[name] = found[name].seed
                writes[name] += reversed(found[name].writes)
            left -= found.keys()
            if not left:
                break
        batch = list(islice(ancestors, limits.PAGE_STATES_MAX))
    return {name: ChannelHistory(seed, writes[name][::-1]) for name, seed in seeds.items()}


def _lacks(info: SnapshotInfo, channels: set[str]) -> bool:
    """Return whether a state need not be read: its metadata says that it lacks these channels."""
    absent = info.metadata.get(records.ABSENT) if records.FACADE in info.metadata else None
    return isinstance(absent, list) and all(name in absent for name in channels)


def _ancestors(there: Scope, target: SnapshotInfo | None) -> Iterator[SnapshotInfo]:
    """Yield the ancestors of a checkpoint that was read. It may be deleted meanwhile."""
    if target is not None and target.parent_id is not None:
        with suppress(NotFound):
            yield from takewhile(
                lambda each: each.id != target.id, there.ancestors(target.parent_id)
            )


def _histories_in(
    info: SnapshotInfo, body: bytes | None, *, with_values: bool
) -> dict[str, ChannelHistory]:
    tree = {} if body is None else records.tree_of(info, body)
    values = tree.get("channel_values", {}) if with_values else {}
    return stored_history(info, tree) | {
        name: ChannelHistory((value,), []) for name, value in values.items()
    }


def stored_history(info: SnapshotInfo, tree: Mapping[str, Any]) -> dict[str, ChannelHistory]:
    """Return the histories that a state stores for removed ancestors, or raise Corrupt."""
    stored = tree.get(records.DELTA_HISTORY, {})
    if not isinstance(stored, dict) or not all(map(_is_history, stored.values())):
        raise records.foreign(info, "the delta history of a checkpoint is malformed")
    return {
        name: ChannelHistory(
            (part["seed"],) if "seed" in part else (),
            [(task_id, written) for task_id, written in part["writes"]],
        )
        for name, part in stored.items()
    }


def _is_history(part: Any) -> bool:
    writes = part.get("writes") if isinstance(part, dict) else None
    return isinstance(writes, list) and all(
        isinstance(each, list) and len(each) == 2 and isinstance(each[0], str) for each in writes
    )
