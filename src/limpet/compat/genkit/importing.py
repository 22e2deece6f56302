"""Brings the rows of Genkit's files into a store."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from limpet.compat.genkit import rules, stored
from limpet.compat.genkit.files_check import folders_below
from limpet.compat.genkit.files_format import GLOBAL, bare, check_prefix, is_name
from limpet.compat.genkit.files_shelf import Shelf
from limpet.compat.genkit.places import Tenant, tenant_of
from limpet.compat.genkit.rules import Row
from limpet.compat.transfer import Transfer
from limpet.core.findings import finding
from limpet.errors import Conflict, Corrupt, InvalidInput, LimpetError, Unsupported
from limpet.model import Finding, ScopeKey
from limpet.opening import open_files
from limpet.store import Store

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
