"""Search in a session, or in the whole store: results are sent as they are found."""

import re
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from markupsafe import Markup

from limpet.api.opened import Opened
from limpet.api.store import Store
from limpet.core import limits
from limpet.core.operations import AFTER, ANY_SESSION, Param
from limpet.core.schema import BOOLEAN, TEXT
from limpet.core.wire import cursor_parts, cursor_text
from limpet.errors import Corrupt, InvalidInput, LimpetError
from limpet.inspector import links
from limpet.inspector.page import page, render, rendered, stream
from limpet.server.bodies import busy
from limpet.server.call import Call, Response
from limpet.views.diff import dotted
from limpet.views.format import visible
from limpet.views.overview import reads_heads_one_by_one, session_title
from limpet.views.search import (
    Find,
    Hit,
    PartedSearch,
    Position,
    Searched,
    compiled,
    finder,
    messages_of,
)

_PAGE_HITS_MAX = 50
_PAGE_S_MAX = 30.0  # whoever has enough stops it
_SHARED_S_MAX = 5.0  # while another search would find no place
_PART_S_MAX = 0.2  # between two parts of the page
_COUNTED_MAX = 100_000  # sessions, for "of so many"
_SEARCHES_MAX = 3  # at once: each holds a thread that the API needs too
_QUERY_CHARS_MAX = 500
_COUNT = re.compile(r"[0-9]{1,9}")
_FLAGS = ("regex", "case", "keys", "history")
_RESULTS = "<!-- results -->"  # where they are sent; escaped text cannot contain it

_QUERY = Param("q", {**TEXT, "maxLength": _QUERY_CHARS_MAX}, "what to search for")
_REGEX = Param("regex", BOOLEAN, "it is a regular expression")
_CASE = Param("case", BOOLEAN, "upper and lower case must match")
_KEYS = Param("keys", BOOLEAN, "search the keys of objects too")
_HISTORY = Param("history", BOOLEAN, "search every snapshot, as always in one session")


@page("/ui/search", ANY_SESSION, _QUERY, _REGEX, _CASE, _KEYS, _HISTORY, AFTER)
async def search(call: Call) -> Response:
    """What states and notes say: of every snapshot, or of the newest of each scope."""
    asked = _Asked.of(call)
    if not asked.query:
        return render(call, "search.html", **asked.shown(), problem=None, results="")
    try:
        # In a thread: there are expressions that take seconds.
        find = await call.store.run(lambda _: asked.finder(call.driver.tools.clock.monotonic))
    except InvalidInput as error:
        values = {**asked.shown(), "problem": call.grant.told(error), "results": ""}
        return render(call, "search.html", 400, **values)
    return stream(_sent(call, asked, find))


class _Asked(NamedTuple):
    query: str
    session_id: str | None
    prefix: str
    position: Position | None
    sessions: int
    """Those that were searched before the position."""
    regex: bool = False
    case: bool = False
    keys: bool = False
    history: bool = False

    @staticmethod
    def of(call: Call) -> "_Asked":
        given, session_id = call.params, call.params.get("session_id")
        if session_id is not None:
            call.grant.check_session(session_id)
        flags: dict[str, Any] = {name: given.get(name, False) for name in _FLAGS}
        position, sessions = _position_of(given["after"]) if "after" in given else (None, 0)
        if position is not None:
            call.grant.check_session(position.scope.session_id)
            if session_id not in (None, position.scope.session_id):
                raise InvalidInput("`after` is of a search in another session")
        asked = _Asked(given.get("q", ""), session_id, call.prefix, position, sessions)
        return asked._replace(**flags)

    def finder(self, monotonic: Callable[[], float]) -> Find:
        pattern = compiled(self.query, fixed=not self.regex, ignore_case=not self.case)
        return timed_finder(pattern, monotonic) if self.regex else finder(pattern, self.query)

    def shown(self) -> dict[str, Any]:
        """Return what the form shows, and the same search in a terminal."""
        return {"asked": self, "command": self._command if self.query else None}

    @property
    def _command(self) -> links.Command:
        flags = [] if self.regex else ["-F"]
        flags += [] if self.case else ["-i"]
        flags += ["--keys"] if self.keys else []
        flags += ["--history"] if self.session_id or self.history else []
        if self.prefix and not self.session_id:
            flags += ["--prefix", self.prefix]
        words = [self.query] + ([self.session_id] if self.session_id else [])
        return links.Command("grep", flags, words)

    @property
    def everywhere(self) -> str:
        return self._replace(session_id=None).url()

    def url(self, position: Position | None = None, sessions: int = 0) -> str:
        flags = {name: "true" for name in _FLAGS if getattr(self, name)}
        after = None if position is None else _cursor(position, sessions)
        return links.url("/search", q=self.query, session_id=self.session_id, **flags, after=after)


