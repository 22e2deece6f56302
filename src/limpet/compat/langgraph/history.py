"""`get_delta_channel_history`: the deltas of a channel along the ancestors of a checkpoint.

A delta channel of LangGraph has no value in most checkpoints: it is computed from the last value
that is stored (the seed) and what tasks wrote since. When ancestors are removed, their part is
stored in the state of the checkpoint that stays, under `delta_history`.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from limpet.api.integrations import Backend, Query, Work, ids, limits
from limpet.compat.langgraph import records
from limpet.compat.langgraph.checkpoints import SaverContext, notes_on
from limpet.compat.langgraph.records import Config
from limpet.model import Note, ScopeKey, SnapshotInfo

_BATCH = 64  # ancestors whose writes are read at once


class ChannelHistory(NamedTuple):
    """A seed, if there is one, and the writes since (task id and value), oldest first; as JSON."""

    seed: tuple[Any, ...]
    writes: list[tuple[str, Any]]


def delta_history(
    context: SaverContext, config: Config, channels: Sequence[str]
) -> Work[dict[str, Any]]:
    scope, wanted = records.scope_in(config), records.id_in(config)
    names = list(dict.fromkeys(channels))

    def work(backend: Backend) -> dict[str, Any]:
        found = channel_histories(backend, scope, wanted, names) if names else {}
        decode = context.codec.decoder.value
        return {
            name: {
                "writes": [(task_id, name, decode(tree)) for task_id, tree in each.writes],
                **({"seed": decode(each.seed[0])} if each.seed else {}),
            }
            for name, each in found.items()
        }

    return work


def channel_histories(
    backend: Backend, scope: ScopeKey, checkpoint_id: str | None, channels: Sequence[str]
) -> dict[str, ChannelHistory]:
    gathering = _Gathering(channels)
    target = backend.read_info(scope, checkpoint_id)
    if target is not None and not gathering.complete_in(backend, target):
        chain = _ancestors(backend, target)
        while gathering.left and (batch := list(islice(chain, _BATCH))):
            gathering.add(backend, scope, batch)
    return gathering.found()


class _Gathering:
    """Seeds and writes of channels, from the newest ancestor to the oldest."""

    def __init__(self, channels: Sequence[str]) -> None:
        self.left = set(channels)
        self._seeds: dict[str, tuple[Any, ...]] = dict.fromkeys(channels, ())
        self._writes: dict[str, list[tuple[str, Any]]] = {name: [] for name in channels}

    def found(self) -> dict[str, ChannelHistory]:
        return {
            name: ChannelHistory(seed, self._writes[name][::-1])
            for name, seed in self._seeds.items()
        }

    def complete_in(self, backend: Backend, target: SnapshotInfo) -> bool:
        """Take what the checkpoint itself stores; return whether that is all."""
        names = _names_in(target, records.DELTA_HISTORY_OF)
        if names is None:
            raise records.foreign(target, "the metadata is not that of a checkpoint")
        if self.left & names:
            for info, body in backend.read_snapshots(target.scope, [target.id]):
                self._add_stored(stored_history(info, records.tree_of(info, body)))
        return not self.left

    def add(self, backend: Backend, scope: ScopeKey, batch: Sequence[SnapshotInfo]) -> None:
        written: dict[str, list[Note]] = {}
        for note in notes_on(backend, scope, [info.id for info in batch]):
            written.setdefault(note.snapshot_id or "", []).append(note)
        for info in batch:
            for task_id, channel, tree in reversed(records.trees_of(written.get(info.id, ()))):
                if channel in self.left:
                    self._writes[channel].append((task_id, tree))
            if self._may_hold(info):
                for each, body in backend.read_snapshots(scope, [info.id]):
                    self._add_seeds(each, records.tree_of(each, body))
            if not self.left:
                return

    def _may_hold(self, info: SnapshotInfo) -> bool:
        # Only a hint: without it, the state is read.
        return bool(self.left - (_names_in(info, records.ABSENT) or set()))

    def _add_seeds(self, info: SnapshotInfo, tree: Mapping[str, Any]) -> None:
        for name in self.left & tree["channel_values"].keys():
            self._seeds[name] = (tree["channel_values"][name],)
            self.left.discard(name)
        self._add_stored(stored_history(info, tree))

    def _add_stored(self, stored: Mapping[str, ChannelHistory]) -> None:
        for name in self.left & stored.keys():
            self._seeds[name] = stored[name].seed
            self._writes[name] += reversed(stored[name].writes)
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
                        found[name] = ChannelHistory(
                            seed, [(task_id, each) for task_id, each in writes]
                        )
            if len(found) == len(stored):
                return found
    raise records.foreign(info, "the delta history of a checkpoint is malformed")


def _is_write(write: Any) -> bool:
    return isinstance(write, list) and len(write) == 2 and isinstance(write[0], str)


def _names_in(info: SnapshotInfo, key: str) -> set[str] | None:
    """Return the channels that are listed in the metadata; None if that is malformed."""
    # Metadata that another application saved may have such a key, too; it is ignored.
    names = info.metadata.get(key, []) if records.FACADE in info.metadata else []
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return set(names) if is_list else None


def _ancestors(backend: Backend, target: SnapshotInfo) -> Iterator[SnapshotInfo]:
    """Yield the parent of a checkpoint, the parent of that, and so on.

    A parent was nearly always saved before its child, so a page of history holds many of them.
    """
    page: dict[str, SnapshotInfo] = {}
    met = {target.id}
    info = target
    while info.parent_id is not None and info.parent_id not in met:
        if info.parent_id not in page:
            query = Query(info.scope, after=ids.seq_of(info.revision))
            listed = backend.list_snapshots(query, limit=limits.PAGE_ITEMS_MAX)
            page = {each.id: each for each in listed}
        parent = page.get(info.parent_id) or backend.read_info(info.scope, info.parent_id)
        if parent is None:
            return
        met.add(parent.id)
        info = parent
        yield info
