"""Finds a pattern in the texts of states: of one, of all heads, or of a session's history."""

import re
import warnings
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import chain, islice
from typing import NamedTuple, TypeAlias

from limpet.api.scope import Scope
from limpet.api.store import Store
from limpet.backends.support.recent import Recent
from limpet.core import ids
from limpet.core.codec import escaped
from limpet.core.limits import PAGE_ITEMS_MAX, PAGE_STATES_MAX
from limpet.errors import Corrupt, InvalidInput
from limpet.model import JSON, ScopeKey, Snapshot, SnapshotInfo, SnapshotRef
from limpet.protocol import Query
from limpet.views.notes import note_value, notes_of

Find: TypeAlias = Callable[[list[str]], Sequence[tuple[int, int] | None]]
"""Returns where each line matches first: from where to where, or None."""


def compiled(query: str, *, fixed: bool, ignore_case: bool) -> re.Pattern[str]:
    """Return what to search for: a plain text if `fixed`, else a regular expression.

    Raises:
        InvalidInput: it is no regular expression.
    """
    text = re.escape(query) if fixed else query
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # FutureWarning: the syntax may change
            return re.compile(text, re.IGNORECASE if ignore_case else 0)
    except (re.error, OverflowError, RecursionError) as cause:
        raise InvalidInput(f"not a regular expression: {cause}") from None


def finder(pattern: re.Pattern[str], plain: str = "") -> Find:
    """Return a function that searches lines for a pattern, in this process.

    `plain` is the text that the pattern stands for, if it is one: then most lines are fast.
    """
    lower = plain.lower() if plain.isascii() else ""

    def find(lines: list[str]) -> list[tuple[int, int] | None]:
        # Among ASCII letters `re` ignores case as `lower` does, and takes ten times as long.
        return [
            None
            if lower and line.isascii() and lower not in line.lower()
            else (found := pattern.search(line)) and found.span()
            for line in lines
        ]

    return find


class Match(NamedTuple):
    """A line that matches, and the position of the first match in it.

    `pointer` is the JSON Pointer of the text, or with `is_key` of the member with this key.
    """

    pointer: str
    text: str
    start: int
    end: int
    is_key: bool = False


_BATCH_CHARS = 64 * 1024  # of lines that are searched at once


def matches(state: JSON, find: Find, *, keys: bool = False) -> Iterator[Match]:
    """Yield each line of the texts of a state that matches, in order.

    With `keys` also the keys of objects, each before its value. A match never spans lines.
    """
    texts: list[_Text] = []
    chars = 0
    for each in _texts(state, keys=keys):
        texts.append(each)
        chars += len(each.text) + 1  # many may be empty
        if chars >= _BATCH_CHARS:
            yield from _in_texts(texts, find)
            texts, chars = [], 0
    yield from _in_texts(texts, find)


_Path: TypeAlias = tuple[str | int, ...]


class _Text(NamedTuple):
    path: _Path
    text: str
    is_key: bool


def _in_texts(texts: list[_Text], find: Find) -> Iterator[Match]:
    lines = [(each, line) for each in texts for line in each.text.split("\n")]
    spans = find([line for _, line in lines]) if lines else ()
    for (each, line), span in zip(lines, spans, strict=True):
        if span is not None:
            yield Match(_pointer(each.path), line, *span, each.is_key)


def _texts(state: JSON, *, keys: bool) -> Iterator[_Text]:
    # No recursion: a state may be deep. A path is made only for what is yielded.
    path: list[str | int] = [0]
    levels: list[Iterator[tuple[str | int, JSON]]] = [enumerate([state])]
    while levels:
        for key, value in levels[-1]:
            path[-1] = key
            if keys and isinstance(key, str):
                yield _Text(tuple(path[1:]), key, True)
            if isinstance(value, str):
                yield _Text(tuple(path[1:]), value, False)
            elif isinstance(value, dict | list):
                levels.append(iter(value.items()) if isinstance(value, dict) else enumerate(value))
                path.append(0)
                break
        else:
            levels.pop()
            path.pop()


def _pointer(path: _Path) -> str:
    return "".join(f"/{escaped(str(part))}" for part in path)


_BEFORE_SHARE = 3  # a third of the context is before the match


