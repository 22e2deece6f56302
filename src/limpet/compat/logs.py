"""A list that grows, as the state of a scope: what frameworks call a session, transcript or log.

The state is `{key: [item, ...]}` and perhaps other members. Each append is a snapshot, so that
every earlier moment can be loaded, compared and forked; it costs what is appended.

Conversations of all frameworks are in scopes of one kind, so that people and programs find them. A
framework marks what it saves, by a member of the metadata that has its name, and neither reads nor
changes what another one has marked.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from limpet import Scope, Store
from limpet.api.integrations import Recent
from limpet.compat.wire import ABSENT, Absent
from limpet.compat.writes import contended
from limpet.errors import AlreadyExists, Conflict, Corrupt
from limpet.model import JSON, ScopeInfo, ScopeKey, Snapshot, SnapshotInfo

KIND = "conversation"
"""The kind of the scopes that hold a conversation as a log."""

MAIN = "main"
"""The scope of a conversation; branches, and transcripts of subagents, have others."""

FRAMEWORKS: Final = {
    "adk": "Google ADK",
    "ag2": "AG2",
    "claude": "the Claude Agent SDK",
    "langchain": "LangChain",
    "llama_index": "LlamaIndex",
    "openai": "the OpenAI Agents SDK",
    "pydantic_ai": "Pydantic AI",
    "vercel_ai": "the Vercel AI SDK",
}
"""The marks, and how people call those who make them."""

_LOGS_MAX = 256  # an agent has few open at a time

IdOf: TypeAlias = Callable[[Any], str | None]
Describe: TypeAlias = Callable[[SnapshotInfo | None, list[Any]], JSON]


@dataclass(frozen=True, slots=True)
class _Known:
    """The head as this process saw it last, and the ids of its items."""

    head: SnapshotInfo | None
    ids: set[str]


def is_of(each: ScopeInfo, mark: str) -> bool:
    """Tell whether a scope is a framework's.

    So is one without a head: a framework may set a note before the first item.
    """
    return each.head is None or mark in each.head.metadata


def check_own(head: SnapshotInfo | None, mark: str) -> None:
    """Refuse a conversation that another framework has saved.

    Raises:
        AlreadyExists: it has another mark. The message names the framework.
    """
    if head is None or mark in head.metadata:
        return
    for other in FRAMEWORKS.keys() & head.metadata.keys():
        raise AlreadyExists(
            f"this is a conversation of {FRAMEWORKS[other]}, not of {FRAMEWORKS[mark]}: choose "
            f"another id. scope=`{'/'.join(head.scope)}`",
            scope=head.scope,
        )


def foreign(found: SnapshotInfo, mark: str) -> Corrupt:
    """Return the error for a snapshot without the form in which a framework saves."""
    return Corrupt(
        f"this is no conversation of {FRAMEWORKS[mark]} that this version can read: another "
        f"program, or a newer version, saved it. session=`{found.session_id}` id=`{found.id}`",
        scope=found.scope,
        id=found.id,
    )


class Log:
    """The list under one key of a scope's state. Safe for threads and processes.

    It is synchronous: a framework that awaits calls it in the pool, which is one switch to a thread
    for all that a call does.

    `mark` is the framework's, of `FRAMEWORKS`. With `id_of`, an item whose id is in the list
    already is not appended again; items without an id always are. The head and the ids are
    remembered, and read again after another writer was faster: so each change is compared with a
    head that is the framework's own. What another one has saved raises AlreadyExists, and what is
    no log Corrupt.
    """

    def __init__(
        self, scope: Scope[Any], key: str, mark: str, *, id_of: IdOf | None = None
    ) -> None:
        self.scope = scope
        self._key = key
        self._mark = mark
        self._id_of = id_of
        self._known: _Known | None = None

    def read(self, make: Callable[[Any], Any] | None = None) -> list[Any] | None:
        """Return the items, or what `make` makes of each; None if nothing was ever written.

        Raises:
            Corrupt: `make` cannot read an item.
        """
        found = self.scope.load()
        if found is None:
            return None
        items = self.items_of(found)
        self._known = self._known_of(found, items)
        try:
            return items if make is None else [make(each) for each in items]
        except (AttributeError, LookupError, TypeError, ValueError):
            # Without the cause, whose text may have parts of the conversation.
            raise foreign(found, self._mark) from None

    def append(self, items: list[Any], describe: Describe | None = None) -> SnapshotInfo | None:
        """Append items, as one step; return the snapshot, None if nothing was new.

        `describe` gets the head and the new items and returns the value of the mark. It may be
        called again if another writer was faster.
        """
        if not items:
            return None
        return contended(self.scope.driver, partial(self._append, items, describe))

    def pop(self) -> Any | Absent:
        """Remove the last item and return it; ABSENT if there is none. History keeps it."""
        return self.change(lambda items: items.pop() if items else ABSENT)

    def change(self, fn: Callable[[list[Any]], Any]) -> Any:
        """Let `fn` change the items in place, as one step; return what it returns.

        If that is ABSENT nothing is stored, nor if there are no items: then it is not called.
        `fn` may be called again if another writer was faster. History keeps the earlier items.
        """
        return contended(self.scope.driver, partial(self._change, fn))

    def delete(self) -> list[Any] | None:
        """Delete the list with its history; return the items, None if there was no list."""
        return contended(self.scope.driver, self._delete)

    def replace(self, items: list[Any]) -> SnapshotInfo:
        """Replace all items, as one step."""
        return contended(self.scope.driver, partial(self._replace, items))

    def own(self) -> SnapshotInfo | None:
        """Return the head, None if nothing was ever written."""
        return self._read_known().head

    def _append(self, items: list[Any], describe: Describe | None) -> SnapshotInfo | None:
        known = self._known or self._read_known()  # another thread may set it meanwhile
        self._known = None  # unless this succeeds
        new = self._new(items, known.ids)
        if not new:
            if _revision(self.scope.info()) != _revision(known.head):
                raise Conflict("the log was deleted or changed meanwhile")
            self._known = known
            return None
        value = True if describe is None else describe(known.head, new)
        head = self.scope.append(
            self._key, new, metadata={self._mark: value}, expect=_revision(known.head)
        )
        known.ids.update(self._ids(new))
        self._known = _Known(head, known.ids)
        return head

    def _change(self, fn: Callable[[list[Any]], Any]) -> Any:
        found = self.scope.load()
        if found is None:
            return ABSENT
        items = self.items_of(found)
        result = fn(items)
        if result is not ABSENT:
            self.scope.save(
                {**found.state, self._key: items},
                labels=found.labels,
                metadata={self._mark: True, **found.metadata},
                status=found.status,
                expect=found.revision,
            )
        return result

    def _delete(self) -> list[Any] | None:
        found = self.scope.load()
        if found is None:
            return None
        items = self.items_of(found)
        self.scope.delete(expect=found.revision)
        return items

    def _replace(self, items: list[Any]) -> SnapshotInfo:
        expect = _revision(self.own())
        return self.scope.save({self._key: items}, metadata={self._mark: True}, expect=expect)

    def _read_known(self) -> _Known:
        if self._id_of is None:
            head = self.scope.info()
            if head is None or self._mark in head.metadata:
                return _Known(head, set())
        found = self.scope.load()
        if found is None:
            return _Known(None, set())
        return self._known_of(found, self.items_of(found))

    def _known_of(self, found: Snapshot[Any], items: list[Any]) -> _Known:
        return _Known(found.with_(state=None), set(self._ids(items)))

    def _new(self, items: list[Any], known: set[str]) -> list[Any]:
        """Return the items that are not known, each id once."""
        id_of = self._id_of
        if id_of is None:
            return items
        seen: set[str] = set()
        new = []
        for item in items:
            id = id_of(item)
            if id is None or not (id in known or id in seen):
                new.append(item)
            if id is not None:
                seen.add(id)
        return new

    def _ids(self, items: list[Any]) -> Iterator[str]:
        if self._id_of is not None:
            yield from (id for id in map(self._id_of, items) if id is not None)

    def items_of(self, found: Snapshot[Any]) -> list[Any]:
        """Return the items of a snapshot of this scope."""
        state = found.state
        items = state.get(self._key) if isinstance(state, dict) else None
        check_own(found, self._mark)
        if not isinstance(items, list):
            raise foreign(found, self._mark)
        return items


class Logs:
    """The logs of many conversations. What is known of those used last is remembered."""

    def __init__(self, store: Store, key: str, mark: str, *, id_of: IdOf | None = None) -> None:
        self._store = store
        self._key = key
        self._mark = mark
        self._id_of = id_of
        self._open: Recent[ScopeKey, Log] = Recent(_LOGS_MAX)

    def of(self, session_id: str, scope_id: str = MAIN) -> Log:
        """Return the log of a conversation. Reads nothing."""
        scope = self._store.scope(session_id, scope_id, KIND)
        log = self._open.get(scope.key)
        if log is None:
            log = Log(scope, self._key, self._mark, id_of=self._id_of)
            self._open.put(scope.key, log)
        return log

    def names(self) -> list[str]:
        """Return the sessions with a conversation of the framework, in text order."""
        return [
            each.key.session_id
            for each in self._store.scopes(kind=KIND)
            if each.head is not None and is_of(each, self._mark) and each.key.scope_id == MAIN
        ]


def _revision(info: SnapshotInfo | None) -> str | None:
    return None if info is None else info.revision
