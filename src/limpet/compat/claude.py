"""Sessions of the Claude Agent SDK: its `SessionStore` on every engine.

The SDK mirrors each transcript into it while the agent works, and resumes from it on any machine::

    from claude_agent_sdk import ClaudeAgentOptions, query
    from limpet.compat.claude import LimpetClaudeStore

    async with limpet.open_async("postgresql://localhost/agents") as store:
        options = ClaudeAgentOptions(session_store=LimpetClaudeStore(store), resume=session_id)
        async for message in query(prompt="Go on.", options=options):
            print(message)

`docs/guides/claude_agent_sdk.md` lists where each thing is stored, so that other programs see it.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from limpet import AsyncScope, AsyncStore, Scope, Store
from limpet.api.integrations import codec, limits
from limpet.compat import needs
from limpet.compat.logs import KIND, MAIN, Log, Logs, check_own, is_of
from limpet.compat.wire import check_store, escaped, shown, unescaped
from limpet.errors import Conflict, Corrupt, InvalidInput
from limpet.model import JSON, SnapshotInfo, SnapshotRef

with needs("claude_agent_sdk", "the Claude Agent SDK", extra="claude"):
    from claude_agent_sdk import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStore,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
        fold_session_summary,
    )

__all__ = ["LimpetClaudeStore"]

FACADE = "claude"
_ENTRIES = "entries"
_EXACT = "limpet:exact"  # the JSON text of an entry that could not be stored as it is


class LimpetClaudeStore(SessionStore):
    """Transcripts in an open store, sync or async. Safe for tasks, threads and processes.

    Each append is a snapshot: every earlier moment of a transcript can be loaded, compared and
    restored. Every method raises `InvalidInput` if the key has no project, session or subpath that
    can be a name, and `AlreadyExists` if another framework's conversation is there.
    """

    def __init__(self, store: Store | AsyncStore) -> None:
        self._store = check_store(store).aio
        self._logs = Logs(store.sync, _ENTRIES, FACADE, id_of=_uuid)

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Append entries and fold them into the summary, as one step.

        An entry whose `uuid` is in the transcript already is not appended again. The first entries
        of a fork, which name the session they were copied from, also record from which snapshot.
        """
        append = partial(self._store.driver.offload, self._append, self._log(key), key)
        try:
            await append(entries)
        except InvalidInput:
            storable = [_storable(each) for each in entries]
            if storable == entries:
                raise
            await append(storable)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return the entries in the order in which they were appended, None if there are none."""
        found = await self._store.driver.offload(self._log(key).read)
        return found and [_restored(each) if _EXACT in each else each for each in found]

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project. Reads no transcript."""
        return [
            {"session_id": session_id, "mtime": _mtime(head)}
            async for session_id, head in self._sessions(project_key)
        ]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the summaries of the sessions of a project. Reads no transcript.

        A session to which another program has added has none: the SDK then reads its transcript.
        """
        return [
            {"session_id": session_id, "mtime": _mtime(head), "data": data}
            async for session_id, head in self._sessions(project_key)
            if isinstance(data := head.metadata.get(FACADE), dict)
        ]

    async def delete(self, key: SessionKey) -> None:
        """Delete the transcript of a subagent; without `subpath` the session and all in it."""
        scope = self.scope(key)
        with suppress(Corrupt):  # what is damaged can be deleted
            check_own(await scope.info(), FACADE)
        if _is_main(key):
            await self._store.delete_session(scope.session_id)
        else:
            await scope.delete()

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of a session."""
        found = self._store.scopes(_session(key), kind=KIND)
        names = [each.key.scope_id async for each in found if is_of(each, FACADE)]
        return [name.removeprefix(f"{MAIN}/") for name in names if name.startswith(f"{MAIN}/")]

    def scope(self, key: SessionKey) -> AsyncScope[Any]:
        """Return the scope of a transcript: its history, to prune, compare or restore."""
        scope_id = MAIN if _is_main(key) else f"{MAIN}/{_text(key, 'subpath')}"
        return self._store.scope(_session(key), scope_id, KIND)

    def _log(self, key: SessionKey) -> Log:
        session_id, scope_id, _ = self.scope(key).key
        return self._logs.of(session_id, scope_id)

    async def _sessions(self, project_key: str) -> AsyncIterator[tuple[str, SnapshotInfo]]:
        prefix = _project({"project_key": project_key})
        async for each in self._store.scopes(kind=KIND, prefix=prefix):
            session_id = unescaped(each.key.session_id.removeprefix(prefix))
            is_main = each.key.scope_id == MAIN and is_of(each, FACADE)
            if session_id is not None and each.head is not None and is_main:
                yield session_id, each.head

    def _append(self, log: Log, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        if not _is_main(key):
            log.append(entries)
        elif not self._append_fork(log.scope, key, entries):
            log.append(entries, lambda head, new: _folded(key, head, new))

    def _append_fork(
        self, scope: Scope[Any], key: SessionKey, entries: list[SessionStoreEntry]
    ) -> bool:
        """Save the first entries of a fork with its origin; return whether that was done."""
        origins = [each.get("forkedFrom") for each in entries]
        origin = next((each for each in reversed(origins) if isinstance(each, dict)), None)
        if origin is None or scope.info() is not None:
            return False
        source = self._snapshot_with(key, origin)
        if source is None:
            return False
        try:
            scope.save(
                {_ENTRIES: entries},
                metadata={FACADE: _folded(key, None, entries)},
                forked_from=source,
                expect=None,
            )
        except Conflict:  # another process was faster
            return False
        return True

    def _snapshot_with(self, key: SessionKey, origin: Mapping[str, object]) -> SnapshotRef | None:
        """Return the first snapshot of the session that has the entry from which a fork begins."""
        session_id, uuid = origin.get("sessionId"), origin.get("messageUuid")
        if not (isinstance(session_id, str) and session_id and isinstance(uuid, str)):
            return None
        there: SessionKey = {"project_key": key["project_key"], "session_id": session_id}
        scope = self._log(there).scope
        ids = list(scope.ids())  # the store minted them: in the order of saving
        first, end = 0, len(ids)
        while first < end:
            middle = (first + end) // 2
            found = scope.load(ids[middle])
            if found is not None and uuid in map(_uuid, found.state.get(_ENTRIES, [])):
                end = middle
            else:
                first = middle + 1
        return SnapshotRef(scope.key, ids[first]) if first < len(ids) else None


def _folded(key: SessionKey, head: SnapshotInfo | None, new: list[SessionStoreEntry]) -> JSON:
    before: SessionSummaryEntry | None = None
    if head is not None:
        data = head.metadata.get(FACADE)
        if not isinstance(data, dict):
            return True  # another program added: a summary of the new entries alone would be wrong
        before = {"session_id": key["session_id"], "mtime": 0, "data": data}
    return fold_session_summary(before, key, new)["data"]


def _mtime(head: SnapshotInfo) -> int:
    return int(head.updated_at.timestamp() * 1000)


def _uuid(entry: SessionStoreEntry) -> str | None:
    uuid = entry.get("uuid")
    return uuid if isinstance(uuid, str) else None


def _storable(entry: SessionStoreEntry) -> Any:
    """Return an entry as it can be stored, with its exact text if that is not the same.

    JavaScript may cut a text inside a character: half a surrogate pair cannot be stored. Of an
    entry that is nested too deep only the texts can be. One that is not JSON is left as it is.
    """
    try:
        text = json.dumps(entry, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        return entry
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if whole == text and _is_storable(entry):
        return entry
    plain = json.loads(whole)
    if not _is_storable(plain):
        plain = {name: value for name, value in plain.items() if isinstance(value, str)}
    return {**plain, _EXACT: json.dumps(entry)}


def _is_storable(entry: Any) -> bool:
    try:
        codec.encode_items(_ENTRIES, [entry], bytes_max=limits.STATE_BYTES_MAX)
    except InvalidInput:
        return False
    return True


def _restored(entry: dict[str, str]) -> Any:
    return json.loads(entry[_EXACT])


def _is_main(key: SessionKey) -> bool:
    return key.get("subpath") is None


def _text(key: Mapping[str, object], name: str) -> str:
    value = key.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"the key must have a {name}. {name}=`{shown(value)}`")
    return value


def _project(key: Mapping[str, object]) -> str:
    """Return how the sessions of a project begin.

    The SDK's project keys begin with a hyphen, which a command line would take for an option.
    """
    return f"{FACADE}/{escaped(_text(key, 'project_key'))}/"


def _session(key: Mapping[str, object]) -> str:
    return _project(key) + escaped(_text(key, "session_id"))
