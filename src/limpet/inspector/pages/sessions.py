"""The list of sessions: filters and orders in its address, pages, and what needs attention."""

from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, cast

from limpet.api import verbs
from limpet.api.store import Store
from limpet.core.operations import (
    AFTER,
    ANY_SESSION,
    PREFIX_PARAM,
    SCOPE_PARAMS,
    STATUS_PARAM,
    Param,
)
from limpet.core.schema import BOOLEAN, TEXT
from limpet.core.times import from_us
from limpet.errors import InvalidInput, LimpetError
from limpet.inspector import links
from limpet.inspector.page import html, page, redirect, rendered, stream
from limpet.server import streams
from limpet.server.call import Call, Response, Stream
from limpet.views import overview
from limpet.views.overview import SessionFilter, SessionOverview

_PAGE_SESSIONS = 50
_COUNTS_S_MAX = 0.5  # a session with 100,000 snapshots takes about as long as a page without it
_ROWS, _END = "<!-- rows -->", "<!-- end -->"  # where the parts of a page that is sent go
_SORTS = {"age": "newest", "name": "name", "size": "stored size", "snapshots": "snapshots"}
_AGES = (
    (timedelta(hours=1), "Last hour"),
    (timedelta(days=1), "Last 24 hours"),
    (timedelta(days=7), "Last 7 days"),
    (timedelta(days=30), "Last 30 days"),
)
_PARAMS = (
    PREFIX_PARAM,
    Param("text", TEXT, "a text in the title or the last message"),
    STATUS_PARAM,
    Param("kind", TEXT, "only with a scope of this kind"),
    Param("attention", BOOLEAN, "only those that need attention"),
    Param("sort", TEXT, "age, name, size or snapshots"),
    AFTER,
)


class _Asked(NamedTuple):
    """A list as its address asks for it. `is_slow`: rows are sent as they are read."""

    prefix: str
    params: dict[str, Any]
    sort: overview.Sort
    is_slow: bool

    @property
    def where(self) -> SessionFilter:
        given = self.params
        text, attention = given.get("text", ""), given.get("attention", False)
        return SessionFilter(given.get("status"), given.get("kind"), attention, text)

    @property
    def given(self) -> dict[str, Any]:
        """All parameters, as a form shows them."""
        return {**{each.name: "" for each in _PARAMS}, **self.params}

    @property
    def is_filtered(self) -> bool:
        return bool(self.params.keys() - {"sort", "after"})

    @property
    def is_about_attention(self) -> bool:
        """Whether nothing else is asked for."""
        return self.params.keys() - {"sort", "after"} == {"attention"}

    def read(self, store: Store) -> overview.Sessions:
        return overview.sessions(
            store,
            prefix=self.prefix,
            sort=self.sort,
            limit=_PAGE_SESSIONS,
            after=self.params.get("after"),
            where=self.where,
            # They are read from the whole history of a session.
            counts=not self.is_slow,
            counts_s_max=_COUNTS_S_MAX,
            attention=True,
            usage=True,
        )


@page("/ui", *_PARAMS)
async def list_sessions(call: Call) -> Response:
    """The sessions of the store, the newest first."""
    given = {name: value for name, value in call.params.items() if value not in ("", False)}
    if given != call.params:  # an empty field of the form
        return redirect(links.url("", **_texts(given)))
    prefix = call.prefix
    is_slow = await call.store.run(overview.reads_heads_one_by_one)
    sort = given.get("sort", "name" if is_slow else "age")
    asked = _Asked(prefix, given, cast(overview.Sort, sort), is_slow)
    found = await call.store.run(asked.read)
    if is_slow:
        return stream(_parts(call, asked, found))
    rows, total = await call.store.run(lambda _: (list(found.read()), found.total()))
    before, between, after = _frame(call, asked)
    return html(
        before
        + _table(call, asked, rows)
        + between
        + _end(call, asked, found, total, rows=len(rows), tokens=sum(map(_tokens, rows)))
        + after
    )


