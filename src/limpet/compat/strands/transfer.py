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
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import chain, groupby
from typing import Any, Literal

from limpet import AsyncStore, Scope, Store, opening
from limpet.api.integrations import Bucket, LayoutName, layout_of
from limpet.compat.json_files import is_file_name, json_of, links_below, listed, read_files
from limpet.compat.strands import documents
from limpet.compat.strands.dialects import dialect_of, to_python
from limpet.compat.strands.records import SCOPES, Wire, is_identifier
from limpet.compat.strands.store import MANIFEST, is_gone, save_options, wire_of
from limpet.compat.wire import Tally, Transfer, address_of, check_store, existing_folder, shown
from limpet.errors import Corrupt, InvalidInput, LimpetError, Unsupported
from limpet.model import ANY, JSON, ScopeKey

_ROOTS = {"classic": "", "unified": "session/"}
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
    payload: Literal["python"] | None = None,
    prefix: str = "",
    **options: Any,
) -> Transfer:
    """Import the sessions whose names begin with `prefix` into a store; count the new
    snapshots.

    `source` is a folder, or the URL of a bucket with its options. With `payload="python"` snapshots
    of the SDK for TypeScript are translated to those of the SDK for Python; otherwise they are kept
    as they are. History is imported in the order of the file names, and each snapshot follows the
    one before it. Damaged documents, and links in a folder, are skipped and reported.

    Raises:
        InvalidInput: the source, the layout or the payload is not valid.
        NotFound: there is no such folder.
    """
    root = _root(layout, ("messages",))
    if payload not in (None, "python"):
        raise InvalidInput(f"payload must be python, or None. payload=`{shown(payload)}`")
    target = check_store(store).sync
    url, folder = address_of(source)
    folder = folder or opening.file_of(url)
    if folder is not None:
        existing_folder(folder)
    with closing(opening.open_files(url, **options)) as files:
        importing = _SessionImport(target, files, as_python=payload == "python")
        is_log = layout == "messages"
        start = f"session_{prefix}" if is_log else f"{root}{prefix}"
        if folder is not None:
            importing.tally.skipped += links_below(folder, start)
        if is_log:
            importing.message_logs(start)
        else:
            importing.snapshots(root, start)
        return importing.tally.result()


def find_layout(source: str | os.PathLike[str], **options: Any) -> LayoutName:
    """Return the layout of the sessions in a folder or bucket; `classic` if there are none.

    Raises:
        InvalidInput: the source is not valid.
    """
    url, _ = address_of(source)
    with closing(opening.open_files(url, **options)) as files:
        # A session of the classic layout may be called `session`, or begin with that.
        for start in ("session_", "session/"):
            for each in files.list(start, limit=1):
                found = layout_of(each.key)
                if found is not None:
                    return found
        return "classic"


def export_sessions(
    store: Store | AsyncStore,
    to: str | os.PathLike[str],
    *,
    layout: LayoutName = "classic",
    prefix: str = "",
    **options: Any,
) -> Transfer:
    """Export the sessions whose names begin with `prefix` as files of the Strands SDKs.

    The files are those that the SDK of each snapshot writes, without any field of Limpet. Sessions,
    scopes and snapshots whose names this SDK would refuse are left out and reported.

    Raises:
        InvalidInput: the target or the layout is not valid, or is `messages`.
    """
    root = _root(layout)
    origin = check_store(store).sync
    url, _ = address_of(to)
    with closing(opening.open_files(url, **options)) as files:
        return _SessionExport(files, root, indent=layout == "classic").run(origin, prefix)


def _root(layout: object, others: tuple[str, ...] = ()) -> str:
    known = (*_ROOTS, *others)
    if not isinstance(layout, str) or layout not in known:
        raise InvalidInput(f"there is no such layout here. known=`{', '.join(known)}`")
    return _ROOTS.get(layout, "")


# Importing


