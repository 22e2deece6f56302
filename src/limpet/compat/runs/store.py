"""Run checkpoints on every engine, sync and async."""

import os
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Concatenate, ParamSpec, Self, TypeAlias, TypeVar

from limpet import AsyncStore, Store
from limpet.api.integrations import awaited, failure
from limpet.compat.runs.records import Checkpoint, listed, loaded, save_options, scope_of
from limpet.compat.wire import address_of
from limpet.compat.writes import AsyncClosing
from limpet.errors import Corrupt, InvalidInput
from limpet.model import JSON
from limpet.opening import open as open_store
from limpet.opening import open_async
from limpet.runs.model import KIND, SCOPE_ID

StoreAddress: TypeAlias = str | os.PathLike[str] | Store | AsyncStore
Checkpoints: TypeAlias = list[Checkpoint]
P = ParamSpec("P")
T = TypeVar("T")


class RunStore:
    """The current checkpoint of each run, overwritten by each save. A context manager.

    `dir_or_store` is a folder, which is created at once with its parents; the URL of a store; or an
    open store, sync or async, which is not closed with this one. It may be shared between threads,
    and any number of processes may save at the same time.
    """

    def __init__(self, dir_or_store: StoreAddress) -> None:
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

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store, if this object opened it. May be repeated."""
        if self._opened is not None:
            self._opened.close()

    def save(self, checkpoint: Checkpoint | Mapping[str, JSON]) -> None:
        """Save a checkpoint, durably; it replaces the run's last one. One commit.

        An empty `created_at` becomes the current time.

        Raises:
            InvalidInput: it is not a checkpoint, or a value is not JSON (the message has its path),
                or too large: a task name has up to 256 characters.
        """
        scope, options = save_options(checkpoint)
        self._store.scope(*scope).save(**options)

    def load(self, run_id: str) -> Checkpoint:
        """Return the checkpoint of a run.

        What `limpet.runs` or another program saved for the run is returned as well: missing fields
        have their defaults, and `created_at` is that of the snapshot.

        Raises:
            NotFound: the run has none.
            Corrupt: the stored checkpoint fails its check.
        """
        return loaded(run_id, self._store.scope(*scope_of(run_id)).load())

    def list(self) -> Checkpoints:
        """Return the checkpoints of all runs, newest first by their `created_at`.

        Equal times are ordered by the last save, then by run_id. Only metadata is read: `messages`
        is None, `system_prompt` and `extra` are empty. A damaged run is left out.
        """
        return listed(self._store.scopes(kind=KIND))

    def delete(self, run_id: str) -> None:
        """Delete a run: its whole scope. Idempotent."""
        self._store.scope(*scope_of(run_id)).delete()

    def has_checkpoint(self, run_id: str) -> bool:
        """Return whether a run has a checkpoint, also a damaged one."""
        scope = self._store.scope(*scope_of(run_id))
        try:
            return scope.info() is not None
        except Corrupt:
            return True

    def _run_ids(self) -> Iterator[str]:
        """Yield all runs, also damaged ones."""
        for scope in self._store.scopes(kind=KIND):
            if scope.key.scope_id == SCOPE_ID:
                yield scope.key.session_id


def _pooled(method: Callable[Concatenate[RunStore, P], T]) -> Callable[..., Coroutine[Any, Any, T]]:
    """Return the body of an async twin: the sync method, in the pool of the store."""

    def body(self: "AsyncRunStore", *args: P.args, **options: P.kwargs) -> Coroutine[Any, Any, T]:
        return self._store.run(lambda store: method(RunStore(store), *args, **options))

    return body


class AsyncRunStore(AsyncClosing):
    """Async twin of `RunStore`. A folder is created by `async with`, or by the first save."""

    def __init__(self, dir_or_store: StoreAddress) -> None:
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

    async def close(self) -> None:
        """Async twin of `RunStore.close`."""
        if self._opened is not None:
            await self._opened.close()

    async def _save(self, checkpoint: Checkpoint | Mapping[str, JSON]) -> None:
        # Encoded before it waits: what the caller then does with the messages changes nothing.
        scope, options = save_options(checkpoint)
        await self._store.scope(*scope).save(**options)

    save = awaited(RunStore.save, body=_save)
    load = awaited(RunStore.load, body=_pooled(RunStore.load))
    list = awaited(RunStore.list, body=_pooled(RunStore.list))
    delete = awaited(RunStore.delete, body=_pooled(RunStore.delete))
    has_checkpoint = awaited(RunStore.has_checkpoint, body=_pooled(RunStore.has_checkpoint))


def make_folder(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except FileExistsError:
        raise InvalidInput(f"the path is not a folder. path=`{path}`") from None
    except OSError as cause:
        raise failure(cause, path) from cause
