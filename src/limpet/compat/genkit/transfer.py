"""Sessions from the folder of Genkit's own file store, and back into such a folder.

Synchronous, for either face of a store; from async code `await store.run(lambda store: …)`. What is
there already is replaced, so that both may be repeated. What cannot be carried over is told, and
does not stop the rest. One state is in memory at a time.

| below the folder           | session          | written by                                      |
|----------------------------|------------------|-------------------------------------------------|
| `global/<snapshot>.json`   | `session`        | JavaScript and Go, where there are no tenants   |
| `<tenant>/<snapshot>.json` | `tenant/session` | JavaScript and Go; folders may be in each other |
| `<snapshot>.json`          | `session`        | Python                                          |
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from limpet.api import verbs
from limpet.api.scope import Scope
from limpet.api.store import AsyncStore, Store
from limpet.backends.buckets.protocol import Moved
from limpet.compat.genkit import rules, stored
from limpet.compat.genkit.node_files.check import folders_below
from limpet.compat.genkit.node_files.folder import Shelf
from limpet.compat.genkit.node_files.format import GLOBAL, bare, check_name, check_prefix, is_name
from limpet.compat.genkit.places import KIND, Tenant, tenant_of
from limpet.compat.genkit.rules import Row
from limpet.compat.wire import Transfer, folder_of, shown
from limpet.core.findings import finding
from limpet.errors import Conflict, Corrupt, InvalidInput, LimpetError, NotFound, Unsupported
from limpet.model import Finding, ScopeKey, Snapshot
from limpet.opening import open_files

# Brings the rows of Genkit's files into a store.

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)  # a row without a time is older than all others


class Import:
    """One import, of the sessions whose names begin with a prefix."""

    def __init__(self, target: Store, prefix: str) -> None:
        self._target = target
        self._prefix = prefix
        self._shared: set[str] = set()  # the ids of those who have no tenant
        self._count = 0
        self._skipped: list[Finding] = []

    def folder(self, folder: str) -> Transfer:
        """Save what can be saved of a folder, and return what came of it."""
        for prefix in folders_below(folder):
            shelf = _shelf(folder, prefix)
            try:
                check_prefix(prefix)
            except InvalidInput as refusal:
                if any(shelf.ids()):
                    told = finding("error", "folder_skipped", str(refusal), path=shelf.path)
                    self._skipped.append(told)
                continue
            self._take(tenant_of(None if prefix == GLOBAL else prefix, None), shelf)
        above, name = os.path.split(folder)
        if name:  # Genkit in Python has no folders for tenants
            self._take(Tenant(), _shelf(above, name))
        return Transfer(self._count, tuple(self._skipped))

    def _take(self, tenant: Tenant, shelf: Shelf) -> None:
        sessions: dict[str, list[Row]] = {}
        for row in self._rows(tenant, shelf):
            sessions.setdefault(row.session_id or "", []).append(row)
        for session_id, rows in sessions.items():
            scope = tenant.scope(session_id)
            if scope.session_id.startswith(self._prefix):
                self._save(scope, shelf, self._in_order(scope, shelf, session_id, rows))

    def _rows(self, tenant: Tenant, shelf: Shelf) -> Iterator[Row]:
        """Yield the rows of a folder that have a session, without what they hold."""
        before = self._shared
        if not tenant.prefix:
            self._shared = before | {*shelf.ids()}
        for id in shelf.ids():
            try:
                held = shelf.read(id)
                if held is None:
                    continue  # removed meanwhile
                row = bare(id, held.row)
                if not row.session_id or not row.session_id.strip():
                    raise InvalidInput("the snapshot has no session")
                if not tenant.prefix and id in before:
                    raise InvalidInput("there is a snapshot of this id in the folder for all")
            except LimpetError as error:
                self._skip(shelf, id, error)
            else:
                yield row

    def _in_order(
        self, scope: ScopeKey, shelf: Shelf, session_id: str, rows: list[Row]
    ) -> list[str]:
        """Return the ids in the order in which the rows were made; the latest is the last one."""
        ordered = made_in_order(rows)
        try:
            latest = rules.latest(rows, session_id)
        except Conflict:  # their parents go round in a circle
            return ordered
        if latest is None or latest.snapshot_id is None:
            return ordered
        named = shelf.pointer(session_id).snapshot_id if is_name(session_id) else None
        if named != latest.snapshot_id and named in ordered:
            fact = "the pointer of the session leads to another snapshot than the one made last"
            told = finding("warning", "latest_differs", fact, scope=scope, id=named)
            self._skipped.append(told)
        return [*(id for id in ordered if id != latest.snapshot_id), latest.snapshot_id]

    def _save(self, scope: ScopeKey, shelf: Shelf, ids: list[str]) -> None:
        for id in ids:
            try:
                held = shelf.read(id)
                if held is None:
                    continue
                target = self._target.scope(*scope)
                target.save(id=id, overwrite=True, **_facts(held.row))
            except (InvalidInput, Unsupported, Corrupt) as refusal:
                self._skip(shelf, id, refusal, scope)
            else:
                self._count += 1

    def _skip(
        self, shelf: Shelf, id: str, cause: LimpetError, scope: ScopeKey | None = None
    ) -> None:
        fact = str(cause)
        if shelf.path not in fact:
            fact = f"{fact}. file=`{shelf.path_of(id)}`"
        told = finding("error", "snapshot_skipped", fact, scope=scope, id=id)
        self._skipped.append(told)


def made_in_order(rows: Iterable[Row]) -> list[str]:
    """Return the ids of rows in the order in which they were made, each after those it follows."""
    oldest_first = sorted(rows, key=_age)
    parents = {row.snapshot_id or "": row.parent_id for row in oldest_first}
    ordered: dict[str, None] = {}
    for id in parents:
        line: dict[str, None] = {}
        at: str | None = id
        while at in parents and at not in ordered and at not in line:
            line[at] = None
            at = parents[at]
        ordered.update(dict.fromkeys(reversed(line)))
    return [*ordered]


def _age(row: Row) -> tuple[bool, int, str]:
    made = rules.moment_of(row.created_at)
    return made is not None, made or 0, row.snapshot_id or ""


def _facts(row: Row) -> dict[str, Any]:
    """Return what is saved of a row: the options of `Scope.save`. The same each time."""
    whole = rules.repaired(
        replace(row, status=rules.COMPLETED if row.status is None else row.status)
    )
    facts = stored.facts_of(whole, born="import")
    if row.created_at is None:
        # That it is not there is kept, too: otherwise the time of the import would be read.
        facts["metadata"][stored.FACADE]["createdAt"] = None
        facts["created_at"] = _LONG_AGO
    return facts


def _shelf(folder: str, prefix: str) -> Shelf:
    return Shelf(open_files(folder), folder, prefix, policy="leaf", reject=False)


# Writes the sessions of a store as files of Genkit.


class Export:
    """One export, into one folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._bucket = open_files(folder)
        self._count = 0
        self._skipped: list[Finding] = []

    def sessions(self, origin: Store, prefix: str) -> Transfer:
        """Write what Genkit knows of sessions, and return what came of it."""
        for session_id in origin.sessions(prefix=prefix):
            for each in origin.scopes(session_id):
                self._take(origin.scope(*each.key))
        return Transfer(self._count, tuple(self._skipped))

    def _take(self, scope: Scope) -> None:
        if scope.key != ScopeKey(scope.session_id, kind=KIND):
            self._skip("a session of Genkit is the scope `main` of kind `agent`", scope.key)
            return
        try:
            shelf, session_id = self._place(scope.session_id)
        except InvalidInput as refusal:
            self._skip(str(refusal), scope.key)
            return
        head = scope.info()
        if head is not None and not head.kept:
            self._skip("a draft is not kept", scope.key, head.id)
        for id in _in_order(scope, session_id):
            found = scope.load(id)
            if found is None:
                continue  # deleted meanwhile
            try:
                self._write(shelf, found, session_id)
            except (InvalidInput, Corrupt) as refusal:
                self._skip(str(refusal), scope.key, id)
            except Moved:
                self._skip("somebody else writes the same file", scope.key, id)

    def _place(self, stored_id: str) -> tuple[Shelf, str]:
        first, slash, _ = stored_id.partition("/")
        tenant = Tenant(first + slash if slash else "")
        session_id = tenant.session_of(stored_id)
        prefix = Tenant().session_of(first) if slash else GLOBAL
        if session_id is None or prefix is None:
            raise InvalidInput(f"the name is not that of a session of Genkit. {_named(stored_id)}")
        if slash and prefix == GLOBAL:
            raise InvalidInput(f"a tenant has the name of those who have none. {_named(stored_id)}")
        check_name("session_id", session_id)
        prefix = check_prefix(prefix)
        shelf = Shelf(self._bucket, self._folder, prefix, policy="leaf", reject=False)
        return shelf, session_id

    def _write(self, shelf: Shelf, found: Snapshot, session_id: str) -> None:
        id = check_name("snapshot_id", found.id)
        row = stored.row_of(found, session_id)
        held = shelf.read(id)
        if held is None or held.row != row:
            shelf.write(row, expect=None if held is None else held.version, keep=None)
        self._count += 1

    def _skip(self, fact: str, scope: ScopeKey, id: str | None = None) -> None:
        code = "scope_skipped" if id is None else "snapshot_skipped"
        self._skipped.append(finding("error", code, fact, scope=scope, id=id))


