"""Operations on the store: listings across scopes, sizes, checks."""

from functools import partial
from typing import Any

from limpet.api import upkeep
from limpet.core import limits, matching, wire
from limpet.model import JSON, ScopeInfo, ScopeKey, SnapshotInfo
from limpet.protocol import Backend, NoteQuery, Query, SessionAge, Target
from limpet.server import answers, schema
from limpet.server.answers import Answer, Listing
from limpet.server.call import Call, Param, seq_after
from limpet.server.operations.declare import (
    ANY_SESSION,
    LABELS,
    LIMIT,
    PAGE,
    PREFIX_PARAM,
    SESSION,
    SNAPSHOT,
    STATUS_PARAM,
    Result,
    finding_json,
    found_notes,
    info_json,
    operation,
)
from limpet.server.schema import BOOLEAN, COUNT, ID, KIND, PREFIX, TEXT, array, nullable, record

_REFS_MAX = 1000


@operation(
    "GET",
    "/v1",
    answer=record(
        {
            "server": TEXT,
            "version": TEXT,
            "capabilities": array(TEXT),
            "state_bytes_max": COUNT,
            "write": BOOLEAN,
            "prefix": TEXT,
        }
    ),
)
async def about(call: Call) -> Result:
    """What this server can do, and what this token may do."""
    from limpet import __version__

    capabilities = await call.driver.run(lambda backend: sorted(backend.capabilities))
    return {
        "server": "limpet",
        "version": __version__,
        "capabilities": capabilities,
        "state_bytes_max": call.driver.tools.state_bytes_max,
        "write": call.grant.write,
        "prefix": call.grant.prefix,
    }


@operation(
    "GET",
    "/v1/sessions",
    PREFIX_PARAM,
    *PAGE,
    answer=answers.page_of(ID),
)
async def sessions(call: Call) -> Result:
    """The sessions, in text order."""
    prefix = call.prefix

    def fetch(backend: Backend, after: str | None, limit: int) -> list[str]:
        return backend.list_sessions(prefix=prefix, after=after or "", limit=limit)

    return Listing(fetch, str, str)


@operation(
    "GET",
    "/v1/newest",
    PREFIX_PARAM,
    *PAGE,
    answer=answers.page_of(record({"session_id": ID, "created_at": {"type": ["integer", "null"]}})),
)
async def newest(call: Call) -> Result:
    """The sessions, those with the newest head first; `created_at` is in microseconds."""
    prefix = call.prefix

    def fetch(backend: Backend, after: str | None, limit: int) -> list[SessionAge]:
        last = None if after is None else wire.age_at(after)
        return backend.list_newest(prefix=prefix, after=last, limit=limit)

    return Listing(fetch, wire.age_cursor, SessionAge._asdict)


@operation("DELETE", "/v1/sessions", SESSION, answer=answers.DELETED)
async def delete_session(call: Call) -> Result:
    """Delete a session."""
    session_id = call.grant.check_session(call.params["session_id"])
    return {"deleted": await call.driver.run(lambda backend: backend.delete_session(session_id))}


@operation(
    "GET",
    "/v1/scopes",
    ANY_SESSION,
    Param("kind", KIND, "only of this kind"),
    PREFIX_PARAM,
    *PAGE,
    answer=answers.page_of(answers.SCOPE_INFO),
)
async def scopes(call: Call) -> Result:
    """The scopes with their heads, by session, kind and id."""
    session_id, kind, prefix = call.params.get("session_id"), call.params.get("kind"), call.prefix
    if session_id is not None:
        call.grant.check_session(session_id)

    def fetch(backend: Backend, after: str | None, limit: int) -> list[Any]:
        return backend.list_scopes(
            session_id=session_id,
            kind=kind,
            prefix=prefix,
            after=None if after is None else ScopeKey(*wire.cursor_parts(after, 3)),
            limit=limit,
        )

    def encode(info: ScopeInfo) -> dict[str, JSON]:
        head = None if info.head is None else info_json(call, info.head)
        return {**wire.scope_json(info.key), "head": head}

    return Listing(fetch, lambda each: wire.cursor_text(*each.key), encode)


def history_of(call: Call, query: Query) -> Listing:
    def fetch(backend: Backend, after: str | None, limit: int) -> list[SnapshotInfo]:
        return backend.list_snapshots(query._replace(after=seq_after(after)), limit=limit)

    return Listing(fetch, lambda info: info.revision, partial(info_json, call))


@operation(
    "GET",
    "/v1/history",
    PREFIX_PARAM,
    SNAPSHOT._replace(what="only with this id"),
    LABELS,
    STATUS_PARAM,
    *PAGE,
    answer=answers.page_of(answers.INFO),
)
async def history(call: Call) -> Result:
    """Kept snapshots of all scopes, the last saved first."""
    status = call.params.get("status")
    return history_of(
        call, Query(prefix=call.prefix, id=call.id, labels=call.labels, status=status)
    )


