"""Sessions from the files of the Strands tools, and back into such files.

Synchronous, for either face of a store; from async code `await store.run(lambda store: …)`. What is
there already is replaced, so that both may be repeated. What cannot be carried over is told, and
does not stop the rest.

| layout     | files below the folder or prefix                    | written by                   |
|------------|-----------------------------------------------------|------------------------------|
| `classic`  | `<session>/scopes/<scope>/<id>/snapshots/…`         | TypeScript's SnapshotStorage |
| `unified`  | `session/<session>/scopes/<scope>/<id>/snapshots/…` | both SDKs' Storage           |
| `messages` | `session_<session>/agents/agent_<id>/messages/…`    | Python's older managers      |
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, groupby
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from limpet.api.scope import Scope
from limpet.api.store import Store
from limpet.backends.objects.documents import walk
from limpet.compat.strands.records import SCOPES
from limpet.compat.strands.storage import MANIFEST, is_gone, moment_of, wire_of
from limpet.core import codec, document
from limpet.core.layout import Layout
from limpet.errors import Corrupt, InvalidInput, LimpetError
from limpet.model import JSON, Finding, ScopeKey, Snapshot

if TYPE_CHECKING:
    from limpet.backends.buckets import Bucket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from limpet.backends.buckets import Bucket
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from limpet.compat.strands.dialects.payloads import dialect_of
from limpet.compat.strands.records import is_identifier
from limpet.compat.wire import Transfer, shown
from limpet.core.document import FACADE
from limpet.errors import Unsupported
from limpet.model import ANY

if TYPE_CHECKING:
    from limpet.backends.buckets import Bucket
import os
from typing import Literal

from limpet import opening
from limpet.api.store import AsyncStore
from limpet.compat.strands.dialects.payloads import to_python, to_typescript
from limpet.compat.wire import address_of
from limpet.errors import NotFound

# What an import brings: snapshots and notes, from wherever they are, or what is wrong with one.

_SESSION_KEY = re.compile(
    r"(?P<session>[^/]+)/scopes/(?P<kind>[^/]+)/(?P<scope>[^/]+)/snapshots/"
    r"(?:(?P<latest>snapshot_latest)|(?P<manifest>manifest)"
    r"|immutable_history/snapshot_(?P<id>[^/]+))\.json"
)


@dataclass(frozen=True)
class Item:
    """A snapshot to be saved: in history under its id, or without one as the latest."""

    scope: ScopeKey
    id: str | None
    wire: dict[str, JSON]
    created_at: datetime | None
    parent: str | None = None
    is_head: bool = False
    status: str = "completed"
    labels: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, JSON] = field(default_factory=dict)


class Beside(NamedTuple):
    """A note of a scope."""

    scope: ScopeKey
    name: str
    value: JSON


Source: TypeAlias = Iterator[Item | Beside | Finding]


def lines(store: Store, prefix: str) -> Iterator[Scope]:
    """Yield the scopes that Strands has a place for."""
    for info in store.scopes(prefix=prefix):
        if info.key.kind in SCOPES:
            yield store.scope(*info.key)


def snapshots(scope: Scope) -> Iterator[tuple[str | None, Snapshot | Corrupt]]:
    """Yield what is in history, in the order of the ids, and last, without an id, the latest.

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


def refusal(code: str, cause: object, scope: ScopeKey, id: str | None = None) -> Finding:
    """Return what is told of something that cannot be carried over."""
    return Finding("error", code, str(cause), scope, id)


def stored(origin: Store, prefix: str) -> Source:
    """Yield what a store over the files sees."""
    # Asked for all, since a damaged file that is small enough is not even listed.
    for finding in origin.check():
        if finding.severity == "error" and _is_below(finding.scope, prefix):
            yield finding
    for scope in lines(origin, prefix):
        yield from _line(scope)
        for note in scope.notes():
            yield Beside(scope.key, note.name, note.value)


def _is_below(scope: ScopeKey | None, prefix: str) -> bool:
    if scope is None:
        return not prefix
    return scope.kind in SCOPES and scope.session_id.startswith(prefix)


def _line(scope: Scope) -> Iterator[Item]:
    bare = all(info.parent_id is None for info in scope.history())
    shown, before = _shown(scope), None
    for id, found in snapshots(scope):
        if isinstance(found, Corrupt):
            continue  # told already
        if id is None and found.kept:
            continue  # it came in its place
        yield Item(
            scope.key,
            id,
            wire_of(found),
            found.created_at,
            parent=before if bare else found.parent_id,
            is_head=id is not None and id == shown,
            status=found.status,
            labels=found.labels,
            metadata=found.metadata,
        )
        before = id


def _shown(scope: Scope) -> str | None:
    """Return the id of the head, unless it is damaged, which is told elsewhere."""
    try:
        info = scope.info()
    except Corrupt:
        return None
    return None if info is None else info.id


