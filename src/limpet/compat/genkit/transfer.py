"""Imports the folder of Genkit's own file store, and exports a store as such a folder.

Synchronous; from async code call `await store.run(lambda store: …)`. Existing snapshots are
replaced, so both may be repeated. What cannot be carried over is reported and does not stop the
rest. One state is in memory at a time.

| below the folder           | session          | written by                                    |
|----------------------------|------------------|-----------------------------------------------|
| `global/<snapshot>.json`   | `session`        | JavaScript and Go, without tenants            |
| `<tenant>/<snapshot>.json` | `tenant/session` | JavaScript and Go; tenant folders may be nested |
| `<snapshot>.json`          | `session`        | Python                                        |
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from limpet.api.scope import Scope
from limpet.api.store import AsyncStore, Store
from limpet.api.verbs import check_prefix as check_session_prefix
from limpet.backends.buckets import Moved
from limpet.compat.genkit import mapping, rules
from limpet.compat.genkit.node_files.check import folders_below
from limpet.compat.genkit.node_files.folder import TenantFolder
from limpet.compat.genkit.node_files.format import GLOBAL, bare, check_name, check_prefix, is_name
from limpet.compat.genkit.rules import Row
from limpet.compat.genkit.tenants import KIND, Tenant, tenant_of
from limpet.compat.json_files import links_below
from limpet.compat.wire import Transfer, check_store, folder_of, shown
from limpet.core.findings import finding
from limpet.errors import Conflict, Corrupt, InvalidInput, LimpetError, NotFound, Unsupported
from limpet.model import Finding, ScopeKey, Snapshot
from limpet.opening import open_files

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)  # a row without a time is older than all others


def import_sessions(
    store: Store | AsyncStore, dir: str | os.PathLike[str], *, prefix: str = ""
) -> Transfer:
    """Import the sessions whose stored names begin with `prefix`; count the snapshots.

    `alice/` imports one tenant. Every row keeps its id, parent, status and time, and its other
    fields in `metadata["genkit"]`; history is in the order of creation, and the latest of a session
    becomes its head. So `SessionStore` answers as `JsonFileSessionStore` does over the folder,
    with two differences: a row always has a session and a status; and of several branches the
    latest is the one created last, whatever a pointer names (reported as `latest_differs`). A row
    without a session is skipped and reported, and so is a link.

    The folder is not changed. It may be in use: files written meanwhile may be missed.

    Raises:
        NotFound: there is no such folder.
    """
    target, folder = check_store(store).sync, folder_of(dir)
    check_session_prefix(prefix)
    if not os.path.isdir(folder):
        raise NotFound(f"there is no such folder. path=`{folder}`")
    return _FolderImport(target, prefix).run(folder)


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


class _FolderImport:
    def __init__(self, target: Store, prefix: str) -> None:
        self._target = target
        self._prefix = prefix
        self._shared_ids: set[str] = set()  # of the rows without a tenant
        self._count = 0
        self._skipped: list[Finding] = []

    def run(self, root: str) -> Transfer:
        if not self._prefix:
            self._skipped += links_below(root)
        for prefix in folders_below(root):
            folder = TenantFolder(open_files(root), root, prefix)
            try:
                check_prefix(prefix)
            except InvalidInput as refusal:
                if any(folder.ids()):
                    skipped = finding("error", "folder_skipped", str(refusal), path=folder.path)
                    self._skipped.append(skipped)
                continue
            self._import(tenant_of(None if prefix == GLOBAL else prefix, None), folder)
        above, name = os.path.split(root)
        if name:  # Genkit in Python has no tenant folders
            self._import(Tenant(), TenantFolder(open_files(above), above, name))
        return Transfer(self._count, tuple(self._skipped))

    def _import(self, tenant: Tenant, folder: TenantFolder) -> None:
        sessions: dict[str, list[Row]] = {}
        for row in self._rows(tenant, folder):
            sessions.setdefault(row.session_id or "", []).append(row)
        for session_id, rows in sessions.items():
            scope = tenant.scope(session_id)
            if scope.session_id.startswith(self._prefix):
                self._save(scope, folder, self._in_order(scope, folder, session_id, rows))

    def _rows(self, tenant: Tenant, folder: TenantFolder) -> Iterator[Row]:
        """Yield the rows of a folder that have a session, without their states."""
        before = self._shared_ids
        if not tenant.prefix:
            self._shared_ids = before | {*folder.ids()}
        for id in folder.ids():
            try:
                found = folder.read(id)
                if found is None:
                    continue  # removed meanwhile
                row = bare(id, found.row)
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
        """Return the ids in the order of creation, but the latest of the session last."""
        ordered = creation_order(rows)
        try:
            latest = rules.latest(rows, session_id)
        except Conflict:  # the parents form a circle
            return ordered
        if latest is None or latest.snapshot_id is None:
            return ordered
        named = folder.pointer(session_id).snapshot_id if is_name(session_id) else None
        if named != latest.snapshot_id and named in ordered:
            fact = "the pointer of the session names another snapshot than the one created last"
            self._skipped.append(finding("warning", "latest_differs", fact, scope=scope, id=named))
        return [*(id for id in ordered if id != latest.snapshot_id), latest.snapshot_id]

    def _save(self, scope: ScopeKey, folder: TenantFolder, ids: list[str]) -> None:
        for id in ids:
            try:
                found = folder.read(id)
                if found is None:
                    continue
                target = self._target.scope(*scope)
                target.save(id=id, overwrite=True, **_save_options(found.row))
            except (InvalidInput, Unsupported, Corrupt) as refusal:
                self._skip(folder, id, refusal, scope)
            else:
                self._count += 1

    def _skip(
        self, folder: TenantFolder, id: str, cause: LimpetError, scope: ScopeKey | None = None
    ) -> None:
        fact = str(cause)
        if folder.path not in fact:
            fact = f"{fact}. file=`{folder.path_of(id)}`"
        self._skipped.append(finding("error", "snapshot_skipped", fact, scope=scope, id=id))


def creation_order(rows: Iterable[Row]) -> list[str]:
    """Return the ids of rows in the order of creation, but each after its ancestors."""
    oldest_first = sorted(rows, key=_created)
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


def _created(row: Row) -> tuple[bool, int, str]:
    made = rules.moment_of(row.created_at)
    return made is not None, made or 0, row.snapshot_id or ""


def _save_options(row: Row) -> dict[str, Any]:
    """Return the options of `Scope.save`; the same for each import of a row."""
    whole = rules.repaired(
        replace(row, status=rules.COMPLETED if row.status is None else row.status)
    )
    options = mapping.save_options(whole, born="import")
    if row.created_at is None:
        # Recorded as missing: otherwise the time of the import would be read.
        options["metadata"][mapping.FACADE]["createdAt"] = None
        options["created_at"] = _LONG_AGO
    return options


class _FolderExport:
    def __init__(self, root: str) -> None:
        self._root = root
        self._bucket = open_files(root)
        self._count = 0
        self._skipped: list[Finding] = []

    def run(self, origin: Store, prefix: str) -> Transfer:
        for session_id in origin.sessions(prefix=prefix):
            for each in origin.scopes(session_id):
                self._export(origin.scope(*each.key))
        return Transfer(self._count, tuple(self._skipped))

    def _export(self, scope: Scope) -> None:
        if scope.key != ScopeKey(scope.session_id, kind=KIND):
            self._skip("a session of Genkit is the scope `main` of kind `agent`", scope.key)
            return
        try:
            folder, session_id = self._address(scope.session_id)
        except InvalidInput as refusal:
            self._skip(str(refusal), scope.key)
            return
        head = scope.info()
        if head is not None and not head.kept:
            self._skip("a draft is not kept", scope.key, head.id)
        for id in _latest_last(scope, session_id):
            found = scope.load(id)
            if found is None:
                continue  # deleted meanwhile
            try:
                self._write(folder, found, session_id)
            except (InvalidInput, Corrupt) as refusal:
                self._skip(str(refusal), scope.key, id)
            except Moved:
                self._skip("another process is writing the same file", scope.key, id)

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
        check_name("session_id", session_id)
        return TenantFolder(self._bucket, self._root, check_prefix(prefix)), session_id

    def _write(self, folder: TenantFolder, snapshot: Snapshot, session_id: str) -> None:
        id = check_name("snapshot_id", snapshot.id)
        row = mapping.row_of(snapshot, session_id)
        found = folder.read(id)
        if found is None or found.row != row:
            folder.write(row, expect=None if found is None else found.version, keep=None)
        self._count += 1

    def _skip(self, fact: str, scope: ScopeKey, id: str | None = None) -> None:
        code = "scope_skipped" if id is None else "snapshot_skipped"
        self._skipped.append(finding("error", code, fact, scope=scope, id=id))


def _latest_last(scope: Scope, session_id: str) -> list[str]:
    """Return the ids in commit order, but the latest last: the pointer follows the last file."""
    rows = [mapping.summary_of(info, session_id) for info in scope.history()][::-1]
    try:
        latest = rules.latest(rows, session_id)
    except Conflict:  # the parents form a circle
        latest = None
    rows.sort(key=lambda row: row is latest)
    return [row.snapshot_id or "" for row in rows]