async def _parts(call: Call, asked: _Asked, found: overview.Sessions) -> AsyncGenerator[str, None]:
    """Yield the page as it is read: first its frame, then row by row."""
    before, between, after = _frame(call, asked)
    yield before
    rows, group, count, tokens = found.read(), None, 0, 0
    try:
        while (row := await call.store.run(lambda _: next(rows, None))) is not None:
            yield _table(call, asked, [row], group)
            group, count, tokens = (
                _group_of(call, asked, row) or group,
                count + 1,
                tokens + _tokens(row),
            )
    except LimpetError as error:
        yield between + rendered(call, "_sessions_cut.html", message=call.grant.told(error)) + after
        return
    yield between + _end(call, asked, found, None, rows=count, tokens=tokens) + after


def _tokens(row: SessionOverview) -> int:
    used = row.about.usage
    return 0 if used is None else used.input + used.output


def _frame(call: Call, asked: _Asked) -> tuple[str, str, str]:
    """Return the page up to its rows, from there to its end, and the rest."""
    sort = [] if asked.sort == "age" else ["--sort", asked.sort]
    given = asked.params.get("prefix")
    prefix = [] if given is None else ["--prefix", given]
    text = rendered(
        call,
        "sessions.html",
        asked=asked,
        given=asked.given,
        sorts=_SORTS,
        command=links.Command("ls", [*prefix, *sort]),
    )
    before, _, rest = text.partition(_ROWS)
    between, _, after = rest.partition(_END)
    return before, between, after


def _table(
    call: Call, asked: _Asked, rows: Sequence[SessionOverview], group: str | None = None
) -> str:
    """Return rows under the names of their groups; `group` is that of the row before them."""
    groups: list[tuple[str | None, list[SessionOverview]]] = [(None, [])]
    for row in rows:
        name = _group_of(call, asked, row)
        if name not in (group, None):
            groups.append((name, []))
            group = name
        groups[-1][1].append(row)
    return rendered(call, "_sessions_rows.html", groups=groups, is_slow=asked.is_slow)


def _group_of(call: Call, asked: _Asked, row: SessionOverview) -> str | None:
    """Return the time in which a session was changed last, None if that is not known."""
    head = row.head
    if asked.sort != "age" or head is None:
        return None
    age = from_us(call.driver.tools.draw().now) - head.created_at
    return next((name for longest, name in _AGES if age < longest), "Older")


def _end(
    call: Call,
    asked: _Asked,
    found: overview.Sessions,
    total: int | None,
    *,
    rows: int,
    tokens: int,
) -> str:
    return rendered(
        call,
        "_sessions_end.html",
        is_empty=not rows,
        tokens=tokens,
        asked=asked,
        given=asked.given,
        total=total,
        searched_max=overview.SEARCHED_MAX if found.is_cut else None,
        first={name: value for name, value in _texts(asked.params).items() if name != "after"},
        next_page=None if found.next is None else {**_texts(asked.params), "after": found.next},
    )


def _texts(params: dict[str, Any]) -> dict[str, str]:
    return {name: "true" if value is True else value for name, value in params.items()}


@page("/ui/events", ANY_SESSION, *SCOPE_PARAMS[1:], PREFIX_PARAM)
async def events(call: Call) -> Stream:
    """Each new head of a scope or of a session; of many sessions, that something is new."""
    given = call.params
    session_id = given.get("session_id")
    if "scope_id" in given or "kind" in given:
        if session_id is None:
            raise InvalidInput("a scope_id or a kind needs its session_id")
        return streams.events(call, verbs.scope_topic(call.scope, None))
    if session_id is not None:
        call.grant.check_session(session_id)
    topic = verbs.topic(session_id, None, call.prefix)
    return streams.events(call, topic, newest_only=session_id is None)