def strange(files: "Bucket", root: str, prefix: str) -> Source:
    """Yield what the SDKs wrote under names that are not those of our own files.

    The one for Python takes nearly any name for a session or an agent, and writes it as it is.
    """
    layout = Layout(root)
    keys = (each.key for each in walk(files, f"{root}{prefix}"))
    places = (_SESSION_KEY.fullmatch(key, len(root)) for key in keys if layout.parse(key) is None)
    for scope, group in groupby(filter(None, places), key=_scope_of_session_key):
        before: str | None = None
        for place in group:
            try:
                yield _read_documents(files, scope, place, before)
            except LimpetError as cause:
                yield refusal("corrupt", cause, scope, place["id"])
            before = place["id"] or before


def _scope_of_session_key(place: re.Match[str]) -> ScopeKey:
    return ScopeKey(place["session"], place["scope"], place["kind"])


def _read_documents(
    files: "Bucket", scope: ScopeKey, place: re.Match[str], before: str | None
) -> Item | Beside:
    (stored,) = files.get([place.string])
    if scope.kind not in SCOPES:
        raise InvalidInput(f"a scope is agent or multiAgent. key=`{place.string!a}`")
    if stored is None:
        raise Corrupt(f"the file is gone. key=`{place.string!a}`")
    if place["manifest"]:
        return Beside(scope, MANIFEST, codec.decode(b" " + stored.data))
    found = document.read(stored.data)
    if found.header is not None:
        raise Corrupt(f"a document stands in the place of another. key=`{place.string!a}`")
    wire = {**found.envelope, "data": codec.decode(found.body)}
    return Item(scope, place["id"], wire, moment_of(found.envelope), parent=before)


# The message logs of the older Python session managers, read as snapshots.
#
# They keep one file for each message and one for the agent::
#
#     session_<session>/agents/agent_<agent>/agent.json
#     session_<session>/agents/agent_<agent>/messages/message_<n>.json
#     session_<session>/multi_agents/multi_agent_<id>/multi_agent.json
#
# What comes of an agent is what its own manager would restore: the messages from the first that its
# conversation manager has not removed on, the redacted ones as they were redacted. The removed ones
# stay in `app_data`, under `removed_messages`.

_PAGE_FILES = 64  # read at a time
_MESSAGE_KEY = re.compile(
    r"session_(?P<session>[^/]+)/"
    r"(?:agents/agent_(?P<agent>[^/]+)/(?:agent|messages/message_(?P<number>\d{1,18}))"
    r"|multi_agents/multi_agent_(?P<several>[^/]+)/multi_agent)\.json"
)


def read(files: "Bucket", prefix: str) -> Source:
    """Yield each agent of each session as a Python snapshot, or what is wrong with its files."""
    keys = (each.key for each in walk(files, f"session_{prefix}"))
    places = (found for found in map(_MESSAGE_KEY.fullmatch, keys) if found)
    for scope, group in groupby(places, key=_scope_of_message_key):
        try:
            wire = _snapshot(files, scope, list(group))
            yield Item(scope, None, wire, moment_of(wire))
        except LimpetError as cause:
            yield refusal("corrupt", cause, scope)


def _scope_of_message_key(place: re.Match[str]) -> ScopeKey:
    if place["several"] is not None:
        return ScopeKey(place["session"], place["several"], "multiAgent")
    return ScopeKey(place["session"], place["agent"], "agent")


def _snapshot(files: "Bucket", scope: ScopeKey, places: list[re.Match[str]]) -> dict[str, JSON]:
    numbered = {int(each["number"]): each[0] for each in places if each["number"] is not None}
    whole = next((each[0] for each in places if each["number"] is None), None)
    if whole is None:
        raise Corrupt(f"messages without an agent. session_id=`{scope.session_id}`")
    record = next(_read_messages(files, [whole]))
    if scope.kind == "multiAgent":
        data: dict[str, JSON] = {"orchestrator_id": scope.scope_id, "state": record}
        return _document(scope, record, data, {})
    log = list(_read_messages(files, [numbered[number] for number in sorted(numbered)]))
    said = [each.get("redact_message") or each.get("message") for each in log]
    managed, inner = (
        _object(record, "conversation_manager_state"),
        _object(record, "_internal_state"),
    )
    removed = managed.get("removed_message_count")
    first = removed if isinstance(removed, int) else 0
    data = {
        "messages": said[first:],
        "state": _object(record, "state"),
        "conversation_manager_state": managed,
        **{name: inner[name] for name in ("interrupt_state", "model_state") if name in inner},
    }
    return _document(scope, record, data, {"removed_messages": said[:first]} if first else {})


def _document(
    scope: ScopeKey, record: Mapping[str, Any], data: dict[str, JSON], app_data: dict[str, JSON]
) -> dict[str, JSON]:
    created = record.get("updated_at") or record.get("created_at") or "1970-01-01T00:00:00Z"
    return {
        "scope": scope.kind,
        "schema_version": "1.0",
        "created_at": created,
        "data": data,
        "app_data": app_data,
    }


def _object(record: Mapping[str, Any], name: str) -> dict[str, JSON]:
    value = record.get(name)
    return value if isinstance(value, dict) else {}


