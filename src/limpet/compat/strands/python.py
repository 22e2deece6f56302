"""The `Storage` of the Strands SDK for Python (bytes under keys) over any engine::

    from limpet.compat.strands.python import ByteStorage

    store = limpet.open("postgresql://…")
    sessions = SnapshotSessionManager("chat-42", storage=ByteStorage(store))
    agent = Agent(session_manager=sessions)

`docs/guides/strands_python.md` lists where each key is stored. History, forks, diffs and watches
work on what agents save, and `store.delete_session` deletes everything of a session.

`read` returns the written bytes, except that snapshots are always those of the SDK for Python,
whichever SDK wrote them: an agent in Python continues where one in TypeScript stopped. See
`dialects` for the details.
"""

import base64
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

from limpet import AsyncStore, Scope, Store
from limpet.compat.json_files import load_strict
from limpet.compat.strands.dialects import dialect_of, to_python
from limpet.compat.strands.documents import HISTORY, document_name, folder_key
from limpet.compat.strands.records import FACADE, SCHEMA_VERSION, SCOPES
from limpet.compat.strands.store import FORM, GONE, Lines, is_gone, save_options
from limpet.compat.wire import check_store, require
from limpet.errors import Conflict, InvalidInput, LimpetError
from limpet.model import JSON, ScopeKey, Snapshot, SnapshotInfo

FILE: Final = "file"  # the kind of bytes that are not a snapshot
HOME: Final = "strands"  # the session of keys that belong to none

_SNAPSHOT = re.compile(
    rf"session/([^/]+)/scopes/({'|'.join(SCOPES)})/([^/]+)/snapshots/"
    r"(?:snapshot_latest|immutable_history/snapshot_([^/]+))\.json"
)
_OWNED = ("session", "context")
_APP_DATA = ("app_data", "appData")

# The formats of JSON that the SDKs write.
_FORMS: dict[str, dict[str, Any]] = {
    "python": {},
    "compact": {"separators": (",", ":")},
    "indented": {"indent": 2},
}
_TEXT, _BASE64 = "text", "base64"  # the forms of other bytes


class _KeyAddress(NamedTuple):
    scope: ScopeKey
    id: str | None = None


class ByteStorage:
    """The `Storage` protocol of Strands in an opened store, sync or async.

    The caller closes the store. A write is durable when it returns, and replaces earlier bytes. If
    Strands is imported, the errors are also its `StorageError`.
    """

    def __init__(self, store: Store | AsyncStore) -> None:
        self._store = check_store(store).aio

    async def write(self, key: str, data: bytes) -> None:
        """Store bytes under a key.

        Raises:
            InvalidInput: the key is empty or has more than 512 characters, or there are too many
                bytes.
        """
        with _storage_errors():
            require(isinstance(data, bytes), "data must be bytes", data)
            address = _address_of(key)
            await self._store.run(lambda store: _write(store, address, data))

    async def read(self, key: str) -> bytes | None:
        """Return the bytes under a key, None if there are none.

        Raises:
            Unsupported: it is the snapshot of a graph or swarm of the SDK for TypeScript that has
                not finished its run.
        """
        with _storage_errors():
            address = _address_of(key)
            return await self._store.run(lambda store: _read(store, address))

    async def delete(self, key: str) -> None:
        """Delete a key. Idempotent."""
        with _storage_errors():
            address = _address_of(key)
            await self._store.run(lambda store: _delete(store, address))

    async def list(self, query: str) -> list[str]:
        """Return the keys that begin with `query`, sorted."""
        with _storage_errors():
            require(isinstance(query, str), "query must be text", query)
            return await self._store.run(lambda store: sorted(_keys(store, query)))

    async def search(self, query: str) -> Any:
        """Return the best matches of some words, as the storages of Strands do.

        It reads all keys and their bytes.
        """
        from strands.storage.search import KeywordSearchStrategy

        return await KeywordSearchStrategy().search(self, query)


def _address_of(key: object) -> _KeyAddress:
    if not isinstance(key, str) or not key:
        raise InvalidInput(f"a key must be text, and not empty. type=`{type(key).__name__}`")
    found = _SNAPSHOT.fullmatch(key)
    if found is not None:
        session_id, kind, scope_id, id = found.groups()
        return _KeyAddress(ScopeKey(session_id, scope_id, kind), id)
    owner, _, rest = key.partition("/")
    session_id, slash, _ = rest.partition("/")
    owned = owner in _OWNED and session_id and slash
    return _KeyAddress(ScopeKey(session_id if owned else HOME, key, FILE))


class _Parsed(NamedTuple):
    """Bytes as a state and its envelope; `plain` is the fallback if that cannot be saved.

    Only JSON in a known format is parsed, and only if it can be written back byte for byte.
    """

    state: JSON
    form: str
    envelope: dict[str, JSON] | None = None
    plain: "_Parsed | None" = None


def _plain(data: bytes) -> _Parsed:
    try:
        return _Parsed(data.decode(), _TEXT)
    except UnicodeDecodeError:
        return _Parsed(base64.b64encode(data).decode(), _BASE64)


def _parse(data: bytes) -> _Parsed:
    plain = _plain(data)
    try:
        document = load_strict(data)
        is_snapshot = dialect_of(document) is not None and isinstance(document.get("data"), dict)
        if not is_snapshot:
            return plain
        form = next(name for name in _FORMS if _format(document, name) == data)
    except (ValueError, RecursionError, StopIteration):
        return plain
    return _Parsed(document.pop("data"), form, document, plain)


