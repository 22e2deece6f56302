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
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, groupby
from typing import Any, Literal, NamedTuple, TypeAlias

from limpet import opening
from limpet.api.scope import Scope
from limpet.api.store import AsyncStore, Store
from limpet.backends.buckets import Bucket, Listed
from limpet.compat.json_files import (
    FILE_BYTES_MAX,
    check_size,
    is_file_name,
    links_below,
    read_files,
)
from limpet.compat.strands.dialects.payloads import dialect_of, to_python, to_typescript
from limpet.compat.strands.records import SCOPES, is_identifier
from limpet.compat.strands.storage import MANIFEST, is_gone, moment_of, wire_of
from limpet.compat.wire import Transfer, address_of, check_store, shown
from limpet.core import codec, document, limits
from limpet.core.document import FACADE
from limpet.core.layout import Layout
from limpet.errors import Corrupt, InvalidInput, LimpetError, NotFound, Unsupported
from limpet.model import ANY, JSON, Finding, ScopeKey, Snapshot

LayoutName: TypeAlias = Literal["classic", "unified", "messages"]
Payload: TypeAlias = Literal["typescript", "python"]
Wire: TypeAlias = dict[str, JSON]
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
    order of the ids; if no snapshot has a parent, each one follows the one before it. Snapshots
    whose head is lost, and links in a folder, are skipped and reported.

    Raises:
        InvalidInput: the source, the layout or the payload is not valid, or a file is too large.
        NotFound: there is no such folder.
    """
    root, convert = _root(layout, ("messages",)), _converter(payload)
    target = check_store(store).sync
    url, folder = _address(source, options)
    folder = folder or opening.file_of(url)
    if folder is not None and not os.path.isdir(folder):
        raise NotFound(f"there is no such folder. path=`{folder}`")
    files = opening.open_files(url, **options)
    try:
        importing = _SessionImport(target, convert)
        if layout == "messages":
            if folder is not None and not prefix:
                importing.save(links_below(folder))
            importing.save(_message_logs(files, prefix))
        else:
            _check_sizes(files, root)
            with opening.open(url, root=root, **options) as origin:
                importing.save(_snapshots_in_store(origin, prefix))
            importing.save(_other_names(files, root, prefix))
        return importing.result()
    finally:
        files.close()


def find_layout(source: str | os.PathLike[str], **options: Any) -> LayoutName:
    """Return the layout of the sessions in a folder or bucket; `classic` if there are none.

    Raises:
        InvalidInput: the source is not valid.
    """
    url, _ = _address(source, options)
    files = opening.open_files(url, **options)
    try:
        # A session of the classic layout may be called `session`, or begin with that.
        if any("/scopes/" not in each.key for each in files.list("session_", limit=1)):
            return "messages"
        listed = files.list("session/", limit=1)
        unified = any(not each.key.startswith("session/scopes/") for each in listed)
        return "unified" if unified else "classic"
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
    url, _ = _address(to, options)
    files = opening.open_files(url, **options)
    try:
        exporting = _SessionExport(files, root, convert, indent=layout == "classic")
        return exporting.run(origin, prefix)
    finally:
        files.close()


def _address(address: object, options: Mapping[str, Any]) -> tuple[str, str | None]:
    if "root" in options:
        raise InvalidInput("root is not an option: the layout says where the sessions are")
    return address_of(address)


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
    created_at: datetime | None
    parent: str | None = None
    is_head: bool = False
    status: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, JSON] = field(default_factory=dict)


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
            "metadata": {**found.metadata, FACADE: envelope},
            "created_at": found.created_at,
            "parent": found.parent,
            "status": found.status,
            "labels": found.labels,
        }
        if found.id is not None:
            scope.save(state, id=found.id, head=found.is_head, overwrite=True, **options)
        else:
            present = scope.load()
            # A repeated import must not move the head.
            if not present or (present.state, present.metadata) != (state, options["metadata"]):
                scope.save(state, keep=False, **options)
        self._count += 1


def _snapshots_in_store(origin: Store, prefix: str) -> _Source:
    """Yield what a store over the files reads."""
    # All of it is checked, since a small damaged file is not even listed.
    damage = (each for each in origin.check() if each.severity == "error")
    for finding in chain(damage, origin.driver.run(lambda backend: backend.list_unlisted())):
        if _has_prefix(finding.scope, prefix):
            yield finding
    for scope in _scopes(origin, prefix):
        yield from _snapshots_in_scope(scope)
        for note in scope.notes():
            yield _ImportedNote(scope.key, note.name, note.value)


def _has_prefix(scope: ScopeKey | None, prefix: str) -> bool:
    if scope is None:
        return not prefix
    return scope.kind in SCOPES and scope.session_id.startswith(prefix)


def _snapshots_in_scope(scope: Scope) -> Iterator[_ImportedSnapshot]:
    without_parents = all(info.parent_id is None for info in scope.history())
    try:
        head = scope.info()
    except Corrupt:
        head = None  # reported by `check`
    before: str | None = None
    for id, found in _snapshots(scope):
        if isinstance(found, Corrupt):
            continue  # reported by `check`
        if id is None and found.kept:
            continue  # it came as a part of history
        yield _ImportedSnapshot(
            scope.key,
            id,
            wire_of(found),
            found.created_at,
            parent=before if without_parents else found.parent_id,
            is_head=id is not None and head is not None and id == head.id,
            status=found.status,
            labels=found.labels,
            metadata=found.metadata,
        )
        before = id


def _check_sizes(files: Bucket, root: str) -> None:
    """Raise InvalidInput if a file is too large: the store over the files reads them all."""
    for each in _listed(files, root):
        if each.size > FILE_BYTES_MAX:
            where = f"key=`{each.key!a}` bytes=`{each.size}` max=`{FILE_BYTES_MAX}`"
            raise InvalidInput(f"a file is too large: move it elsewhere. {where}")


def _keys(files: Bucket, prefix: str) -> Iterator[str]:
    return (each.key for each in _listed(files, prefix))


def _listed(files: Bucket, prefix: str) -> Iterator[Listed]:
    after = ""
    while True:
        page = files.list(prefix, after=after, limit=limits.PAGE_ITEMS_MAX)
        yield from page
        if len(page) < limits.PAGE_ITEMS_MAX:
            return
        after = page[-1].key


def _other_names(files: Bucket, root: str, prefix: str) -> _Source:
    """Yield snapshots under names that a store over the files does not take for its own.

    The SDK for Python accepts nearly any name for a session or an agent, and writes it unescaped.
    """
    layout = Layout(root)
    keys = (key for key in _keys(files, f"{root}{prefix}") if layout.parse(key) is None)
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
    (stored,) = files.get([key])  # its size was checked
    if scope.kind not in SCOPES:
        raise InvalidInput(f"scope must be agent or multiAgent. key=`{key!a}`")
    if stored is None:
        raise Corrupt(f"the file was deleted meanwhile. key=`{key!a}`")
    if match["manifest"]:
        return _ImportedNote(scope, MANIFEST, codec.decode(b" " + stored.data))
    found = document.read(stored.data)
    if found.header is not None:
        raise Corrupt(f"the file holds the document of another snapshot. key=`{key!a}`")
    wire = {**found.envelope, "data": codec.decode(found.body)}
    return _ImportedSnapshot(scope, match["id"], wire, moment_of(found.envelope), parent=before)


def _message_logs(files: Bucket, prefix: str) -> _Source:
    """Yield each agent of the older Python session managers as a Python snapshot.

    They keep one file for each message and one for the agent::

        session_<session>/agents/agent_<agent>/agent.json
        session_<session>/agents/agent_<agent>/messages/message_<n>.json
        session_<session>/multi_agents/multi_agent_<id>/multi_agent.json

    The snapshot is what their manager would restore: redacted messages as they were redacted, and
    without those that the conversation manager removed. These are in `app_data`, under
    `removed_messages`.
    """
    matches = filter(None, map(_MESSAGE_KEY.fullmatch, _keys(files, f"session_{prefix}")))
    for scope, group in groupby(matches, key=_scope_of_log):
        try:
            wire = _snapshot_of_log(files, scope, list(group))
            yield _ImportedSnapshot(scope, None, wire, moment_of(wire))
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
            check_size(0 if stored is None else stored.size)
            # The leading space makes the codec read integers of any length exactly.
            value = None if stored is None else codec.decode(b" " + stored.data)
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
        file = "snapshot_latest" if id is None else f"immutable_history/snapshot_{id}"
        self._put(scope, file, wire, {} if is_python else self._form)

    def _write_manifest(self, scope: Scope) -> None:
        if is_identifier(scope.session_id) and is_identifier(scope.scope_id):
            try:
                note = scope.note(MANIFEST)
            except Corrupt as damage:
                self._skipped.append(_refused("refused", damage, scope.key))
                return
            if note is not None:
                self._put(scope.key, MANIFEST, note.value, self._form)

    def _put(self, scope: ScopeKey, file: str, value: JSON, form: dict[str, Any]) -> None:
        folder = f"{scope.session_id}/scopes/{scope.kind}/{scope.scope_id}"
        data = json.dumps(value, ensure_ascii=False, **form).encode()
        self._files.put(f"{self._root}{folder}/snapshots/{file}.json", data, expect=ANY)