def _cursor(position: Position, sessions: int) -> str:
    return cursor_text(*position.scope, position.revision, str(position.seen), str(sessions))


def _position_of(cursor: str) -> tuple[Position, int]:
    *key, revision, seen, sessions = cursor_parts(cursor, 6)
    if not (_COUNT.fullmatch(seen) and _COUNT.fullmatch(sessions)):
        raise InvalidInput("`after` is not from a page of this search")
    return Position(limits.check_scope(*key), revision, int(seen)), int(sessions)


@dataclass
class _Search:
    """One page of results, which is filled in parts."""

    asked: _Asked
    found: Iterator[Searched]
    monotonic: Callable[[], float]
    total: int | None
    sessions: int
    snapshots: int = 0
    hits: int = 0
    damaged: list[Corrupt] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)  # found, and not sent yet
    position: Position | None = None
    is_over: bool = False  # nothing more is to be searched
    _session_id: str | None = None
    _titles: dict[str, str | None] = field(default_factory=dict)

    def fill(self, store: Store, until: float) -> None:
        """Search on until the page is full, or so late."""
        while self.hits < _PAGE_HITS_MAX and (self._is_here() or self.monotonic() < until):
            searched = next(self.found, None)
            if searched is None:
                self.is_over = True
                break
            self._count(searched)
            shown = searched.hits[: _PAGE_HITS_MAX - self.hits]
            self.position = searched.after(len(shown))
            self.hits += len(shown)
            if shown:
                self.groups.append(self._group(store, searched, shown))

    def _is_here(self) -> bool:
        """Whether nothing new was searched yet: the page must not lead to itself."""
        return self.position in (None, self.asked.position)

    def _count(self, searched: Searched) -> None:
        self.snapshots += searched.info is not None
        if searched.scope.session_id != self._session_id:
            self._session_id = searched.scope.session_id
            self.sessions += 1

    def _group(self, store: Store, searched: Searched, hits: list[Hit]) -> dict[str, Any]:
        """Return the hits of a snapshot; `is_first` of its session, on this page."""
        key, info = searched.scope, searched.info
        is_first = key.session_id not in self._titles
        if is_first:
            self._titles = {key.session_id: session_title(store, key.session_id)}
        is_state = info is not None and any(hit.note is None for hit in hits)
        snapshot = store.scope(*key).load(info.id) if info and is_state else None
        message = messages_of(None if snapshot is None else snapshot.state)
        place = links.address(info or key)
        lines = list[dict[str, Any]]()
        for hit in hits:
            is_text = not hit.is_key and hit.note is None
            index, path = message(hit.pointer) if is_text else None, dotted(hit.pointer)
            where = path if index is None else f"message {index}"
            where = where if hit.note is None else visible(f"note {hit.note}")
            url = _hit_url(place, hit, index)
            lines.append({"url": url, "path": path, "where": where, "hit": hit})
        group = {"title": self._titles[key.session_id], "is_first": is_first, "info": info}
        return {**group, "key": key, "url": links.url("/session", **place), "lines": lines}


def _hit_url(place: dict[str, str], hit: Hit, index: int | None) -> str:
    if index is not None:
        return links.url("/session", **place, view="chat", turns=index) + f"#m{index}"
    if hit.note is not None:
        return links.url("/session", **place, view="state") + "#notes"
    return links.url("/session", **place, view="state", path=hit.pointer)


class _Searches:
    def __init__(self, opened: Opened) -> None:
        self._count = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        if self._count >= _SEARCHES_MAX:
            raise busy("other searches are under way")
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1

    @property
    def page_s_max(self) -> float:
        return _PAGE_S_MAX if self._count < _SEARCHES_MAX else min(_PAGE_S_MAX, _SHARED_S_MAX)

    def close(self) -> None:
        """Nothing is open: a search ends with its page."""


