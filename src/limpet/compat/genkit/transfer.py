"""Imports the folder of Genkit's own file store, and exports a store as such a folder.

Synchronous; from async code call `await store.run(lambda store: …)`. Existing snapshots are
replaced, so both may be repeated. What cannot be carried over is reported and does not stop the
rest. One state is in memory at a time.

| below the folder           | session          | written by                                    |
|----------------------------|------------------|-----------------------------------------------|
| `global/<snapshot>.json`   | `session`        | JavaScript and Go, without tenants            |
| `<tenant>/<snapshot>.json` | `tenant/session` | JavaScript and Go; tenant folders may be nested |
| `<snapshot>.json`          | `session`        | Python                                        |

A file is `JSON.stringify(snapshot, null, 2)`; its name counts, not the id inside. In each of these
folders, `.pointers/<session>.json` names the latest snapshot of a session.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from limpet import AsyncStore, Scope, Store
from limpet.api.integrations import (
    TEMPORARY,
    Bucket,
    Moved,
    check_prefix,
    times,
)
from limpet.compat.genkit import records, rules
from limpet.compat.genkit.records import KIND, Row, SessionSnapshot, Tenant, tenant_of
from limpet.compat.json_files import (
    dump_indented,
    is_file_name,
    json_of,
    links_below,
    listed,
    read_files,
)
from limpet.compat.wire import (
    ABSENT,
    Tally,
    Transfer,
    check_store,
    existing_folder,
    folder_of,
    moment_of,
    shown,
    wire_time,
)
from limpet.errors import Conflict, Corrupt, InvalidInput, LimpetError, Unsupported
from limpet.model import ANY, ScopeKey
from limpet.opening import draw, open_files

GLOBAL = "global"  # the folder without a tenant

_ENDING = ".json"
_POINTERS = ".pointers"
_NAME_BYTES_MAX = 200  # of 255: the temporary names of Node have up to 54 bytes more
_PREFIX_PARTS_MAX = 16
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)  # a row without a time is older than all others


def import_sessions(
    store: Store | AsyncStore, dir: str | os.PathLike[str], *, prefix: str = ""
) -> Transfer:
    """Import the sessions whose stored names begin with `prefix`; count the new snapshots.

    `alice/` imports one tenant. Every row keeps its id, parent, status and time, and its other
    fields in `metadata["genkit"]`; history is in the order of creation, and the latest of a session
    becomes its head. So `SessionStore` answers as Genkit does over the folder, with two
    differences: a row always has a session and a status; and of several branches the latest is the
    one created last, whatever a pointer names (reported as `latest_differs`). A row without a
    session is skipped and reported, and so is a link.

    The folder is not changed. It may be in use: files written meanwhile may be missed.

    Raises:
        NotFound: there is no such folder.
    """
    target = check_store(store).sync
    check_prefix(prefix)
    return _FolderImport(target, prefix).run(existing_folder(dir))


def export_sessions(
    store: Store | AsyncStore, to: str | os.PathLike[str], *, prefix: str = ""
) -> Transfer:
    """Export the sessions whose names begin with `prefix` as files of Genkit; count the snapshots.

    The files are those that the real package writes, one for each snapshot and a pointer to the
    latest of each session; the folder may be new. Genkit knows the kept snapshots of the scope
    `main` of kind `agent`: other scopes, drafts, and names that cannot be file names are left out
    and reported.
    """
    origin, folder = check_store(store).sync, folder_of(to)
    return _FolderExport(folder).run(origin, prefix)


class TenantFolder:
    """The snapshots of one tenant, below the folder that `files` is open on.

    `names` are those of its files. Without a prefix it is that folder itself.
    """

    def __init__(self, files: Bucket, root: str, prefix: str, names: Sequence[str] = ()) -> None:
        self.prefix = prefix
        self._files = files
        self._root = root
        self._names = names

    def path_of(self, id: str = "") -> str:
        """Return the path of the file of a snapshot, or without an id of the folder."""
        return os.path.join(self._root, self._key(id) if id else self.prefix)

    def ids(self) -> Iterator[str]:
        for name in self._names:
            id = name.removesuffix(_ENDING)
            if id != name and _is_name(id):
                yield id

    def read(self, id: str) -> tuple[Row, str | None] | None:
        """Return a snapshot and the version of its file; None if there is none, or only a link.

        Raises:
            Corrupt: the file is not that of a snapshot. The message has its path.
        """
        (stored,) = read_files(self._files, [self._key(id)])
        if stored is None:
            return None
        try:
            value = json_of(stored)
            if not isinstance(value, dict):
                raise Corrupt("the file is not a snapshot: its JSON is not an object")
            row: Row = SessionSnapshot.from_json(value)
        except (Corrupt, InvalidInput) as cause:
            raise Corrupt(f"{cause}. path=`{self.path_of(id)}`") from cause
        return replace(row, snapshot_id=id), stored.version

    def write(self, row: Row, *, expect: str | None) -> None:
        """Store a row as Node does, if its file is at the version `expect`; else raise Moved."""
        data = dump_indented(row.to_json(), what="snapshot")
        self._files.put(self._key(row.snapshot_id or ""), data, expect=expect)

    def pointer(self, session_id: str) -> str | None:
        """Return the snapshot that the pointer of a session names; None if it names none."""
        (stored,) = read_files(self._files, [self._key(f"{_POINTERS}/{session_id}")])
        try:
            value = None if stored is None else json_of(stored)
        except Corrupt:
            return None
        named = value.get("currentSnapshotId") if isinstance(value, dict) else None
        return named if isinstance(named, str) else None

    def point(self, session_id: str, snapshot_id: str) -> None:
        """Let the pointer of a session name a snapshot."""
        now = wire_time(times.from_us(draw().now))
        data = dump_indented({"currentSnapshotId": snapshot_id, "updatedAt": now}, what="pointer")
        self._files.put(self._key(f"{_POINTERS}/{session_id}"), data, expect=ANY)

    def _key(self, name: str) -> str:
        return f"{self.prefix}/{name}{_ENDING}" if self.prefix else name + _ENDING


def _folders_of(root: str) -> list[TenantFolder]:
    """Return the folders that may hold snapshots: those of tenants, and last `root` itself."""
    files, found = open_files(root), dict[str, list[str]]()
    for each in listed(files, ""):
        prefix, _, name = each.key.rpartition("/")
        if _POINTERS not in prefix.split("/"):
            found.setdefault(prefix, []).append(name)
    in_order = sorted(found, key=lambda prefix: (not prefix, prefix))
    return [TenantFolder(files, root, prefix, found[prefix]) for prefix in in_order]


def _is_name(id: object) -> bool:
    """Return whether an id can be a file name that no temporary file has."""
    return is_file_name(id, bytes_max=_NAME_BYTES_MAX) and not str(id).startswith(TEMPORARY)


def _check_name(name: str, id: str) -> str:
    if not _is_name(id) or not id.strip():
        raise InvalidInput(f"{name} must be usable as a file name. {name}=`{shown(id)}`")
    return id


def _check_folders(prefix: str) -> str:
    """Return the folder of a tenant: one name, or several with `/` between.

    No name may lead out of the store's folder, or be one that tenant folders use themselves.
    """
    parts = prefix.split("/")
    if len(parts) > _PREFIX_PARTS_MAX or not all(map(_is_folder, parts)):
        raise InvalidInput(f"the prefix must be names of folders. prefix=`{shown(prefix)}`")
    return prefix


def _is_folder(name: str) -> bool:
    return (
        _is_name(name) and bool(name.strip()) and name != _POINTERS and not name.endswith(_ENDING)
    )


class _FolderImport:
    def __init__(self, target: Store, prefix: str) -> None:
        self._target = target
        self._prefix = prefix
        self._shared_ids: set[str] = set()  # of the rows without a tenant
        self._tally = Tally()

    def run(self, root: str) -> Transfer:
        if not self._prefix:
            self._tally.skipped += links_below(root)
        for folder in _folders_of(root):
            try:
                tenant = Tenant()
                if folder.prefix not in ("", GLOBAL):  # Genkit in Python has no tenant folders
                    tenant = tenant_of(_check_folders(folder.prefix), None)
            except InvalidInput as refusal:
                if any(folder.ids()):
                    self._tally.skip("folder_skipped", refusal, path=folder.path_of())
                continue
            self._import(tenant, folder)
        return self._tally.result()

    def _import(self, tenant: Tenant, folder: TenantFolder) -> None:
        sessions: dict[str, list[Row]] = {}
        for row in self._rows(tenant, folder):
            sessions.setdefault(row.session_id or "", []).append(row)
        for session_id, rows in sessions.items():
            scope = tenant.scope(session_id)
            if scope.session_id.startswith(self._prefix):
                self._save(scope, folder, self._in_order(scope, folder, session_id, rows))

    def _rows(self, tenant: Tenant, folder: TenantFolder) -> Iterator[Row]:
        before = self._shared_ids
        if not tenant.prefix:
            self._shared_ids = before | {*folder.ids()}
        for id in folder.ids():
            try:
                found = folder.read(id)
                if found is None:
                    continue  # removed meanwhile
                row = replace(found[0], session_id=rules.session_of(found[0]))
                row = rules.repaired(replace(row, state=ABSENT, error=None, extra={}))
                if not row.session_id or not row.session_id.strip():
                    raise InvalidInput("the snapshot has no session")
                if not tenant.prefix and id in before:
                    raise InvalidInput(f"the folder `{GLOBAL}` has a snapshot of the same id")
            except LimpetError as error:
                self._skip(folder, id, error)
            else:
                yield row

    def _in_order(
        self, scope: ScopeKey, folder: TenantFolder, session_id: str, rows: list[Row]
    ) -> list[str]:
        ordered = _creation_order(rows)
        latest = _latest_id(rows, session_id)
        if latest is None:
            return ordered
        named = folder.pointer(session_id) if _is_name(session_id) else None
        if named != latest and named in ordered:
            fact = "the pointer of the session names another snapshot than the one created last"
            self._tally.skip("latest_differs", fact, scope=scope, id=named, severity="warning")
        return [*(id for id in ordered if id != latest), latest]

    def _save(self, scope: ScopeKey, folder: TenantFolder, ids: list[str]) -> None:
        for id in ids:
            try:
                found = folder.read(id)
                if found is None:
                    continue
                target = self._target.scope(*scope)
                before = target.info(id)
                saved = target.save(id=id, overwrite=True, **_save_options(found[0]))
            except (InvalidInput, Unsupported, Corrupt) as refusal:
                self._skip(folder, id, refusal, scope)
            else:
                self._tally.add(before, saved)

    def _skip(
        self, folder: TenantFolder, id: str, cause: LimpetError, scope: ScopeKey | None = None
    ) -> None:
        path = folder.path_of(id)
        where = {} if path in str(cause) else {"file": path}
        self._tally.skip("snapshot_skipped", cause, scope=scope, id=id, **where)


def _creation_order(rows: Iterable[Row]) -> list[str]:
    """Return the ids of rows in the order of creation, but each after its ancestors."""
    oldest_first = sorted(
        rows, key=lambda row: (moment_of(row.created_at) or rules.LONG_AGO, row.snapshot_id or "")
    )
    parents = {row.snapshot_id or "": row.parent_id for row in oldest_first}
    ordered: dict[str, None] = {}
    for id in parents:
        branch: dict[str, None] = {}
        at: str | None = id
        while at in parents and at not in ordered and at not in branch:
            branch[at] = None
            at = parents[at]
        ordered.update(dict.fromkeys(reversed(branch)))
    return [*ordered]


def _save_options(row: Row) -> dict[str, Any]:
    """Return the options of `Scope.save`; the same for each import of a row."""
    status = records.COMPLETED if row.status is None else row.status
    options = records.save_options(rules.repaired(replace(row, status=status)), nonce="import")
    if row.created_at is None:
        # Recorded as missing: otherwise the time of the import would be read.
        options["metadata"][records.FACADE]["createdAt"] = None
        options["created_at"] = _LONG_AGO
    return options


class _FolderExport:
    def __init__(self, root: str) -> None:
        self._root = root
        self._files = open_files(root)
        self._tally = Tally()

    def run(self, origin: Store, prefix: str) -> Transfer:
        for session_id in origin.sessions(prefix=prefix):
            for each in origin.scopes(session_id):
                self._export(origin.scope(*each.key))
        return self._tally.result()

    def _export(self, scope: Scope) -> None:
        if scope.key != ScopeKey(scope.session_id, kind=KIND):
            fact = "a session of Genkit is the scope `main` of kind `agent`"
            self._tally.skip("scope_skipped", fact, scope=scope.key)
            return
        try:
            folder, session_id = self._address(scope.session_id)
        except InvalidInput as refusal:
            self._tally.skip("scope_skipped", refusal, scope=scope.key)
            return
        head = scope.info()
        if head is not None and not head.kept:
            self._skip(scope, head.id, "a draft is not kept")
        ids, new = _latest_last(scope, session_id), set[str]()
        for id in ids:
            try:
                if self._write(folder, scope, id, session_id):
                    new.add(id)
            except (InvalidInput, Corrupt) as refusal:
                self._skip(scope, id, refusal)
            except Moved:
                self._skip(scope, id, "another process is writing the same file")
        if new.intersection(ids[-1:]):
            folder.point(session_id, ids[-1])

    def _address(self, stored_id: str) -> tuple[TenantFolder, str]:
        first, slash, _ = stored_id.partition("/")
        tenant = Tenant(first + slash if slash else "")
        session_id = tenant.session_of(stored_id)
        prefix = Tenant().session_of(first) if slash else GLOBAL
        name = f"session_id=`{shown(stored_id)}`"
        if session_id is None or prefix is None:
            raise InvalidInput(f"the name is not that of a session of Genkit. {name}")
        if slash and prefix == GLOBAL:
            raise InvalidInput(f"a tenant cannot have the name of the shared folder. {name}")
        _check_name("session_id", session_id)
        return TenantFolder(self._files, self._root, _check_folders(prefix)), session_id

    def _write(self, folder: TenantFolder, scope: Scope, id: str, session_id: str) -> bool:
        """Write the file of a snapshot unless it is there; return whether it is a new one."""
        snapshot = scope.load(id)
        if snapshot is None:
            return False  # deleted meanwhile
        row = records.row_of(snapshot, session_id)
        found = folder.read(_check_name("snapshot_id", id))
        if found is None or found[0] != row:
            folder.write(row, expect=None if found is None else found[1])
        self._tally.count += 1
        return found is None

    def _skip(self, scope: Scope, id: str, fact: object) -> None:
        self._tally.skip("snapshot_skipped", fact, scope=scope.key, id=id)


def _latest_last(scope: Scope, session_id: str) -> list[str]:
    """Return the ids in commit order, but the latest last."""
    rows = [records.summary_of(info, session_id) for info in scope.history()][::-1]
    ids = [row.snapshot_id or "" for row in rows]
    latest = _latest_id(rows, session_id)
    return sorted(ids, key=lambda each: each == latest)


def _latest_id(rows: list[Row], session_id: str) -> str | None:
    try:
        latest = rules.latest(rows, session_id)
    except Conflict:  # the parents form a circle
        return None
    return None if latest is None else latest.snapshot_id
