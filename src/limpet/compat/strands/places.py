"""Folders and buckets in the layout of the Strands tools, and nothing else in them."""

import os
from types import TracebackType
from typing import Any, Self

from limpet import opening
from limpet.api.store import AsyncStore
from limpet.compat.strands.storage import StoreStorage
from limpet.compat.wire import folder_of
from limpet.errors import InvalidInput

_ROOT = ""  # sessions lie directly below the folder or the prefix


class _PlaceStorage(StoreStorage):
    """A storage that has opened its store itself. An async context manager, if you like."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def store(self) -> AsyncStore:
        """The store behind it, with all that `SnapshotStorage` has no words for."""
        return self._store

    async def close(self) -> None:
        """Let go of threads and connections. May be repeated."""
        await self._store.close()


class FileStorage(_PlaceStorage):
    """A `SnapshotStorage` that keeps its files below a folder.

    `<base_dir>/<session_id>/scopes/<scope>/<scope_id>/snapshots/` holds `snapshot_latest.json`,
    `immutable_history/snapshot_<id>.json` and `manifest.json`. The folder is created by the first
    save. A relative one stays where it is when the process changes its directory.
    """

    def __init__(self, base_dir: str | os.PathLike[str]) -> None:
        super().__init__(opening.open_async(folder_of(base_dir), root=_ROOT))


class S3Storage(_PlaceStorage):
    """A `SnapshotStorage` that keeps its objects in a bucket, below a prefix if one is given.

    The keys are `[<prefix>/]<session_id>/scopes/…` as in `FileStorage`. `client` is a store of
    obstore that is opened already and has its own region and keys; otherwise they are those of the
    environment, or given as options that `limpet.open` takes for S3.

    Raises:
        InvalidInput: a client is given together with a region or other options, or nothing is.
        Unsupported: obstore is not installed.
    """

    def __init__(
        self,
        bucket: str | None = None,
        prefix: str | None = None,
        region: str | None = None,
        endpoint_url: str | None = None,
        client: Any = None,
        **options: Any,
    ) -> None:
        given = {"region": region, "endpoint_url": endpoint_url, **options}
        chosen = {name: value for name, value in given.items() if value is not None}
        below = "" if prefix is None else prefix
        if "root" in chosen:
            raise InvalidInput("the layout of an S3Storage is given: it takes no root")
        if client is not None:
            if chosen:
                names = ", ".join(sorted(chosen))
                raise InvalidInput(f"a client has its own settings. given=`{names}`")
            name = bucket or "the client's"
            store = opening.open_client(client, name=name, prefix=below, root=_ROOT)
        elif bucket is None:
            raise InvalidInput("an S3Storage needs a bucket or a client")
        else:
            store = opening.open_bucket(bucket, prefix=below, root=_ROOT, **chosen)
        super().__init__(store)
