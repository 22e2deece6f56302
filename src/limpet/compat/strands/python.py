"""The `Storage` of the Strands SDK for Python (bytes under keys) over any engine::

    from limpet.compat.strands.python import ByteStorage

    store = limpet.open("postgresql://…")
    sessions = SnapshotSessionManager("chat-42", storage=ByteStorage(store))
    agent = Agent(session_manager=sessions)

| key                                                             | Limpet                       |
|-----------------------------------------------------------------|--------------------------------|
| `session/<sid>/scopes/<kind>/<id>/snapshots/snapshot_latest.json` | the head, with `keep=False`  |
| `…/snapshots/immutable_history/snapshot_<id>.json`              | kept, with `head=False`        |
| any other below `session/<sid>/` or `context/<sid>/`            | kind `file` in session `<sid>` |
| any other                                                       | kind `file` in `strands`       |

The state of a snapshot is its `data`; what stands around it is `metadata["strands"]`; how its JSON
was laid out is `metadata["form"]`. So histories, forks, diffs and watches work on what agents save,
and `store.delete_session` takes along what belongs to a session.

`read` gives back the bytes that were written, except that snapshots are always in the words of the
SDK for Python, whoever wrote them: an agent in Python goes on where one in TypeScript stopped. With
`dialect="typescript"` snapshots are also stored in those words, for agents in TypeScript to go on
with; see `payloads` for what that means.
"""

import base64
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

from limpet.api.scope import Scope
from limpet.api.store import AsyncStore, Store
from limpet.compat.strands.dialects.payloads import Dialect, dialect_of, to_python, to_typescript
from limpet.compat.strands.records import SCHEMA_VERSION, SCOPES
from limpet.compat.strands.storage import FORM, GONE, moment_of, parent_in
from limpet.core.document import FACADE
from limpet.errors import Conflict, InvalidInput, LimpetError, Unsupported
from limpet.model import JSON, ScopeKey, Snapshot, SnapshotInfo

FILE: Final = "file"  # the kind of what is no snapshot
HOME: Final = "strands"  # the session of what belongs to none

_SNAPSHOT = re.compile(
    rf"session/([^/]+)/scopes/({'|'.join(SCOPES)})/([^/]+)/snapshots/"
    r"(?:snapshot_latest|immutable_history/snapshot_([^/]+))\.json"
)
_OWNED = ("session", "context")
_APP_DATA = ("app_data", "appData")

# How JSON is laid out by the SDK for Python, by JavaScript, and by JavaScript for people to read.
_FORMS: dict[str, dict[str, Any]] = {
    "python": {},
    "compact": {"separators": (",", ":")},
    "indented": {"indent": 2},
}
_TEXT, _BASE64 = "text", "base64"  # what is no such JSON


class _Place(NamedTuple):
    """Where a key leads: a scope, and an id if it is one of history."""

    scope: ScopeKey
    id: str | None = None


class ByteStorage:
    """The `Storage` protocol of Strands over an opened store, in either face.

    Close the store yourself. A write is durable when it returns and takes the place of what was
    there. Errors are those of Limpet, and `StorageError` of Strands as well.
    """

    def __init__(self, store: Store | AsyncStore, *, dialect: Dialect = "python") -> None:
        if not isinstance(store, Store | AsyncStore):
            raise InvalidInput(f"a storage needs a store. type=`{type(store).__name__}`")
        if dialect not in ("python", "typescript"):
            raise InvalidInput(f"a dialect is python or typescript. dialect=`{dialect!a}`")
        self._store = store.aio
        self._dialect: Dialect = dialect

    async def write(self, key: str, data: bytes) -> None:
        """Store bytes under a key.

        Raises:
            InvalidInput: the key is empty or has more than 512 characters, or there are too many
                bytes.
        """
        with _told_to_strands():
            if not isinstance(data, bytes):
                raise InvalidInput(f"only bytes are stored. type=`{type(data).__name__}`")
            place, dialect = _place_of(key), self._dialect
            await self._store.run(lambda store: _write(store, place, data, dialect))

    async def read(self, key: str) -> bytes | None:
        """Return the bytes under a key, None if there are none.

        Raises:
            Unsupported: it is the snapshot of a graph or swarm that an agent in TypeScript has left
                in the middle of its run.
        """
        with _told_to_strands():
            place = _place_of(key)
            return await self._store.run(lambda store: _read(store, place))

    async def delete(self, key: str) -> None:
        """Delete what is under a key. Nothing happens if there is nothing."""
        with _told_to_strands():
            place = _place_of(key)
            await self._store.run(lambda store: _delete(store, place))

    async def list(self, query: str) -> list[str]:
        """Return the keys that begin with a text, all of them if it is empty, in order."""
        with _told_to_strands():
            if not isinstance(query, str):
                raise InvalidInput(f"keys begin with a text. type=`{type(query).__name__}`")
            return await self._store.run(lambda store: sorted(_keys(store, query)))

    async def search(self, query: str) -> Any:
        """Return what matches words, the best first, as the storages of Strands do.

        It reads everything there is.
        """
        from strands.storage.search import KeywordSearchStrategy

        return await KeywordSearchStrategy().search(self, query)


