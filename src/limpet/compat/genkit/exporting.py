"""Writes the sessions of a store as files of Genkit."""

from limpet.backends._bucket.protocol import Moved
from limpet.compat.genkit import rules, stored
from limpet.compat.genkit.files_format import GLOBAL, check_name, check_prefix
from limpet.compat.genkit.files_shelf import Shelf
from limpet.compat.genkit.places import KIND, Tenant
from limpet.compat.transfer import Transfer
from limpet.compat.wire import shown
from limpet.core.findings import finding
from limpet.errors import Conflict, Corrupt, InvalidInput
from limpet.model import Finding, ScopeKey, Snapshot
from limpet.opening import open_files
from limpet.scope import Scope
from limpet.store import Store


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