def _format(document: dict[str, JSON], form: str) -> bytes:
    """Return JSON with `data` where both SDKs have it: before the app data."""
    names = [name for name in document if name != "data"]
    at = next((names.index(name) for name in _APP_DATA if name in names), len(names))
    names.insert(at, "data")
    ordered = {name: document[name] for name in names}
    return json.dumps(ordered, ensure_ascii=False, **_FORMS[form]).encode()


def _write(store: Store, address: _KeyAddress, data: bytes) -> None:
    parsed = _plain(data) if address.scope.kind == FILE else _parse(data)
    scope, lines = store.scope(*address.scope), store.driver.opened.service(Lines)
    try:
        _save(scope, address.id, parsed, lines)
    except InvalidInput:
        if parsed.plain is None:
            raise
        # For example nested too deep for a state.
        _save(scope, address.id, parsed.plain, lines)


def _save(scope: Scope, id: str | None, parsed: _Parsed, lines: Lines) -> None:
    options: dict[str, Any] = {"metadata": {FORM: parsed.form}}
    if parsed.envelope is not None:
        options = save_options(parsed.envelope, **options["metadata"])
    if id is None:
        scope.save(parsed.state, keep=False, parent=lines.parent(scope.key), **options)
    else:
        scope.save(parsed.state, id=id, head=False, overwrite=True, **options)
        lines.kept(scope.key, id)


def _read(store: Store, address: _KeyAddress) -> bytes | None:
    found = store.scope(*address.scope).load(address.id)
    if found is None or not _exists(found, address.id):
        return None
    form = found.metadata.get(FORM)
    if isinstance(found.state, str) and form == _TEXT:
        return found.state.encode()
    if isinstance(found.state, str) and form == _BASE64:
        return base64.b64decode(found.state)
    document = _document(found)
    if dialect_of(document) != "python":
        document = to_python(document)
    return _format(document, form if form in _FORMS else "python")


def _document(found: Snapshot) -> dict[str, JSON]:
    """Return a stored snapshot; fields that another program did not write have defaults."""
    envelope = found.metadata.get(FACADE)
    if isinstance(envelope, dict) and dialect_of(envelope) is not None:
        return {**envelope, "data": found.state}
    # The dialect is unknown: what is in Python's is left as it is.
    default = {"scope": found.scope.kind, "schema_version": SCHEMA_VERSION}
    created = found.created_at.isoformat().replace("+00:00", "Z")
    data = to_python({"data": found.state})["data"]
    return {**default, "created_at": created, "data": data, "app_data": {}}


def _exists(found: SnapshotInfo, id: str | None) -> bool:
    """Return whether it is in history; without an id, whether it is a latest not marked deleted."""
    return not is_gone(found) if id is None else found.kept


def _delete(store: Store, address: _KeyAddress) -> None:
    scope, id = store.scope(*address.scope), address.id
    if address.scope.kind == FILE:
        scope.delete()
        return
    found = scope.info(id)
    if found is not None and _exists(found, id):
        if id is None and any(scope.ids(limit=1)):
            with suppress(Conflict):  # another writer saved a new latest
                scope.save({}, keep=False, metadata={FORM: GONE}, expect=found.revision)
        else:
            scope.delete_snapshot(found.id)
    _clear(scope)


def _clear(scope: Scope) -> None:
    """Delete a GONE head without history. Every deletion checks, so the last one finds it."""
    head = scope.info()
    if head is not None and is_gone(head) and not any(scope.ids(limit=1)):
        scope.delete_snapshot(head.id)


def _keys(store: Store, query: str) -> Iterator[str]:
    """Yield the keys that begin with `query`; no state is read."""
    for key, head in _scopes(store, query):
        if key.kind == FILE:
            named = head is not None and _address_of(key.scope_id).scope == key
            if named and key.scope_id.startswith(query):
                yield key.scope_id
            continue
        start = f"session/{folder_key(*key)}"
        latest, history = start + document_name(None), start + HISTORY
        # Other programs may use names that cannot be part of a key.
        if not _overlap(start, query) or _address_of(latest).scope != key:
            continue
        if latest.startswith(query) and head is not None and not is_gone(head):
            yield latest
        if _overlap(history, query):
            ids = (id for id in store.scope(*key).ids() if "/" not in id)
            keys = (start + document_name(id) for id in ids)
            yield from (each for each in keys if each.startswith(query))


def _overlap(start: str, query: str) -> bool:
    return start.startswith(query) or query.startswith(start)


def _scopes(store: Store, query: str) -> Iterator[tuple[ScopeKey, SnapshotInfo | None]]:
    """Yield the scopes that may hold a key that begins with `query`."""
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
def _storage_errors() -> Iterator[None]:
    """Raise errors that Strands catches as its StorageError, and callers of Limpet as ours."""
    try:
        yield
    except LimpetError as error:
        theirs = sys.modules.get("strands.types.exceptions")
        if theirs is None or isinstance(error, theirs.StorageError):
            raise
        raise _as_storage_error(error, theirs.StorageError) from error


def _as_storage_error(error: LimpetError, base: type[Exception]) -> LimpetError:
    """Return an error of the class of `error` that is also a `base`."""
    ours = type(error)
    both: Any = type(ours.__name__, (ours, base), {"__module__": ours.__module__})
    copy: LimpetError = both.__new__(both)
    copy.args = error.args
    copy.__dict__.update(error.__dict__)
    return copy