def _in_order(scope: Scope, session_id: str) -> list[str]:
    """Return the ids in the order of commits, but the latest is the last: pointers follow files."""
    rows = [stored.sketch_of(info, session_id) for info in scope.history()][::-1]
    try:
        latest = rules.latest(rows, session_id)
    except Conflict:  # their parents go round in a circle
        latest = None
    rows.sort(key=lambda row: row is latest)
    return [row.snapshot_id or "" for row in rows]


def _named(stored_id: str) -> str:
    return f"session_id=`{shown(stored_id)}`"


def import_sessions(
    store: Store | AsyncStore, dir: str | os.PathLike[str], *, prefix: str = ""
) -> Transfer:
    """Bring the sessions whose names begin with `prefix` into a store; count the snapshots.

    The names are those that they get: `alice/` are all of a tenant. Every row comes with its id,
    parent, status and time, and its other fields in `metadata["genkit"]`; history is in the order
    in which they were made, and the latest of a session becomes its head. So `SessionStore` answers
    as `JsonFileSessionStore` does over the folder, except that a row always has a session and a
    status, and that of several branches the latest is the one made last, wherever a pointer leads:
    that is told (`latest_differs`). A row of no session cannot be kept, and is told as well.

    Nothing in the folder changes. It may be in use: what is written meanwhile may be missed.

    Raises:
        NotFound: there is no such folder.
    """
    target, folder = _sync(store), folder_of(dir)
    verbs.check_prefix(prefix)
    if not os.path.isdir(folder):
        raise NotFound(f"there is no such folder. path=`{folder}`")
    return Import(target, prefix).folder(folder)


def export_sessions(
    store: Store | AsyncStore, to: str | os.PathLike[str], *, prefix: str = ""
) -> Transfer:
    """Write the sessions whose names begin with `prefix` as files of Genkit; count the snapshots.

    They are the very files that the real package writes, each under its id, with a pointer to the
    latest of every session; the folder may be new. What Genkit knows is the scope `main` of kind
    `agent` and what is kept in it: other scopes, drafts, and names that no file can have are left
    out, and told.
    """
    origin, folder = _sync(store), folder_of(to)
    return Export(folder).sessions(origin, prefix)


def _sync(store: object) -> Store:
    if not isinstance(store, Store | AsyncStore):
        raise InvalidInput(f"sessions need a store. type=`{type(store).__name__}`")
    return store.sync