def _place_of(key: object) -> _Place:
    if not isinstance(key, str) or not key:
        raise InvalidInput(f"a key must be text, and not empty. type=`{type(key).__name__}`")
    found = _SNAPSHOT.fullmatch(key)
    if found is not None:
        session_id, kind, scope_id, id = found.groups()
        return _Place(ScopeKey(session_id, scope_id, kind), id)
    owner, _, rest = key.partition("/")
    session_id, slash, _ = rest.partition("/")
    owned = owner in _OWNED and session_id and slash
    return _Place(ScopeKey(session_id if owned else HOME, key, FILE))


class _Told(NamedTuple):
    """Bytes as a state and what stands around it; `plain` is how they are kept if that cannot be.

    Only JSON of the known forms is taken apart, and only if it comes back byte for byte.
    """

    state: JSON
    form: str
    envelope: dict[str, JSON] | None = None
    plain: "_Told | None" = None


def _plain(data: bytes) -> _Told:
    try:
        return _Told(data.decode(), _TEXT)
    except UnicodeDecodeError:
        return _Told(base64.b64encode(data).decode(), _BASE64)


def _told(data: bytes, dialect: Dialect) -> _Told:
    plain = _plain(data)
    try:
        document = json.loads(data, parse_constant=_refuse)
        is_snapshot = dialect_of(document) is not None and isinstance(document.get("data"), dict)
        if not is_snapshot:
            return plain
        form = next(name for name in _FORMS if _laid_out(_whole(document), name) == data)
    except (ValueError, RecursionError, StopIteration):
        return plain
    if dialect == "typescript" and dialect_of(document) == "python":
        document = _in_typescript(document)
    return _Told(document.pop("data"), form, document, plain)


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _in_typescript(document: dict[str, JSON]) -> dict[str, JSON]:
    try:
        return to_typescript(document)
    except (Unsupported, InvalidInput):
        return document  # the run of a graph must not fail for it: Python alone goes on with it


def _whole(document: dict[str, JSON]) -> dict[str, JSON]:
    """Return a document with its data where both SDKs have it: before what the caller added."""
    rest = {name: value for name, value in document.items() if name != "data"}
    names = [*rest]
    at = next((names.index(name) for name in _APP_DATA if name in rest), len(names))
    names.insert(at, "data")
    return {name: document[name] for name in names}


def _laid_out(document: dict[str, JSON], form: str) -> bytes:
    return json.dumps(document, ensure_ascii=False, **_FORMS[form]).encode()


def _write(store: Store, place: _Place, data: bytes, dialect: Dialect) -> None:
    told = _plain(data) if place.scope.kind == FILE else _told(data, dialect)
    scope = store.scope(*place.scope)
    try:
        _save(scope, place.id, told)
    except InvalidInput:
        if told.plain is None:
            raise
        _save(scope, place.id, told.plain)  # too deep for a state, say


def _save(scope: Scope, id: str | None, told: _Told) -> None:
    parent = parent_in(scope.driver.opened)
    facts: dict[str, Any] = {"metadata": {FORM: told.form}, "parent": parent}
    if told.envelope is not None:
        facts["metadata"][FACADE] = told.envelope
        facts["created_at"] = moment_of(told.envelope)
    if id is None:
        scope.save(told.state, keep=False, **facts)
    else:
        scope.save(told.state, id=id, head=False, overwrite=True, **facts)


def _read(store: Store, place: _Place) -> bytes | None:
    found = store.scope(*place.scope).load(place.id)
    if found is None or not _is_there(found, place.id):
        return None
    form = found.metadata.get(FORM)
    if isinstance(found.state, str) and form == _TEXT:
        return found.state.encode()
    if isinstance(found.state, str) and form == _BASE64:
        return base64.b64decode(found.state)
    document = _document(found)
    if dialect_of(document) != "python":
        document = to_python(document)
    return _laid_out(_whole(document), form if form in _FORMS else "python")


