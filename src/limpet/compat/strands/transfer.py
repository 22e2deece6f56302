"""Imports the files of the Strands SDKs into a store, and exports a store as such files.

Synchronous; from async code call `await store.run(lambda store: …)`. Existing snapshots are
replaced, so both may be repeated. What cannot be carried over is reported and does not stop the
rest.

| layout     | files below the folder or prefix                    | written by                   |
|------------|-----------------------------------------------------|------------------------------|
| `classic`  | `<session>/scopes/<scope>/<id>/snapshots/…`         | TypeScript's SnapshotStorage |
| `unified`  | `session/<session>/scopes/<scope>/<id>/snapshots/…` | both SDKs' Storage           |
| `messages` | `session_<session>/agents/agent_<id>/messages/…`    | Python's older managers      |
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any, Literal, NamedTuple, TypeAlias

from limpet import opening
from limpet.api.scope import Scope
from limpet.api.store import AsyncStore, Store
from limpet.backends.buckets import Bucket
from limpet.compat.json_files import is_file_name, links_below, read_files
from limpet.compat.strands import documents
from limpet.compat.strands.dialects.payloads import dialect_of, to_python, to_typescript
from limpet.compat.strands.records import FACADE, SCOPES, Wire, is_identifier
from limpet.compat.strands.storage import MANIFEST, is_gone, moment_of, wire_of
from limpet.compat.wire import Transfer, address_of, check_store, shown
from limpet.core.foreign import LayoutName, layout_of
from limpet.errors import Corrupt, InvalidInput, LimpetError, NotFound, Unsupported
from limpet.model import ANY, JSON, Finding, ScopeKey, Snapshot

Payload: TypeAlias = Literal["typescript", "python"]
_Converter: TypeAlias = Callable[[Wire], Wire]

_ROOTS = {"classic": "", "unified": "session/"}
_CONVERTERS: Mapping[str, _Converter] = {"python": to_python, "typescript": to_typescript}
_SNAPSHOT_KEY = re.compile(
    r"(?P<session>[^/]+)/scopes/(?P<kind>[^/]+)/(?P<scope>[^/]+)/snapshots/"
    r"(?:(?P<latest>snapshot_latest)|(?P<manifest>manifest)"
    r"|immutable_history/snapshot_(?P<id>[^/]+))\.json"
)
_MESSAGE_KEY = re.compile(
    r"session_(?P<session>[^/]+)/"
    r"(?:agents/agent_(?P<agent>[^/]+)/(?:agent|messages/message_(?P<number>\d{1,18}))"
    r"|multi_agents/multi_agent_(?P<graph>[^/]+)/multi_agent)\.json"
)
_NAME_BYTES_MAX = 200  # less than any file system takes, with room for the rest of the name
_PAGE_FILES = 64  # message files read at a time


def import_sessions(
    store: Store | AsyncStore,
    source: str | os.PathLike[str],
    *,
    layout: LayoutName = "classic",
    payload: Payload | None = None,
    prefix: str = "",
    **options: Any,
) -> Transfer:
    """Import the sessions whose names begin with `prefix` into a store; count the snapshots.

    `source` is a folder, or the URL of a bucket with its options. With `payload` the snapshots are
    translated to those of one SDK; otherwise they are kept as they are. History is imported in the
    order of the file names, and each snapshot follows the one before it. Damaged documents, and
    links in a folder, are skipped and reported.

    Raises:
        InvalidInput: the source, the layout or the payload is not valid.
        NotFound: there is no such folder.
    """
    root, convert = _root(layout, ("messages",)), _converter(payload)
    target = check_store(store).sync
    url, folder = address_of(source)
    folder = folder or opening.file_of(url)
    if folder is not None and not os.path.isdir(folder):
        raise NotFound(f"there is no such folder. path=`{folder}`")
    files = opening.open_files(url, **options)
    try:
        importing = _SessionImport(target, convert)
        is_log = layout == "messages"
        start = f"session_{prefix}" if is_log else f"{root}{prefix}"
        if folder is not None:
            importing.save(links_below(folder, start))
        importing.save(_message_logs(files, start) if is_log else _snapshots_in(files, root, start))
        return importing.result()
    finally:
        files.close()


def find_layout(source: str | os.PathLike[str], **options: Any) -> LayoutName:
    """Return the layout of the sessions in a folder or bucket; `classic` if there are none.

    Raises:
        InvalidInput: the source is not valid.
    """
    url, _ = address_of(source)
    files = opening.open_files(url, **options)
    try:
        # A session of the classic layout may be called `session`, or begin with that.
        for start in ("session_", "session/"):
            for each in files.list(start, limit=1):
                found = layout_of(each.key)
                if found is not None:
                    return found
        return "classic"
    finally:
        files.close()


def export_sessions(
    store: Store | AsyncStore,
    to: str | os.PathLike[str],
    *,
    layout: LayoutName = "classic",
    payload: Payload | None = None,
    prefix: str = "",
    **options: Any,
) -> Transfer:
    """Export the sessions whose names begin with `prefix` as files of the Strands SDKs.

    The files are those that the SDKs write, without any field of Limpet. Sessions, scopes and
    snapshots whose names the SDK of the payload would refuse are left out and reported.

    Raises:
        InvalidInput: the target, the layout or the payload is not valid, or is `messages`.
    """
    root, convert = _root(layout), _converter(payload)
    origin = check_store(store).sync
    url, _ = address_of(to)
    files = opening.open_files(url, **options)
    try:
        exporting = _SessionExport(files, root, convert, indent=layout == "classic")
        return exporting.run(origin, prefix)
    finally:
        files.close()


def _root(layout: object, others: tuple[str, ...] = ()) -> str:
    known = (*_ROOTS, *others)
    if not isinstance(layout, str) or layout not in known:
        raise InvalidInput(f"there is no such layout here. known=`{', '.join(known)}`")
    return _ROOTS.get(layout, "")


def _converter(payload: object) -> _Converter:
    if payload is None:
        return lambda wire: wire
    if not isinstance(payload, str) or payload not in _CONVERTERS:
        raise InvalidInput(f"there is no such payload. known=`{', '.join(_CONVERTERS)}`")
    return _CONVERTERS[payload]


def _refused(code: str, cause: object, scope: ScopeKey, id: str | None = None) -> Finding:
    return Finding("error", code, str(cause), scope, id)


def _scopes(store: Store, prefix: str) -> Iterator[Scope]:
    """Yield the scopes of the kinds that Strands has."""
    for info in store.scopes(prefix=prefix):
        if info.key.kind in SCOPES:
            yield store.scope(*info.key)


def _snapshots(scope: Scope) -> Iterator[tuple[str | None, Snapshot | Corrupt]]:
    """Yield the history in the order of the ids, and last, without an id, the latest.

    One at a time, so that damage to one does not hide the others.
    """
    for id in chain(scope.ids(), (None,)):
        try:
            found = scope.load(id)
        except Corrupt as damage:
            yield id, damage
            continue
        if found is not None and not is_gone(found):
            yield id, found


# Importing


@dataclass(frozen=True)
class _ImportedSnapshot:
    """A snapshot to be saved: in history under its id, or without one as the latest."""

    scope: ScopeKey
    id: str | None
    wire: Wire
    parent: str | None = None


class _ImportedNote(NamedTuple):
    scope: ScopeKey
    name: str
    value: JSON


_Source: TypeAlias = Iterator[_ImportedSnapshot | _ImportedNote | Finding]


class _SessionImport:
    def __init__(self, target: Store, convert: _Converter) -> None:
        self._target = target
        self._convert = convert
        self._count = 0
        self._skipped: list[Finding] = []

    def result(self) -> Transfer:
        return Transfer(self._count, tuple(self._skipped))

    def save(self, source: _Source) -> None:
        for found in source:
            if isinstance(found, Finding):
                self._skipped.append(found)
                continue
            try:
                if isinstance(found, _ImportedNote):
                    self._target.scope(*found.scope).set_note(found.name, found.value)
                else:
                    self._save_snapshot(found)
            except (InvalidInput, Unsupported, Corrupt) as cause:
                id = found.id if isinstance(found, _ImportedSnapshot) else None
                self._skipped.append(_refused("refused", cause, found.scope, id))

    def _save_snapshot(self, found: _ImportedSnapshot) -> None:
        scope = self._target.scope(*found.scope)
        envelope = self._convert(found.wire)
        state = envelope.pop("data")
        options: dict[str, Any] = {
            "metadata": {FACADE: envelope},
            "created_at": moment_of(found.wire),
            "parent": found.parent,
        }
        if found.id is not None:
            scope.save(state, id=found.id, head=False, overwrite=True, **options)
        else:
            present = scope.load()
            # A repeated import must not move the head.
            if not present or (present.state, present.metadata) != (state, options["metadata"]):
                scope.save(state, keep=False, **options)
        self._count += 1


def _snapshots_in(files: Bucket, root: str, start: str) -> _Source:
    """Yield what is in the keys of the layout, whatever the names of sessions and agents are.

    The SDK for Python accepts nearly any name, and writes it unescaped.
    """
    keys = (each.key for each in documents.listed(files, start))
    matches = filter(None, (_SNAPSHOT_KEY.fullmatch(key, len(root)) for key in keys))
    for scope, group in groupby(
        matches, key=lambda match: ScopeKey(match["session"], match["scope"], match["kind"])
    ):
        before: str | None = None
        for match in group:
            try:
                yield _read_snapshot(files, scope, match, before)
            except LimpetError as cause:
                yield _refused("corrupt", cause, scope, match["id"])
            before = match["id"] or before


def _read_snapshot(
    files: Bucket, scope: ScopeKey, match: re.Match[str], before: str | None
) -> _ImportedSnapshot | _ImportedNote:
    key = match.string
    if scope.kind not in SCOPES:
        raise InvalidInput(f"scope must be agent or multiAgent. key=`{key!a}`")
    (stored,) = read_files(files, [key])
    if stored is None:
        raise Corrupt(f"the file was deleted meanwhile. key=`{key!a}`")
    if match["manifest"]:
        return _ImportedNote(scope, MANIFEST, documents.read_json(stored))
    return _ImportedSnapshot(scope, match["id"], documents.read_document(stored), before)


def _message_logs(files: Bucket, start: str) -> _Source:
    """Yield each agent of the older Python session managers as a Python snapshot.

    They keep one file for each message and one for the agent::

        session_<session>/agents/agent_<agent>/agent.json
        session_<session>/agents/agent_<agent>/messages/message_<n>.json
        session_<session>/multi_agents/multi_agent_<id>/multi_agent.json

    The snapshot is what their manager would restore: redacted messages as they were redacted, and
    without those that the conversation manager removed. These are in `app_data`, under
    `removed_messages`.
    """
    keys = (each.key for each in documents.listed(files, start))
    matches = filter(None, map(_MESSAGE_KEY.fullmatch, keys))
    for scope, group in groupby(matches, key=_scope_of_log):
        try:
            yield _ImportedSnapshot(scope, None, _snapshot_of_log(files, scope, list(group)))
        except LimpetError as cause:
            yield _refused("corrupt", cause, scope)


def _scope_of_log(match: re.Match[str]) -> ScopeKey:
    if match["graph"] is not None:
        return ScopeKey(match["session"], match["graph"], "multiAgent")
    return ScopeKey(match["session"], match["agent"], "agent")


def _snapshot_of_log(files: Bucket, scope: ScopeKey, matches: list[re.Match[str]]) -> Wire:
    numbered = {int(each["number"]): each[0] for each in matches if each["number"] is not None}
    agent_key = next((each[0] for each in matches if each["number"] is None), None)
    if agent_key is None:
        raise Corrupt(f"messages without an agent. session_id=`{scope.session_id}`")
    record = next(_read_objects(files, [agent_key]))
    app_data: Wire = {}
    if scope.kind == "multiAgent":
        data: Wire = {"orchestrator_id": scope.scope_id, "state": record}
    else:
        log = _read_objects(files, [numbered[number] for number in sorted(numbered)])
        messages = [each.get("redact_message") or each.get("message") for each in log]
        managed = _object(record, "conversation_manager_state")
        inner = _object(record, "_internal_state")
        removed = managed.get("removed_message_count")
        first = removed if isinstance(removed, int) else 0
        data = {
            "messages": messages[first:],
            "state": _object(record, "state"),
            "conversation_manager_state": managed,
            **{name: inner[name] for name in ("interrupt_state", "model_state") if name in inner},
        }
        if first:
            app_data["removed_messages"] = messages[:first]
    created = record.get("updated_at") or record.get("created_at") or "1970-01-01T00:00:00Z"
    return {
        "scope": scope.kind,
        "schema_version": "1.0",
        "created_at": created,
        "data": data,
        "app_data": app_data,
    }


def _object(record: Mapping[str, Any], name: str) -> Wire:
    value = record.get(name)
    return value if isinstance(value, dict) else {}


def _read_objects(files: Bucket, keys: list[str]) -> Iterator[dict[str, Any]]:
    for at in range(0, len(keys), _PAGE_FILES):
        page = keys[at : at + _PAGE_FILES]
        for key, stored in zip(page, read_files(files, page), strict=True):
            value = None if stored is None else documents.read_json(stored)
            if not isinstance(value, dict):
                raise Corrupt(f"the file is not a JSON object. key=`{key}`")
            yield value


# Exporting


class _SessionExport:
    """One export. `indent` formats JSON as the SDK for TypeScript does in the classic layout."""

    def __init__(self, files: Bucket, root: str, convert: _Converter, *, indent: bool) -> None:
        self._files = files
        self._root = root
        self._convert = convert
        self._form: dict[str, Any] = {"indent": 2} if indent else {"separators": (",", ":")}
        self._count = 0
        self._skipped: list[Finding] = []

    def run(self, origin: Store, prefix: str) -> Transfer:
        for scope in _scopes(origin, prefix):
            for id, found in _snapshots(scope):
                try:
                    self._write(scope.key, id, found)
                    self._count += 1
                except (Corrupt, InvalidInput, Unsupported) as cause:
                    self._skipped.append(_refused("refused", cause, scope.key, id))
            self._write_manifest(scope)
        return Transfer(self._count, tuple(self._skipped))

    def _write(self, scope: ScopeKey, id: str | None, found: Snapshot | Corrupt) -> None:
        if isinstance(found, Corrupt):
            raise found
        wire = self._convert(wire_of(found))
        is_python = dialect_of(wire) == "python"
        for name in (scope.session_id, scope.scope_id, *([] if id is None else [id])):
            is_file = is_python and is_file_name(name, bytes_max=_NAME_BYTES_MAX)
            if not is_file and not is_identifier(name):
                raise InvalidInput(f"the SDK would refuse this name. name=`{shown(name)}`")
        self._put(scope, documents.document_name(id), wire, {} if is_python else self._form)

    def _write_manifest(self, scope: Scope) -> None:
        if is_identifier(scope.session_id) and is_identifier(scope.scope_id):
            try:
                note = scope.note(MANIFEST)
            except Corrupt as damage:
                self._skipped.append(_refused("refused", damage, scope.key))
                return
            if note is not None:
                self._put(scope.key, documents.MANIFEST, note.value, self._form)

    def _put(self, scope: ScopeKey, name: str, value: JSON, form: dict[str, Any]) -> None:
        folder = documents.folder_key(scope.session_id, scope.kind, scope.scope_id)
        data = json.dumps(value, ensure_ascii=False, **form).encode()
        self._files.put(f"{self._root}{folder}{name}", data, expect=ANY)
