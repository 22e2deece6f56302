"""Writes the snapshots of a store as the files of the Strands tools."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from limpet.compat.strands.payloads import dialect_of
from limpet.compat.strands.records import is_identifier
from limpet.compat.strands.sources import lines, refusal, snapshots
from limpet.compat.strands.storage import MANIFEST, wire_of
from limpet.compat.transfer import Transfer
from limpet.compat.wire import shown
from limpet.errors import Corrupt, InvalidInput, Unsupported
from limpet.model import ANY, JSON, Finding, ScopeKey, Snapshot
from limpet.scope import Scope
from limpet.store import Store

if TYPE_CHECKING:
    from limpet.backends._bucket.protocol import Bucket

_NAME_BYTES_MAX = 200  # less than any file system takes, with room for the rest of the name


class Export:
    """One export. `indent` says how the SDK for TypeScript lays out its JSON there."""

    def __init__(
        self,
        files: "Bucket",
        root: str,
        convert: Callable[[dict[str, JSON]], dict[str, JSON]],
        *,
        indent: bool,
    ) -> None:
        self._files = files
        self._root = root
        self._convert = convert
        self._form: dict[str, Any] = {"indent": 2} if indent else {"separators": (",", ":")}
        self._count = 0
        self._skipped: list[Finding] = []

    def sessions(self, origin: Store, prefix: str) -> Transfer:
        """Write the sessions whose names begin with a prefix."""
        for scope in lines(origin, prefix):
            for id, found in snapshots(scope):
                try:
                    self._write(scope.key, id, found)
                    self._count += 1
                except (Corrupt, InvalidInput, Unsupported) as cause:
                    self._skipped.append(refusal("refused", cause, scope.key, id))
            self._write_manifest(scope)
        return Transfer(self._count, tuple(self._skipped))

    def _write(self, scope: ScopeKey, id: str | None, found: Snapshot | Corrupt) -> None:
        if isinstance(found, Corrupt):
            raise found
        wire = self._convert(wire_of(found))
        is_python = dialect_of(wire) == "python"
        for name in (scope.session_id, scope.scope_id, id):
            if name is not None and not (_is_file_name if is_python else is_identifier)(name):
                raise InvalidInput(f"the SDK would refuse the name. name=`{shown(name)}`")
        place = "snapshot_latest" if id is None else f"immutable_history/snapshot_{id}"
        self._put(scope, place, wire, {} if is_python else self._form)

    def _write_manifest(self, scope: Scope) -> None:
        if is_identifier(scope.session_id) and is_identifier(scope.scope_id):
            try:
                note = scope.note(MANIFEST)
            except Corrupt as damage:
                self._skipped.append(refusal("refused", damage, scope.key))
                return
            if note is not None:
                self._put(scope.key, MANIFEST, note.value, self._form)

    def _put(self, scope: ScopeKey, place: str, value: JSON, form: dict[str, Any]) -> None:
        line = f"{scope.session_id}/scopes/{scope.kind}/{scope.scope_id}"
        data = json.dumps(value, ensure_ascii=False, **form).encode()
        self._files.put(f"{self._root}{line}/snapshots/{place}.json", data, expect=ANY)


def _is_file_name(name: str) -> bool:
    if name in (".", "..") or len(name.encode()) > _NAME_BYTES_MAX:
        return False
    return not any(mark in name for mark in "/\\\0")