class _SessionImport:
    def __init__(self, target: Store, files: Bucket, *, as_python: bool) -> None:
        self._target = target
        self._files = files
        self._as_python = as_python
        self.tally = Tally()

    def snapshots(self, root: str, start: str) -> None:
        """Import what is in the keys of the layout, whatever the names of sessions and agents are.

        The SDK for Python accepts nearly any name, and writes it unescaped.
        """
        keys = (each.key for each in listed(self._files, start))
        matches = filter(None, (_SNAPSHOT_KEY.fullmatch(key, len(root)) for key in keys))
        for scope, group in groupby(
            matches, key=lambda match: ScopeKey(match["session"], match["scope"], match["kind"])
        ):
            before: str | None = None
            for match in group:
                id = match["id"]
                try:
                    value = self._read(scope, match)
                except LimpetError as cause:
                    self.tally.skip("corrupt", cause, scope=scope, id=id)
                else:
                    self._save(scope, id, value, before, is_manifest=bool(match["manifest"]))
                before = id or before

    def message_logs(self, start: str) -> None:
        """Import each agent of the older Python session managers as a Python snapshot.

        They keep one file for each message and one for the agent::

            session_<session>/agents/agent_<agent>/agent.json
            session_<session>/agents/agent_<agent>/messages/message_<n>.json
            session_<session>/multi_agents/multi_agent_<id>/multi_agent.json

        The snapshot is what their manager would restore: redacted messages as they were redacted,
        and without those that the conversation manager removed. These are in `app_data`, under
        `removed_messages`.
        """
        keys = (each.key for each in listed(self._files, start))
        matches = filter(None, map(_MESSAGE_KEY.fullmatch, keys))
        for scope, group in groupby(matches, key=_scope_of_log):
            try:
                wire = _snapshot_of_log(self._files, scope, list(group))
            except LimpetError as cause:
                self.tally.skip("corrupt", cause, scope=scope)
            else:
                self._save(scope, None, wire)

    def _read(self, scope: ScopeKey, match: re.Match[str]) -> Any:
        key = match.string
        if scope.kind not in SCOPES:
            raise InvalidInput(f"scope must be agent or multiAgent. key=`{key!a}`")
        (stored,) = read_files(self._files, [key])
        if stored is None:
            raise Corrupt(f"the file was deleted meanwhile. key=`{key!a}`")
        return json_of(stored) if match["manifest"] else documents.read_document(stored)

    def _save(
        self,
        scope: ScopeKey,
        id: str | None,
        value: Any,
        parent: str | None = None,
        *,
        is_manifest: bool = False,
    ) -> None:
        errors = InvalidInput, Unsupported, Corrupt
        with self.tally.skipping("refused", *errors, scope=scope, id=id):
            if is_manifest:
                self._target.scope(*scope).set_note(MANIFEST, value)
            else:
                self._save_snapshot(self._target.scope(*scope), id, value, parent)

    def _save_snapshot(self, scope: Scope, id: str | None, wire: Wire, parent: str | None) -> None:
        envelope = to_python(wire) if self._as_python else wire
        state = envelope.pop("data")
        options = {**save_options(envelope), "parent": parent}
        if id is not None:
            before = scope.info(id)
            saved = scope.save(state, id=id, head=False, overwrite=True, **options)
            self.tally.add(before, saved)
            return
        present = scope.load()
        # A repeated import must not move the head.
        if present and (present.state, present.metadata) == (state, options["metadata"]):
            self.tally.add(present, present)
        else:
            self.tally.add(present, scope.save(state, keep=False, **options))


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
            value = None if stored is None else json_of(stored)
            if not isinstance(value, dict):
                raise Corrupt(f"the file is not a JSON object. key=`{key}`")
            yield value


# Exporting


class _SessionExport:
    """One export. `indent` formats JSON as the SDK for TypeScript does in the classic layout."""

    def __init__(self, files: Bucket, root: str, *, indent: bool) -> None:
        self._files = files
        self._root = root
        self._form: dict[str, Any] = {"indent": 2} if indent else {"separators": (",", ":")}
        self._tally = Tally()

    def run(self, origin: Store, prefix: str) -> Transfer:
        for info in origin.scopes(prefix=prefix):
            if info.key.kind in SCOPES:
                self._export(origin.scope(*info.key))
        return self._tally.result()

    def _export(self, scope: Scope) -> None:
        # One at a time, so that damage to one does not hide the others; last the latest.
        for id in chain(scope.ids(), (None,)):
            with self._tally.skipping("refused", Corrupt, InvalidInput, scope=scope.key, id=id):
                found = scope.load(id)
                if found is not None and not is_gone(found):
                    self._write(scope.key, id, wire_of(found))
                    self._tally.count += 1
        if is_identifier(scope.session_id) and is_identifier(scope.scope_id):
            with self._tally.skipping("refused", Corrupt, scope=scope.key):
                note = scope.note(MANIFEST)
                if note is not None:
                    self._put(scope.key, documents.MANIFEST, note.value, self._form)

    def _write(self, scope: ScopeKey, id: str | None, wire: Wire) -> None:
        is_python = dialect_of(wire) == "python"
        for name in (scope.session_id, scope.scope_id, *([] if id is None else [id])):
            is_file = is_python and is_file_name(name, bytes_max=_NAME_BYTES_MAX)
            if not is_file and not is_identifier(name):
                raise InvalidInput(f"the SDK would refuse this name. name=`{shown(name)}`")
        self._put(scope, documents.document_name(id), wire, {} if is_python else self._form)

    def _put(self, scope: ScopeKey, name: str, value: JSON, form: dict[str, Any]) -> None:
        data = json.dumps(value, ensure_ascii=False, **form).encode()
        self._files.put(f"{self._root}{documents.folder_key(*scope)}{name}", data, expect=ANY)
