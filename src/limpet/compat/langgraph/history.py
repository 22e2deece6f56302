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
from limpet.compat.langgraph import records
from limpet.compat.langgraph.checkpoints import SaverContext, notes_on
from limpet.compat.langgraph.records import Config
from limpet.errors import NotFound
from limpet.model import Note, ScopeKey, SnapshotInfo

_BATCH = 64  # ancestors whose writes are read at once


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
    gathering = _Gathering(context, channels)
    there = context.store.scope(*scope)
    target = there.info(checkpoint_id)
    if target is not None:
        if gathering.left & _carried_by(target):
            gathering.add_state(target, with_values=False)
        ancestors = _ancestors(there, target)
        while gathering.left and (batch := list(islice(ancestors, _BATCH))):
            gathering.add(batch)
    return {
        name: ChannelHistory(seed, gathering.writes[name][::-1])
        for name, seed in gathering.seeds.items()
    }


def _carried_by(target: SnapshotInfo) -> set[str]:
    # Metadata that another application saved may have such a key, too; it is ignored.
    is_ours = records.FACADE in target.metadata
    names = target.metadata.get(records.DELTA_HISTORY_OF, []) if is_ours else []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise records.foreign(target, "the metadata is not that of a checkpoint")
    return set(names)


def _ancestors(there: Scope, target: SnapshotInfo) -> Iterator[SnapshotInfo]:
    """Yield the ancestors of a checkpoint that was read. It may be deleted meanwhile."""
    if target.parent_id is not None:
        with suppress(NotFound):
            yield from takewhile(
                lambda each: each.id != target.id, there.ancestors(target.parent_id)
            )


class _Gathering:
    """Seeds and writes of channels, from the newest ancestor to the oldest."""

    def __init__(self, context: SaverContext, channels: Iterable[str]) -> None:
        self._context = context
        self.seeds: dict[str, tuple[Any, ...]] = dict.fromkeys(channels, ())
        self.writes: dict[str, list[tuple[str, Any]]] = {name: [] for name in self.seeds}
        self.left = {*self.seeds}

    def add(self, batch: Sequence[SnapshotInfo]) -> None:
        written: dict[str, list[Note]] = {}
        on = [info.id for info in batch]
        for note in notes_on(self._context.backend, batch[0].scope, on):
            written.setdefault(note.snapshot_id or "", []).append(note)
        for info in batch:
            for task_id, channel, tree in reversed(records.trees_of(written.get(info.id, ()))):
                if channel in self.left:
                    self.writes[channel].append((task_id, tree))
            # Only a hint: without it, the state is read.
            absent = info.metadata.get(records.ABSENT) if records.FACADE in info.metadata else ()
            if not isinstance(absent, list) or not all(name in absent for name in self.left):
                self.add_state(info)

    def add_state(self, info: SnapshotInfo, *, with_values: bool = True) -> None:
        for each, body in self._context.backend.read_snapshots(info.scope, [info.id]):
            tree = records.tree_of(each, body)
            values: dict[str, Any] = tree["channel_values"] if with_values else {}
            found = stored_history(each, tree)
            found |= {name: ChannelHistory((value,), []) for name, value in values.items()}
            for name in self.left & found.keys():
                self.seeds[name] = found[name].seed
                self.writes[name] += reversed(found[name].writes)
                self.left.discard(name)


def stored_history(info: SnapshotInfo, tree: Mapping[str, Any]) -> dict[str, ChannelHistory]:
    """Return the histories that a state stores for removed ancestors, or raise Corrupt."""
    found: dict[str, ChannelHistory] = {}
    match tree.get(records.DELTA_HISTORY, {}):
        case dict(stored):
            for name, part in stored.items():
                match part:
                    case {"writes": list(writes)} if all(map(_is_write, writes)):
                        seed = (part["seed"],) if "seed" in part else ()
                        pairs = [(task_id, each) for task_id, each in writes]
                        found[name] = ChannelHistory(seed, pairs)
            if len(found) == len(stored):
                return found
    raise records.foreign(info, "the delta history of a checkpoint is malformed")


def _is_write(write: Any) -> bool:
    return isinstance(write, list) and len(write) == 2 and isinstance(write[0], str)