def excerpt(match: Match, chars_max: int) -> tuple[str, str, str]:
    """Return what is before a match, the match and what is after it: about so many characters."""
    line, start, end = match.text, match.start, match.end
    before, text, after = line[:start], line[start:end], line[end:]
    text = text if len(text) <= chars_max else text[: chars_max - 1] + "…"
    room = max(0, chars_max - len(text))
    left = max(room // _BEFORE_SHARE, room - len(after))
    if len(before) > left:
        before = "…" + before[len(before) - max(0, left - 1) :]
    right = max(0, room - len(before))
    if len(after) > right:
        after = after[: max(0, right - 1)] + "…"
    return before, text, after


Skip: TypeAlias = Callable[[ScopeKey, str | None, Corrupt], None]
_DIGEST_BYTES = 16


class Place(NamedTuple):
    """Where a line is: in the state of a snapshot, or in a note of a scope or of a snapshot."""

    scope: ScopeKey
    id: str | None
    note: str | None = None


class StateSearch:
    """Searches snapshots and notes, with one page of states and the ids of one scope in memory.

    Damaged ones are skipped, and `skipped` is called for each.
    """

    def __init__(self, store: Store, find: Find, *, keys: bool, skipped: Skip) -> None:
        self._store = store
        self._find = find
        self._keys = keys
        self._skipped = skipped

    def run(
        self,
        session_id: str | None = None,
        *,
        prefix: str = "",
        kind: str | None = None,
        status: str | None = None,
        history: bool = False,
    ) -> Iterator[tuple[Place, Match]]:
        """Yield matches in heads; with `history` each line once, for the first snapshot of a scope.

        Then those in notes, unless a status is asked for: notes on the head, or on any snapshot.
        """
        for each in self._store.scopes(session_id, kind=kind, prefix=prefix):
            scope, head = self._store.scope(*each.key), each.head
            found: Iterable[tuple[Snapshot, Match]] = ()
            if history:
                found = self._first_of_each(self._kept(scope, status))
            elif head is None or status in (None, head.status):
                # Without a head it may be damaged, which loading reports.
                loaded = (one for one in self.loaded(scope, [None]) if status in (None, one.status))
                found = ((one, match) for one in loaded for match in self.matches(one.state))
            for snapshot, match in found:
                yield Place(scope.key, snapshot.id), match
            if status is not None:
                continue
            here = chain(scope.notes(), scope.notes(on=head.id) if head else ())
            with suppress(Corrupt):  # of a damaged scope, which was reported with its states
                for note in notes_of(scope) if history else here:
                    for match in self.matches(note_value(scope.key, note)):
                        yield Place(scope.key, note.snapshot_id, note.name), match

    def matches(self, value: JSON) -> Iterator[Match]:
        return matches(value, self._find, keys=self._keys)

    def _first_of_each(self, snapshots: Iterable[Snapshot]) -> Iterator[tuple[Snapshot, Match]]:
        """Yield matches whose line is in no earlier snapshot."""
        seen: set[bytes] = set()
        for snapshot in snapshots:
            new: set[bytes] = set()
            for match in self.matches(snapshot.state):
                digest = _digest(match)
                if digest not in seen:
                    new.add(digest)
                    yield snapshot, match
            seen |= new

    def _kept(self, scope: Scope, status: str | None) -> Iterator[Snapshot]:
        try:
            found = [info.id for info in scope.history(status=status)]
            head = scope.info()
        except Corrupt as error:
            self._skipped(scope.key, None, error)
            return
        if head is not None and not head.kept and status in (None, head.status):
            found.insert(0, head.id)
        while found:
            page = [found.pop() for _ in range(min(PAGE_STATES_MAX, len(found)))]
            yield from self.loaded(scope, page)

    def loaded(self, scope: Scope, wanted: list[str] | list[None]) -> Iterator[Snapshot]:
        """Load snapshots, or the head; what was deleted meanwhile is left out."""
        try:
            many = [id for id in wanted if id is not None]
            found = list(scope.load_many(many)) if len(many) > 1 else [scope.load(wanted[0])]
        except Corrupt as error:
            if len(wanted) == 1:
                self._skipped(scope.key, wanted[0], error)
                return
            for id in wanted:
                yield from self.loaded(scope, [id] if id is not None else [None])
            return
        yield from (snapshot for snapshot in found if snapshot is not None)


def _digest(match: Match) -> bytes:
    """Return what stands for a line, which may be long."""
    kind = b"key" if match.is_key else b"text"
    line = match.text.encode(errors="surrogatepass")  # from other tools' files
    return blake2b(line, digest_size=_DIGEST_BYTES, person=kind).digest()


# In parts, for people who look at the first results and go on later.


class Position(NamedTuple):
    """Where a search goes on: at a snapshot, after so many of its hits."""

    scope: ScopeKey
    revision: str
    seen: int


class Hit(NamedTuple):
    """A line that matches, cut around the match; `note` is the name of the note that it is in."""

    pointer: str
    before: str
    text: str
    after: str
    is_key: bool
    note: str | None = None


class Searched(NamedTuple):
    """A snapshot that was searched with its notes, and its hits that were not seen yet.

    `info` is None for the notes of a scope, which come before its snapshots.
    """

    scope: ScopeKey
    info: SnapshotInfo | None
    hits: list[Hit]
    seen: int

    def after(self, count: int) -> Position:
        """Return where the search goes on after so many of these hits."""
        revision = "" if self.info is None else self.info.revision
        return Position(self.scope, revision, self.seen + count)


_HIT_CHARS_MAX = 240
_HITS_MAX = 10_000  # lines of one snapshot
_AHEAD = 4  # snapshots that are read at once: a caller looks at the clock between them
_CACHED_MAX = 32
_Lines: TypeAlias = dict[bytes, Hit]
_InScope: TypeAlias = Callable[[Scope, Position | None], Iterator[Searched]]


class PartedSearch:
    """A search that can go on at a position, in another process too.

    What is saved meanwhile is searched if it comes after that position.
    """

    def __init__(self, store: Store, find: Find, *, keys: bool, skipped: Skip) -> None:
        self._store = store
        self._states = StateSearch(store, find, keys=keys, skipped=skipped)
        self._skipped = skipped
        self._lines: Recent[SnapshotRef, _Lines] = Recent(_CACHED_MAX)

    def heads(self, prefix: str = "", position: Position | None = None) -> Iterator[Searched]:
        """Yield the head of each scope, in the order of the store."""
        from limpet.views.overview import scopes_after  # `limpet grep` needs no overviews

        if position is not None:
            yield from self._in_scope(self._head, position.scope, position)
        for each in scopes_after(self._store, prefix, None if position is None else position.scope):
            yield from self._in_scope(self._head, each.key, None)

    def _in_scope(
        self, search: _InScope, key: ScopeKey, position: Position | None
    ) -> Iterator[Searched]:
        """Yield the notes of a scope, then its snapshots, from a position in it on."""
        scope = self._store.scope(*key)
        try:
            if position is None or not position.revision:
                yield _rest(key, None, self._in_notes(scope)[None], position)
            yield from search(scope, position)
        except Corrupt as error:
            self._skipped(key, None, error)

    def _in_notes(self, scope: Scope, on: list[str] | None = None) -> dict[str | None, list[Hit]]:
        """Return the hits in the notes of a scope, or in those on its snapshots, by their ids."""
        found = defaultdict[str | None, list[Hit]](list)
        for note in scope.notes(on=on):
            hits = found[note.snapshot_id]
            matching = self._states.matches(note_value(scope.key, note))
            for match in islice(matching, _HITS_MAX - len(hits)):
                hits.append(_hit(match, note.name))
        return found

    def _head(self, scope: Scope, position: Position | None) -> Iterator[Searched]:
        for snapshot in self._states.loaded(scope, [None]):
            hits = [*self._lines_in(snapshot).values()]
            noted = self._in_notes(scope, [snapshot.id])[snapshot.id]
            yield _rest(scope.key, snapshot, hits + noted, position)

    def histories(self, prefix: str = "", position: Position | None = None) -> Iterator[Searched]:
        """Yield the snapshots of all sessions, one session after the other, as `history` does."""
        last = None if position is None else position.scope.session_id
        if last is not None:
            yield from self.history(last, position)
        for session_id in self._store.sessions(prefix=prefix, after=last):
            yield from self.history(session_id)

    def history(self, session_id: str, position: Position | None = None) -> Iterator[Searched]:
        """Yield the snapshots of a session, scope by scope, the newest first.

        A line that is also in the parent, or in what a scope was forked from, is no hit.
        """
        for key in self._scopes(session_id, position):
            at = position if position is not None and position.scope == key else None
            yield from self._in_scope(self._scope_history, key, at)

    def _scope_history(self, scope: Scope, position: Position | None) -> Iterator[Searched]:
        after = ids.seq_of(position.revision) + 1 if position and position.revision else None
        waiting: list[SnapshotInfo] = []
        head = scope.info()
        if head is not None and not head.kept and (after is None or _seq(head) < after):
            waiting.append(head)
        while True:
            page = self._page(Query(scope.key, after=after))
            waiting += page
            is_last = len(page) < PAGE_ITEMS_MAX
            while len(waiting) > (0 if is_last else _AHEAD):
                some, ahead = waiting[:_AHEAD], waiting[: _AHEAD + 1]
                self._read(scope, ahead)
                noted = self._in_notes(scope, [info.id for info in some])
                for info, older in zip(some, [*ahead[1:], None], strict=False):
                    hits = self._new_lines(info, older) + noted[info.id]
                    yield _rest(scope.key, info, hits, position)
                del waiting[:_AHEAD]
            if is_last:
                return
            after = _seq(page[-1])

    def _page(self, query: Query) -> list[SnapshotInfo]:
        return self._store.driver.run(
            lambda backend: backend.list_snapshots(query, limit=PAGE_ITEMS_MAX)
        )

    def _scopes(self, session_id: str, position: Position | None) -> list[ScopeKey]:
        """Return the scopes of a session in a fixed order, from that of the position on."""
        keys = sorted(each.key for each in self._store.scopes(session_id))
        return keys if position is None else [key for key in keys if key >= position.scope]

    def _new_lines(self, info: SnapshotInfo, older: SnapshotInfo | None) -> list[Hit]:
        lines = self._lines_of(SnapshotRef(info.scope, info.id))
        base = _base(info, older) if lines else None
        before = {} if base is None else self._lines_of(base)
        return [hit for digest, hit in lines.items() if digest not in before]

    def _lines_of(self, ref: SnapshotRef) -> _Lines:
        (found,) = self._read(self._store.scope(*ref.scope), [ref])
        return found

    def _read(self, scope: Scope, wanted: Sequence[SnapshotInfo | SnapshotRef]) -> Sequence[_Lines]:
        """Return the lines of snapshots that match; those that are not there have none."""
        refs = [SnapshotRef(scope.key, each.id) for each in wanted]
        found = {ref: lines for ref in refs if (lines := self._lines.get(ref)) is not None}
        new = [ref.id for ref in refs if ref not in found]
        for snapshot in self._states.loaded(scope, new) if new else ():
            found[SnapshotRef(scope.key, snapshot.id)] = self._lines_in(snapshot)
        for ref in refs:
            self._lines.put(ref, found.setdefault(ref, {}))
        return [found[ref] for ref in refs]

    def _lines_in(self, snapshot: Snapshot) -> _Lines:
        found: _Lines = {}
        for match in self._states.matches(snapshot.state):
            found.setdefault(_digest(match), _hit(match))
            if len(found) == _HITS_MAX:
                break
        return found


def _hit(match: Match, note: str | None = None) -> Hit:
    return Hit(match.pointer, *excerpt(match, _HIT_CHARS_MAX), match.is_key, note)


def _seq(info: SnapshotInfo) -> int:
    return ids.seq_of(info.revision)


def _base(info: SnapshotInfo, older: SnapshotInfo | None) -> SnapshotRef | None:
    """Return what a snapshot of a session is based on; where nothing has a parent, the last one."""
    if info.parent_id is not None:
        return SnapshotRef(info.scope, info.parent_id)
    source = info.forked_from
    if source is not None:
        return source if source.scope.session_id == info.session_id else None
    if older is None or older.parent_id is not None:
        return None
    return SnapshotRef(older.scope, older.id)


def _rest(
    key: ScopeKey, info: SnapshotInfo | None, hits: list[Hit], position: Position | None
) -> Searched:
    """Leave out the hits that were seen already."""
    found = Searched(key, info, hits, 0)
    if position is None or position._replace(seen=0) != found.after(0):
        return found
    return found._replace(hits=hits[position.seen :], seen=min(position.seen, len(hits)))


def messages_of(state: JSON) -> Callable[[str], int | None]:
    """Return a function from a JSON Pointer to the index of the turn of a chat that shows it.

    The result of a tool is shown in the turn of its call.
    """
    from limpet.views.chat import read_chat  # the command line prints no links

    chat = read_chat(state)
    indexes = [] if chat is None else sorted(turn.index for turn in chat.turns if turn.index >= 0)
    prefix = "" if chat is None else f"{chat.path}/"

    def index_of(pointer: str) -> int | None:
        index = pointer.removeprefix(prefix).partition("/")[0]
        if not indexes or not pointer.startswith(prefix) or not index.isdecimal():
            return None
        at = bisect_right(indexes, int(index))
        return indexes[at - 1] if at else None

    return index_of
