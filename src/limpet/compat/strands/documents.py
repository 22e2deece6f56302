"""The layout of the Strands SDK, in a folder and in a bucket: `FileStorage` and `S3Storage`.

    <session_id>/scopes/<scope>/<scope_id>/snapshots/
        snapshot_latest.json
        immutable_history/snapshot_<id>.json
        manifest.json

Each is an object of its own that holds exactly the document of the SDK. So the SDK, and people with
an editor, may read, change, copy and remove any of them while Limpet uses the others. There is no
compare-and-set: as with the SDK, the last writer of a document wins.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from limpet import opening
from limpet.api.integrations import Bucket, Listed, Stored, codec, times
from limpet.compat.json_files import (
    FILE_BYTES_MAX,
    PAGE,
    dump_indented,
    json_of,
    listed,
    read_files,
)
from limpet.compat.strands.records import (
    SCHEMA_VERSION,
    Snapshot,
    SnapshotLocation,
    Wire,
    is_identifier,
    is_uuid7,
)
from limpet.compat.strands.store import BaseStorage, unknown_cursor
from limpet.compat.wire import folder_of, wire_time
from limpet.compat.writes import AsyncClosing
from limpet.errors import CLOSED, Corrupt, InvalidInput, LimpetError
from limpet.model import ANY, JSON

T = TypeVar("T")

LATEST, MANIFEST = "snapshot_latest.json", "manifest.json"
HISTORY = "immutable_history/"
_SNAPSHOTS = "/snapshots/"
_BEGIN, _END = "snapshot_", ".json"


def folder_key(session_id: str, scope_id: str, kind: str) -> str:
    return f"{session_id}/scopes/{kind}/{scope_id}{_SNAPSHOTS}"


def document_name(id: str | None) -> str:
    """Return the rest of the key of a snapshot; None is the latest."""
    return LATEST if id is None else f"{HISTORY}{_BEGIN}{id}{_END}"


def read_document(stored: Stored) -> Wire:
    """Return the document of a snapshot, of either SDK, or raise Corrupt."""
    found = json_of(stored)
    if not isinstance(found, dict) or "data" not in found:
        raise Corrupt(f"the document is not a snapshot. bytes=`{stored.size}`")
    return found


class DocumentStorage(AsyncClosing, BaseStorage):
    """A `SnapshotStorage` over a bucket, in the layout of the SDK. An async context manager."""

    def __init__(self, open_bucket: Callable[[], Bucket]) -> None:
        self._open_bucket = open_bucket
        self._bucket: Bucket | None = None
        self._closed = False

    async def close(self) -> None:
        """Close the folder or the bucket. May be repeated."""
        bucket, self._bucket, self._closed = self._bucket, None, True
        if bucket is not None:
            await asyncio.to_thread(bucket.close)

    async def _open(self) -> None:
        if self._bucket is None and not self._closed:
            self._bucket = await asyncio.to_thread(self._open_bucket)

    async def _run(self, work: Callable[[Bucket], T]) -> T:
        bucket = self._bucket
        if bucket is None:
            raise InvalidInput(CLOSED)
        return await asyncio.to_thread(work, bucket)

    async def _save(self, address: SnapshotLocation, id: str | None, wire: Wire) -> None:
        await self._put(_folder(address) + document_name(id), wire, "snapshot")

    async def _load(self, address: SnapshotLocation, id: str | None) -> Snapshot | None:
        stored = await self._get(_folder(address) + document_name(id))
        if stored is None:
            return None
        # Fields that another program did not write have defaults.
        default = {
            "scope": address.scope,
            "schemaVersion": SCHEMA_VERSION,
            "createdAt": wire_time(times.from_us(stored.modified)),
        }
        return Snapshot.from_json({**default, **read_document(stored)})

    async def _ids(
        self, address: SnapshotLocation, limit: int | None, after: str | None
    ) -> list[str]:
        prefix = _folder(address) + HISTORY
        return await self._run(lambda bucket: _list_ids(bucket, prefix, limit, after))

    async def _manifest(self, address: SnapshotLocation) -> JSON:
        stored = await self._get(_folder(address) + MANIFEST)
        return None if stored is None else json_of(stored)

    async def _save_manifest(self, address: SnapshotLocation, wire: Wire) -> None:
        await self._put(_folder(address) + MANIFEST, wire, "manifest")

    async def _delete(self, session_id: str) -> None:
        await self._run(lambda bucket: _delete_below(bucket, f"{session_id}/"))

    async def _get(self, key: str) -> Stored | None:
        (stored,) = await self._run(lambda bucket: read_files(bucket, [key]))
        return stored

    async def _put(self, key: str, wire: Wire, what: str) -> None:
        dump = partial(dump_indented, wire, what=what)
        # Here unless it takes long, so that the caller may change it while the write is running.
        data = await asyncio.to_thread(dump) if codec.is_large(wire) else dump()
        if len(data) > FILE_BYTES_MAX:
            raise InvalidInput(f"the {what} is too large. bytes=`{len(data)}`")
        await self._run(lambda bucket: bucket.put(key, data, expect=ANY))


class FileStorage(DocumentStorage):
    """A `SnapshotStorage` that keeps its files below a folder, as the SDK does.

    `<base_dir>/<session_id>/scopes/<scope>/<scope_id>/snapshots/` holds `snapshot_latest.json`,
    `immutable_history/snapshot_<id>.json` and `manifest.json`. The folder is created by the first
    save. A relative path is resolved at once. Files are never encrypted: the SDK reads them.
    """

    def __init__(self, base_dir: str | os.PathLike[str]) -> None:
        super().__init__(partial(opening.open_folder, folder_of(base_dir)))


class S3Storage(DocumentStorage):
    """A `SnapshotStorage` that keeps its objects in a bucket, below a prefix if one is given.

    The keys are `[<prefix>/]<session_id>/scopes/…` as in `FileStorage`, and Limpet encrypts
    nothing. `client` is an opened obstore store with its own region and credentials; otherwise
    these come from the environment, or from the options that `limpet.open` takes for the service.

    Raises:
        InvalidInput: neither a bucket nor a client is given, or a client together with options.
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
        if client is not None:
            if chosen:
                names = ", ".join(sorted(chosen))
                raise InvalidInput(f"a client has its own settings. given=`{names}`")
            name = bucket or "the client's"
            opened = opening.open_client(client, name=name, prefix=below)
        elif bucket is None:
            raise InvalidInput("an S3Storage needs a bucket or a client")
        else:
            opened = opening.open_bucket(bucket, prefix=below, **chosen)
        super().__init__(lambda: opened)

    async def _delete(self, session_id: str) -> None:
        await self._run(lambda bucket: _delete_seen(bucket, f"{session_id}/"))