async def _sent(call: Call, asked: _Asked, find: Find) -> AsyncGenerator[str, None]:
    results = Markup(_RESULTS)  # noqa: S704  (a constant)
    values = {**asked.shown(), "problem": None, "results": results}
    before, _, after = rendered(call, "search.html", **values).partition(_RESULTS)
    yield before
    clock = call.driver.tools.clock.monotonic
    state: _Search | None = None
    try:
        searches = call.driver.opened.service(_Searches)
        with searches.one():
            begun = clock()
            state = await call.store.run(lambda store: _begun(store, asked, find, clock))
            is_done = False
            while not is_done:
                end = begun + searches.page_s_max
                late = min(end, clock() + _PART_S_MAX)
                await call.store.run(partial(state.fill, until=late))
                is_done = state.is_over or state.hits >= _PAGE_HITS_MAX or clock() >= end
                yield rendered(call, "_hits.html", **_progress(asked, state, done=is_done))
    except LimpetError as error:
        problem = call.grant.told(error)
        yield rendered(call, "_hits.html", **_progress(asked, state, problem=problem))
    yield after


def _begun(store: Store, asked: _Asked, find: Find, monotonic: Callable[[], float]) -> _Search:
    damaged: list[Corrupt] = []
    parted = PartedSearch(
        store, find, keys=asked.keys, skipped=lambda _scope, _id, error: damaged.append(error)
    )
    total = None  # sessions, where counting them does not take as long as the search
    if asked.session_id is not None:
        found = parted.history(asked.session_id, asked.position)
    else:
        every = parted.histories if asked.history else parted.heads
        found = every(asked.prefix, asked.position)
        if not reads_heads_one_by_one(store):
            total = sum(1 for _ in store.sessions(prefix=asked.prefix, limit=_COUNTED_MAX))
    # The session of the position was counted before.
    last = None if asked.position is None else asked.position.scope.session_id
    return _Search(
        asked, found, monotonic, total, asked.sessions, damaged=damaged, _session_id=last
    )


def _progress(
    asked: _Asked, search: _Search | None, *, done: bool = False, problem: str | None = None
) -> dict[str, object]:
    more, groups = None, []
    if search is not None:
        groups, search.groups = search.groups, []
        if not search.is_over:
            more = asked.url(search.position or asked.position, search.sessions)
    return {
        "asked": asked,
        "search": search,
        "groups": groups,
        "more": more,
        "done": done,
        "problem": problem,
        "counted_max": _COUNTED_MAX,
    }


# Regular expressions of strangers, with limits of their time and memory

TEXTS_S_MAX = 1.0  # for the lines of some texts: most expressions take milliseconds
ALL_S_MAX = 10.0  # for those of a page: a single state may have thousands of texts
GROUPS_MAX = 15  # to compile repetitions inside each other takes twice the memory for each: 40 MB

_LEAST_S = 0.001  # for a line, so that a batch of many ends too
_NO_COUNT = re.compile(r"(\\.)|\{(?!\d*,?\d*\})", re.DOTALL)


def timed_finder(pattern: re.Pattern[str], monotonic: Callable[[], float]) -> Find:
    """Return a function that searches lines, and raises InvalidInput when it takes too long.

    Python's `re` takes exponential time for some expressions, and holds all threads of the server
    until it is done. `regex` reads the same expressions, and lets other threads run.

    Raises:
        InvalidInput: the expression has too many groups.
    """
    import regex  # type: ignore[import-untyped]  # 30 ms, and most searches are for plain text

    if pattern.pattern.count("(") > GROUPS_MAX:
        raise InvalidInput(f"the expression has more than {GROUPS_MAX} groups: make it simpler")
    # In `regex`, a brace that is no count would allow errors in what is before it.
    text = _NO_COUNT.sub(lambda found: found[1] or r"\{", pattern.pattern)
    expression = regex.compile(text, pattern.flags & ~re.UNICODE)
    left_s = ALL_S_MAX

    def find(lines: list[str]) -> list[tuple[int, int] | None]:
        nonlocal left_s
        begun = monotonic()
        end = begun + min(TEXTS_S_MAX, left_s)
        found = []
        try:
            for line in lines:
                match = expression.search(line, timeout=max(_LEAST_S, end - monotonic()))
                found.append(match and match.span())
        except TimeoutError:
            raise InvalidInput(
                "the expression takes too long: a repetition inside a repetition, as in (a|aa)+,"
                " may take forever. Make it simpler, or search for plain text"
            ) from None
        left_s -= monotonic() - begun
        return found

    return find