def _is_there(found: SnapshotInfo, id: str | None) -> bool:
    """Tell whether a snapshot is what a key of history means, or the latest."""
    return found.metadata.get(FORM) != GONE if id is None else found.kept


def _document(found: Snapshot) -> dict[str, JSON]:
    """Return a stored snapshot as it was given, or with defaults if others wrote it."""
    envelope = found.metadata.get(FACADE)
    if isinstance(envelope, dict) and dialect_of(envelope) is not None:
        return {**envelope, "data": found.state}
    # Whose words the state is in is not known: those of Python are left as they are.
    default = {"scope": found.scope.kind, "schema_version": SCHEMA_VERSION}
    created = found.created_at.isoformat().replace("+00:00", "Z")
    told = to_python({"data": found.state})
    return {**default, "created_at": created, "data": told["data"], "app_data": {}}


def _delete(store: Store, place: _Place) -> None:
    scope = store.scope(*place.scope)
    if place.scope.kind == FILE:
        scope.delete()
    elif place.id is None:
        head = scope.info()
        if head is None or head.metadata.get(FORM) == GONE:
            return
        if any(scope.ids(limit=1)):
            with suppress(Conflict):  # somebody has written meanwhile, after the deletion
                scope.save({}, keep=False, metadata={FORM: GONE}, expect=head.revision)
        else:
            scope.delete_snapshot(head.id)
        _clear(scope)
    else:
        found = scope.info(place.id)
        if found is not None and found.kept:
            scope.delete_snapshot(place.id)
        _clear(scope)


def _clear(scope: Scope) -> None:
    """Delete a mark that is alone. Whoever deletes something looks, so the last one sees it."""
    head = scope.info()
    if head is not None and head.metadata.get(FORM) == GONE and not any(scope.ids(limit=1)):
        scope.delete_snapshot(head.id)


def _keys(store: Store, query: str) -> Iterator[str]:
    """Walk the keys that begin with a text; no state is read."""
    for key, head in _scopes(store, query):
        if key.kind == FILE:
            named = head is not None and _place_of(key.scope_id).scope == key
            if named and key.scope_id.startswith(query):
                yield key.scope_id
            continue
        start = f"session/{key.session_id}/scopes/{key.kind}/{key.scope_id}/snapshots/"
        # Others may use names that no key can have.
        if not _may_meet(start, query) or _place_of(f"{start}snapshot_latest.json").scope != key:
            continue
        latest, history = f"{start}snapshot_latest.json", f"{start}immutable_history/snapshot_"
        if latest.startswith(query) and head is not None and _is_there(head, None):
            yield latest
        if _may_meet(history, query):
            keys = (f"{history}{id}.json" for id in store.scope(*key).ids() if "/" not in id)
            yield from (each for each in keys if each.startswith(query))


def _may_meet(start: str, query: str) -> bool:
    return start.startswith(query) or query.startswith(start)


def _scopes(store: Store, query: str) -> Iterator[tuple[ScopeKey, SnapshotInfo | None]]:
    """Walk the scopes in which a key may stand that begins with a text."""
    owner, below, rest = query.partition("/")
    session_id, slash, _ = rest.partition("/")
    if owner in _OWNED and below and slash and session_id:
        walks = [store.scopes(session_id, kind=FILE if owner == "context" else None)]
    elif owner in _OWNED and below:
        walks = [store.scopes(prefix=session_id), store.scopes(HOME, kind=FILE)]
    elif not below and any(each.startswith(owner) for each in _OWNED):
        walks = [store.scopes()]
    else:
        walks = [store.scopes(HOME, kind=FILE)]
    seen: set[ScopeKey] = set()
    for walk in walks:
        for info in walk:
            if info.key.kind in (*SCOPES, FILE) and info.key not in seen:
                seen.add(info.key)
                yield info.key, info.head


@contextmanager
def _told_to_strands() -> Iterator[None]:
    """Let what Strands catches be what we raise; whoever has no Strands gets our own error."""
    try:
        yield
    except LimpetError as error:
        theirs = sys.modules.get("strands.types.exceptions")
        if theirs is not None and not isinstance(error, theirs.StorageError):
            error.__class__ = _both(type(error), theirs.StorageError)
        raise


def _both(ours: type[LimpetError], theirs: type[Exception]) -> type[LimpetError]:
    return type(ours.__name__, (ours, theirs), {"__module__": ours.__module__})
