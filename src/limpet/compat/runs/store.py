"""Run checkpoints on every engine, in both faces."""

import os
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self, TypeAlias

from limpet.api.store import AsyncStore, Store
from limpet.backends.buckets import failure
from limpet.compat.runs import mapping
from limpet.compat.runs.checkpoint import Checkpoint
from limpet.compat.wire import address_of
from limpet.errors import Corrupt, InvalidInput
from limpet.model import JSON
from limpet.opening import open as open_store
from limpet.opening import open_async
from limpet.runs.model import KIND, SCOPE_ID
from limpet.runs.verbs import scope_of

Place: TypeAlias = str | os.PathLike[str] | Store | AsyncStore
Checkpoints: TypeAlias = list[Checkpoint]


class RunStore:
    """The current checkpoint of each run, overwritten by each save. A context manager.

    `dir_or_store` is a folder, which is created at once, with those above it; the URL of a store;
    or a store that is open, in either face, which is then not closed with this one. It may be
    shared between threads, and any number of processes may save at the same time.
    """

    def __init__(self, dir_or_store: Place) -> None:
        self._opened: Store | None = None
        if isinstance(dir_or_store, Store | AsyncStore):
            self._store = dir_or_store.sync
            return
        url, folder = address_of(dir_or_store)
        if folder is not None:
            make_folder(folder)
        self._store = self._opened = open_store(url)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the store, if it was opened here. May be repeated."""
        if self._opened is not None:
            self._opened.close()

    def save(self, checkpoint: Checkpoint | Mapping[str, JSON]) -> None:
        """Make a checkpoint durable; it takes the place of the run's last one. One commit.

        An empty `created_at` becomes the present.

        Raises:
            InvalidInput: it is no checkpoint, or something in it is not JSON (the message has its
                path), or too large: a task name has up to 256 characters.
        """
        record = mapping.record_of(checkpoint)
        self._store.scope(*record.scope).save(**record.options)

    def load(self, run_id: str) -> Checkpoint:
        """Return the checkpoint of a run.

        What `limpet.runs` or anybody else saved at its address is returned as well: fields that
        it lacks have their defaults, `created_at` that of the snapshot.

        Raises:
            NotFound: the run has none.
            Corrupt: what is stored fails its check.
        """
        return mapping.loaded(run_id, self._store.scope(*scope_of(run_id)).load())

    def list(self) -> Checkpoints:
        """Return the checkpoints of all runs, newest first by their `created_at`.

        Of equal moments the last saved comes first, then they go by run_id. Only metadata is read:
        `messages` is None, `system_prompt` empty and `extra` too. A damaged run is left out.
        """
        return mapping.listed(self._store.scopes(kind=KIND))

    def delete(self, run_id: str) -> None:
        """Remove a run: its checkpoint, and what else stands in its scope. Idempotent."""
        self._store.scope(*scope_of(run_id)).delete()

    def has_checkpoint(self, run_id: str) -> bool:
        """Tell whether a run has a checkpoint. True also if that is damaged: `load` tells."""
        scope = self._store.scope(*scope_of(run_id))
        try:
            return scope.info() is not None
        except Corrupt:
            return True

    def _run_ids(self) -> Iterator[str]:
        """Yield the names of all runs, also of those that are damaged."""
        for scope in self._store.scopes(kind=KIND):
            if scope.key.scope_id == SCOPE_ID:
                yield scope.key.session_id


class AsyncRunStore:
    """Async twin of `RunStore`. A folder is created by `async with`, or by the first save."""

    def __init__(self, dir_or_store: Place) -> None:
        self._opened: AsyncStore | None = None
        self._folder: str | None = None
        if isinstance(dir_or_store, Store | AsyncStore):
            self._store = dir_or_store.aio
            return
        url, self._folder = address_of(dir_or_store)
        self._store = self._opened = open_async(url)

    async def __aenter__(self) -> Self:
        folder = self._folder
        if folder is not None:
            await self._store.run(lambda _: make_folder(folder))
        if self._opened is not None:
            await self._opened.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Async twin of `RunStore.close`."""
        if self._opened is not None:
            await self._opened.close()

    async def save(self, checkpoint: Checkpoint | Mapping[str, JSON]) -> None:
        """Async twin of `RunStore.save`."""
        record = mapping.record_of(checkpoint)
        await self._store.scope(*record.scope).save(**record.options)

    async def load(self, run_id: str) -> Checkpoint:
        """Async twin of `RunStore.load`."""
        return mapping.loaded(run_id, await self._store.scope(*scope_of(run_id)).load())

    async def list(self) -> Checkpoints:
        """Async twin of `RunStore.list`."""
        return mapping.listed([each async for each in self._store.scopes(kind=KIND)])

    async def delete(self, run_id: str) -> None:
        """Async twin of `RunStore.delete`."""
        await self._store.scope(*scope_of(run_id)).delete()

    async def has_checkpoint(self, run_id: str) -> bool:
        """Async twin of `RunStore.has_checkpoint`."""
        scope = self._store.scope(*scope_of(run_id))
        try:
            return await scope.info() is not None
        except Corrupt:
            return True


def make_folder(path: str) -> None:
    """Create a folder, with those above it, unless it exists."""
    try:
        os.makedirs(path, exist_ok=True)
    except FileExistsError:
        raise InvalidInput(f"the path is not that of a folder. path=`{path}`") from None
    except OSError as cause:
        raise failure(cause, path) from cause