def _folder(address: SnapshotLocation) -> str:
    return folder_key(address.session_id, address.scope_id, address.scope)


def _list_ids(bucket: Bucket, prefix: str, limit: int | None, after: str | None) -> list[str]:
    """Return ids in ascending order, those after a cursor. No document is read.

    Keys have another order than ids: `a-b.json` comes before `a.json`. UUIDs have the same length,
    so for them the two are the same, and the listing begins at the cursor and ends at the limit.
    With other ids all keys are listed.
    """
    if after is None or is_uuid7(after):
        found, start = list[str](), "" if after is None else f"{prefix}{_BEGIN}{after}{_END}"
        while True:
            wanted = PAGE if limit is None else min(limit - len(found), PAGE)
            page = bucket.list(prefix, after=start, limit=wanted)
            found += _ids_of(page, prefix)
            if len(page) < wanted or len(found) == limit:
                break
            start = page[-1].key
        if all(map(is_uuid7, found)):
            return found
    ids = sorted(_ids_of(listed(bucket, prefix), prefix))
    if after is not None and not is_uuid7(after) and after not in ids:
        raise unknown_cursor(after)
    return [id for id in ids if after is None or id > after][:limit]


def _ids_of(page: Iterable[Listed], prefix: str) -> Iterator[str]:
    for each in page:
        name = each.key.removeprefix(prefix)
        if name.startswith(_BEGIN) and name.endswith(_END):
            id = name[len(_BEGIN) : -len(_END)]
            if is_identifier(id):
                yield id


def _delete_seen(bucket: Bucket, prefix: str) -> None:
    """As `_delete_below`, where a proxy may answer that nothing is there.

    So there is an object that must be listed. It is the last, and deleted with the others.
    """
    last = f"{prefix}~limpet"
    try:
        bucket.put(last, b"limpet: this session is being deleted\n", expect=ANY)
        _delete_below(bucket, prefix, until=last)
    except BaseException:
        with suppress(LimpetError):
            bucket.delete([last])
        raise


def _delete_below(bucket: Bucket, prefix: str, until: str = "") -> None:
    while page := bucket.list(prefix, limit=PAGE, until=until):
        keys = [each.key for each in page]
        scopes = {key.partition(_SNAPSHOTS)[0] for key in keys if _SNAPSHOTS in key}
        # The latest of each scope first, so that no agent continues a session that is half deleted.
        bucket.delete([f"{scope}{_SNAPSHOTS}{LATEST}" for scope in sorted(scopes)])
        bucket.delete(keys)