def _read_messages(files: "Bucket", keys: list[str]) -> Iterator[dict[str, Any]]:
    for at in range(0, len(keys), _PAGE_FILES):
        page = keys[at : at + _PAGE_FILES]
        for key, stored in zip(page, files.get(page), strict=True):
            # A space before it lets integers of any length be read as they are.
            value = None if stored is None else codec.decode(b" " + stored.data)
            if not isinstance(value, dict):
                raise Corrupt(f"the file is no JSON object. key=`{key}`")
            yield value


# Brings what a source yields into a store.


class Import:
    """One import: from several sources, if there are."""

    def __init__(
        self, target: Store, convert: Callable[[dict[str, JSON]], dict[str, JSON]]
    ) -> None:
        self._target = target
        self._convert = convert
        self._count = 0
        self._skipped: list[Finding] = []

    def take(self, source: Source) -> Transfer:
        """Save what can be saved, and return what came of all of it so far."""
        for found in source:
            if isinstance(found, Finding):
                self._skipped.append(found)
                continue
            try:
                self._save(found)
            except (InvalidInput, Unsupported, Corrupt) as cause:
                id = found.id if isinstance(found, Item) else None
                self._skipped.append(refusal("refused", cause, found.scope, id))
        return Transfer(self._count, tuple(self._skipped))

    def _save(self, found: Item | Beside) -> None:
        scope = self._target.scope(*found.scope)
        if isinstance(found, Beside):
            scope.set_note(found.name, found.value)
            return
        envelope = self._convert(found.wire)
        state = envelope.pop("data")
        facts: dict[str, Any] = {
            "metadata": {**found.metadata, FACADE: envelope},
            "created_at": found.created_at,
            "parent": found.parent,
            "status": found.status,
            "labels": found.labels,
        }
        if found.id is not None:
            scope.save(state, id=found.id, head=found.is_head, overwrite=True, **facts)
        else:
            present = scope.load()
            # So that to repeat it moves nothing.
            if not present or (present.state, present.metadata) != (state, facts["metadata"]):
                scope.save(state, keep=False, **facts)
        self._count += 1


# Writes the snapshots of a store as the files of the Strands tools.

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


LayoutName: TypeAlias = Literal["classic", "unified", "messages"]
Payload: TypeAlias = Literal["typescript", "python"]

_ROOTS = {"classic": "", "unified": "session/"}
_Converter: TypeAlias = Callable[[dict[str, JSON]], dict[str, JSON]]
_CONVERTERS: Mapping[str, _Converter] = {"python": to_python, "typescript": to_typescript}


def import_sessions(
    store: Store | AsyncStore,
    source: str | os.PathLike[str],
    *,
    layout: LayoutName = "classic",
    payload: Payload | None = None,
    prefix: str = "",
    **options: Any,
) -> Transfer:
    """Bring the sessions whose names begin with `prefix` into a store; count the snapshots.

    `source` is a folder, or the URL of a bucket with its options. With `payload` the snapshots are
    turned into those of one SDK; otherwise they are kept as they are. History comes in the order of
    the ids; if none of it has a parent, each follows the one before it.

    Raises:
        InvalidInput: the source, the layout or the payload is not understood.
        NotFound: there is no such folder.
    """
    root, convert = _root(layout, ("messages",)), _converter(payload)
    target = _sync(store)
    url, folder = _address(source, options)
    folder = folder or opening.file_of(url)
    if folder is not None and not os.path.isdir(folder):
        raise NotFound(f"there is no such folder. path=`{folder}`")
    files = opening.open_files(url, **options)
    try:
        importer = Import(target, convert)
        if layout == "messages":
            return importer.take(read(files, prefix))
        with opening.open(url, root=root, **options) as origin:
            importer.take(stored(origin, prefix))
        return importer.take(strange(files, root, prefix))
    finally:
        files.close()


def find_layout(source: str | os.PathLike[str], **options: Any) -> LayoutName:
    """Look at a folder or bucket and tell in which layout its sessions are; `classic` if in none.

    Raises:
        InvalidInput: the source is not understood.
    """
    url, _ = _address(source, options)
    files = opening.open_files(url, **options)
    try:
        # A session of the classic layout may be called `session`, or begin so.
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
    """Write the sessions whose names begin with `prefix` as files of the Strands tools.

    They are the very files that the SDKs write, with nothing of ours in them. Sessions, scopes and
    snapshots whose names the SDK of the payload would refuse are left out, and told.

    Raises:
        InvalidInput: the target, the layout or the payload is not understood, or is `messages`.
    """
    root, convert = _root(layout), _converter(payload)
    origin = _sync(store)
    url, _ = _address(to, options)
    files = opening.open_files(url, **options)
    try:
        return Export(files, root, convert, indent=layout == "classic").sessions(origin, prefix)
    finally:
        files.close()


def _sync(store: object) -> Store:
    if not isinstance(store, Store | AsyncStore):
        raise InvalidInput(f"sessions need a store. type=`{type(store).__name__}`")
    return store.sync


def _address(place: object, options: Mapping[str, Any]) -> tuple[str, str | None]:
    if "root" in options:
        raise InvalidInput("the layout says where sessions are: there is no root")
    return address_of(place)


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