@operation(
    "GET",
    "/v1/refs",
    Param("id_prefix", PREFIX, "how the ids begin", required=True),
    LIMIT,
    answer=record({"items": array(answers.REF)}),
)
async def refs(call: Call) -> Result:
    """The addresses of kept snapshots whose ids begin with a text."""
    call.grant.check_whole()
    begin, limit = call.params["id_prefix"], min(call.params.get("limit", 100), _REFS_MAX)
    found = await call.driver.run(lambda backend: backend.find_refs(begin, limit=limit))
    return {"items": [wire.ref_json(each) for each in found]}


_TARGET = record({"session_id": ID, "scope_id": ID, "kind": KIND}, {"id": nullable(ID)})


@operation(
    "POST",
    "/v1/revisions",
    body=record({"targets": array(_TARGET, maxItems=500)}),
    answer=record({"revisions": array(nullable(TEXT))}),
    writes=False,
)
async def revisions(call: Call) -> Result:
    """The revision of each head or snapshot, null where there is none."""
    targets = [
        Target(call.allowed(*wire.scope_of(each)), each.get("id")) for each in call.body["targets"]
    ]
    found = await call.driver.run(lambda backend: backend.read_revisions(targets))
    return {"revisions": found}


_FIND = record(
    {"scope_id": ID, "kind": KIND},
    {"under": PREFIX, "where": schema.ANYTHING, "values": BOOLEAN, "limit": COUNT},
)


@operation(
    "POST",
    "/v1/notes/find",
    body=_FIND,
    answer=record({"items": array(answers.FOUND_NOTE)}),
    writes=False,
)
async def find_notes(call: Call) -> Result:
    """Notes of scopes of many sessions, the last written first."""
    given = dict(call.body)
    limit = given.pop("limit", limits.PAGE_ITEMS_MAX)
    query, prefix = NoteQuery(**given), call.grant.prefix
    matching.check(query.where)
    if prefix:
        call.grant.check_session(f"{query.under}/")

    def work(backend: Backend) -> Answer:
        # With `under="a"` a token for `a/` asks for the session `a` too, which it may not see.
        asked = limit
        while True:
            found = backend.find_notes(query, limit=asked)
            inside = [each for each in found if each.scope.session_id.startswith(prefix)]
            if len(inside) >= limit or len(found) < asked:
                return found_notes(inside[:limit])
            asked *= 2

    return await call.driver.run(work)


@operation(
    "GET",
    "/v1/stats",
    ANY_SESSION,
    LIMIT._replace(what="of `largest`; then a session's largest keys are left out"),
    answer=answers.STATS,
)
async def stats(call: Call) -> Result:
    """The size of the store or a session."""
    session_id = call.params.get("session_id")
    if session_id is None:
        call.grant.check_whole()
    else:
        call.grant.check_session(session_id)
    limit = call.params.get("limit")
    if limit is None:
        return wire.stats_json(await call.driver.run(upkeep.stats(session_id)))
    count = min(limit, limits.PAGE_ITEMS_MAX)
    found = await call.driver.run(lambda backend: backend.read_stats(session_id, limit=count))
    return wire.stats_json(found)


@operation(
    "GET",
    "/v1/largest",
    SESSION,
    LIMIT,
    answer=record({"items": array(answers.INFO)}),
)
async def largest(call: Call) -> Result:
    """The heads of a session with the largest states."""
    session_id, limit = call.grant.check_session(call.params["session_id"]), call.page_limit
    found = await call.driver.run(
        lambda backend: backend.list_largest_heads(session_id, limit=limit)
    )
    return {"items": [info_json(call, each) for each in found]}


@operation("POST", "/v1/compact", answer=record({"bytes": COUNT}))
async def compact(call: Call) -> Result:
    """Give unused space back."""
    call.grant.check_whole()
    return {"bytes": await call.driver.run(lambda backend: backend.compact())}


async def _checked(call: Call, *, repair: bool) -> Result:
    call.grant.check_whole()
    after, limit = call.params.get("after", ""), call.page_limit
    found, following = await call.driver.run(
        lambda backend: backend.check(after, repair=repair, limit=limit)
    )
    return {"items": [wire.finding_json(each) for each in found], "next": following}


@operation("GET", "/v1/check", *PAGE, answer=answers.page_of(answers.FINDING))
async def check(call: Call) -> Result:
    """Check a part of the store."""
    return await _checked(call, repair=False)


@operation(
    "POST",
    "/v1/repair",
    *PAGE,
    answer=answers.page_of(answers.FINDING),
)
async def repair(call: Call) -> Result:
    """Repair a part of the store."""
    return await _checked(call, repair=True)


@operation("GET", "/v1/unlisted", answer=answers.FINDINGS)
async def unlisted(call: Call) -> Result:
    """What is in no scope that is listed."""
    found = await call.driver.run(lambda backend: backend.list_unlisted())
    prefix = call.grant.prefix
    if prefix:
        found = [each for each in found if each.scope and each.scope[0].startswith(prefix)]
    return {"items": [finding_json(call, each) for each in found]}
