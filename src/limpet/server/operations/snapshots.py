"""Operations on the snapshots of one scope."""

from dataclasses import asdict
from datetime import datetime, timedelta
from functools import partial

from limpet.api import branching, upkeep, verbs
from limpet.api.opened import JSON_MODEL
from limpet.core import codec, prepare, wire
from limpet.errors import InvalidInput
from limpet.model import ANY, HEAD, ScopeKey
from limpet.protocol import Backend, Commit, Copy, Query
from limpet.server import answers, schema, streams
from limpet.server.answers import Answer, Listing
from limpet.server.call import Call, Param
from limpet.server.operations.declare import (
    LABELS,
    LIMIT,
    ONE,
    PAGE,
    SCOPE_PARAMS,
    SNAPSHOT,
    STATUS_PARAM,
    Result,
    finding_json,
    info_json,
    operation,
    stored,
)
from limpet.server.operations.store import history_of
from limpet.server.schema import BOOLEAN, COUNT, ID, STATUS, TEXT, Schema, array, nullable, record

_FACTS: dict[str, Schema] = {
    "status": STATUS,
    "labels": schema.LABELS,
    "metadata": schema.METADATA,
}
_SAVE = record(
    {},
    {
        "state": schema.ANYTHING,
        "id": ID,
        "parent": nullable(ID),
        "keep": BOOLEAN,
        "head": BOOLEAN,
        "overwrite": BOOLEAN,
        **_FACTS,
        "created_at": schema.TIME,
        "forked_from": answers.REF,
        "replaces": TEXT,
        "source": TEXT,
        "copy": BOOLEAN,
        "new_scope": BOOLEAN,
        "past_damage": BOOLEAN,
    },
)
_BARE = ("replaces", "source", "new_scope", "past_damage")


@operation(
    "POST",
    "/v1/scope/save",
    *SCOPE_PARAMS,
    body=_SAVE,
    answer=answers.INFO,
    conditional=True,
)
async def save(call: Call) -> Result:
    """Save a state: kept, and the head, unless asked otherwise."""
    scope, given = call.scope, call.body
    if ("state" in given) == given.get("copy", False):
        raise InvalidInput("give a state, or copy: true")
    source = wire.ref_of(given.get("forked_from"))
    if source is not None:
        call.allowed(*source.scope)
    if given.get("copy") and not {"forked_from", "source"} <= given.keys():
        raise InvalidInput("a copy needs forked_from, and its revision as source")
    options = {name: given[name] for name in ("id", "keep", "head", "overwrite") if name in given}
    encode = partial(
        prepare.save,
        scope,
        given.get("state"),
        stamp=call.stamp(),
        state_bytes_max=call.driver.tools.state_bytes_max,
        parent=given.get("parent", HEAD),
        status=given.get("status", ""),
        labels=given.get("labels"),
        metadata=given.get("metadata"),
        created_at=_time(given.get("created_at")),
        forked_from=source,
        fence=call.fence,
        **options,
    )
    commit: Commit = await call.driver.encoded(given.get("state"), encode)
    bare = {name: given[name] for name in _BARE if name in given}
    if given.get("copy"):
        bare |= {"body": Copy(), "append_offsets": None}
    return await _commit(call, commit._replace(expect=call.expect, **bare))


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            "a time is written as 2026-11-17T09:30:00Z", path="/created_at"
        ) from None


@operation(
    "POST",
    "/v1/scope/append",
    *SCOPE_PARAMS,
    body=record(
        {"key": TEXT, "items": array(schema.ANYTHING)},
        {"keep": BOOLEAN, **_FACTS, "state_bytes_max": COUNT},
    ),
    answer=answers.INFO,
    conditional=True,
)
async def append(call: Call) -> Result:
    """Add items to a list at the top level of the head's state."""
    given, bytes_max = call.body, call.driver.tools.state_bytes_max
    commit = prepare.append(
        call.scope,
        given["key"],
        given["items"],
        keep=given.get("keep", True),
        status=given.get("status"),
        labels=given.get("labels"),
        metadata=given.get("metadata"),
        expect=ANY,
        fence=call.fence,
        stamp=call.stamp(),
        state_bytes_max=min(bytes_max, given.get("state_bytes_max", bytes_max)),
    )
    return await _commit(call, commit._replace(expect=call.expect))


async def _commit(call: Call, commit: Commit) -> Answer:
    return stored(call, await call.driver.run(verbs.save(commit._replace(again=call.again))))


# Reading snapshots


@operation(
    "GET",
    "/v1/scope/snapshot",
    *SCOPE_PARAMS,
    SNAPSHOT,
    answer=answers.SNAPSHOT,
    conditional=True,
)
async def load(call: Call) -> Result:
    """One snapshot with its state."""
    scope, snapshot_id, visible = call.scope, call.id, call.grant.visible

    def work(backend: Backend) -> Answer | None:
        found = backend.read_snapshots(scope, [snapshot_id])
        if not found:
            return None
        info, body = found[0]
        return Answer(wire.encode_found((visible(info), body)), info.revision)

    return await call.driver.run(work)


@operation(
    "GET",
    "/v1/scope/info",
    *SCOPE_PARAMS,
    SNAPSHOT,
    answer=answers.INFO,
    conditional=True,
)
async def info(call: Call) -> Result:
    """One snapshot without its state."""
    scope, snapshot_id = call.scope, call.id
    found = await call.driver.run(lambda backend: backend.read_info(scope, snapshot_id))
    return None if found is None else stored(call, found)


@operation(
    "POST",
    "/v1/scope/load_many",
    *SCOPE_PARAMS,
    body=record({"ids": array(nullable(ID), maxItems=answers.LIST_ITEMS_MAX)}),
    answer=answers.SNAPSHOT,
    writes=False,
)
async def load_many(call: Call) -> Result:
    """Snapshots with their states, each once, as JSON lines; missing ones are left out."""
    return streams.snapshots(call, call.scope, call.body["ids"])


@operation(
    "GET",
    "/v1/scope/history",
    *SCOPE_PARAMS,
    SNAPSHOT._replace(what="only this one"),
    LABELS,
    STATUS_PARAM,
    Param("leaves", BOOLEAN, "without the parents of kept snapshots"),
    *PAGE,
    answer=answers.page_of(answers.INFO),
)
async def scope_history(call: Call) -> Result:
    """The kept snapshots of a scope, the last saved first."""
    given = call.params
    query = Query(
        call.scope,
        id=call.id,
        labels=call.labels,
        status=given.get("status"),
        leaves=given.get("leaves", False),
    )
    return history_of(call, query)


@operation(
    "GET",
    "/v1/scope/ids",
    *SCOPE_PARAMS,
    *PAGE,
    answer=answers.page_of(ID),
)
async def scope_ids(call: Call) -> Result:
    """The ids of kept snapshots, in text order."""
    scope = call.scope

    def fetch(backend: Backend, after: str | None, limit: int) -> list[str]:
        return backend.list_ids(scope, after=after or "", limit=limit)

    return Listing(fetch, str, str)


@operation(
    "GET",
    "/v1/scope/ancestors",
    *SCOPE_PARAMS,
    ONE,
    LIMIT,
    answer=answers.page_of(answers.INFO),
)
async def ancestors(call: Call) -> Result:
    """A snapshot, its parent and so on. Pass `next` as `id` to go on."""
    walk, limit = branching.ancestors(call.scope, call.params["id"]), call.page_limit
    if not limit:
        return {"items": [], "next": None}
    found = []
    async for each in call.driver.stream(walk):
        found.append(each)
        if len(found) == limit:
            break
    following = found[-1].parent_id if len(found) == limit else None
    return {"items": [info_json(call, each) for each in found], "next": following}


@operation(
    "GET",
    "/v1/scope/diff",
    *SCOPE_PARAMS,
    Param("a", ID, "the old snapshot", required=True),
    Param("b", ID, "the new snapshot", required=True),
    answer=answers.DIFF,
)
async def diff(call: Call) -> Result:
    """What changed from one snapshot to another."""
    compare = branching.difference(call.scope, call.params["a"], call.params["b"])

    def work(backend: Backend) -> Answer:
        found = compare(backend)
        changes = [asdict(each) for each in found.changes]
        return Answer(codec.encode({"changes": changes, "patch": found.to_json_patch()}))

    return await call.driver.run(work)


@operation(
    "GET",
    "/v1/scope/damage",
    *SCOPE_PARAMS,
    answer=answers.FINDINGS,
)
async def damage(call: Call) -> Result:
    """What is so damaged in a scope that its listings leave it out."""
    scope = call.scope
    found = await call.driver.run(lambda backend: backend.list_damage(scope))
    return {"items": [finding_json(call, each) for each in found]}


# Branches and deletion


@operation(
    "POST",
    "/v1/scope/fork",
    *SCOPE_PARAMS,
    body=record(
        {"id": ID},
        {
            "to": ID,
            "scope_id": ID,
            "patch": {"type": "object"},
            "labels": schema.LABELS,
            "metadata": schema.METADATA,
        },
    ),
    answer=answers.SCOPE_INFO,
)
async def fork(call: Call) -> Result:
    """Begin a new line at a snapshot."""
    given = call.body
    to = given.get("to")
    if to is not None:
        call.grant.check_session(to)
    options = {name: given.get(name) for name in ("to", "scope_id", "patch", "labels", "metadata")}
    key: ScopeKey = await call.driver.drive(
        branching.fork(call.tools, call.scope, given["id"], JSON_MODEL, **options)
    )
    head = await call.driver.run(lambda backend: backend.read_info(key, None))
    return {**wire.scope_json(key), "head": None if head is None else info_json(call, head)}


@operation(
    "POST",
    "/v1/scope/restore",
    *SCOPE_PARAMS,
    body=record({"id": ID}, {"labels": schema.LABELS, "metadata": schema.METADATA}),
    answer=answers.INFO,
    conditional=True,
)
async def restore(call: Call) -> Result:
    """Save an earlier state as the new head."""
    given = call.body
    work = branching.restore(
        call.tools,
        call.scope,
        given["id"],
        labels=given.get("labels"),
        metadata=given.get("metadata"),
        expect=call.expect,
        fence=call.fence,
    )
    return stored(call, await call.driver.run(work))


@operation(
    "POST",
    "/v1/scope/prune",
    *SCOPE_PARAMS,
    body=record({}, {"keep_last": COUNT, "older_than_s": schema.AGE, "dry_run": BOOLEAN}),
    answer=answers.PRUNED,
)
async def prune(call: Call) -> Result:
    """Delete old snapshots, never the head."""
    given = call.body
    age_s = given.get("older_than_s")
    verb = upkeep.prune(
        call.driver.tools,
        call.scope,
        keep_last=given.get("keep_last"),
        older_than=None if age_s is None else timedelta(seconds=age_s),
        dry_run=given.get("dry_run", False),
        fence=call.fence,
    )
    return asdict(await call.driver.drive(verb))


@operation(
    "POST",
    "/v1/scope/delete_snapshots",
    *SCOPE_PARAMS,
    body=record({"ids": answers.IDS}, {"spare_head": BOOLEAN}),
    answer=answers.PRUNED,
)
async def delete_snapshots(call: Call) -> Result:
    """Delete snapshots and the notes on their ids."""
    scope, fence, given = call.scope, call.fence, call.body
    found = await call.driver.run(
        lambda backend: backend.delete_snapshots(
            scope, given["ids"], spare_head=given.get("spare_head", False), fence=fence
        )
    )
    return asdict(found)


@operation(
    "DELETE",
    "/v1/scope",
    *SCOPE_PARAMS,
    answer=answers.DELETED,
    conditional=True,
)
async def delete_scope(call: Call) -> Result:
    """Delete a scope with its notes."""
    scope, expect, fence = call.scope, call.expect, call.fence
    found = await call.driver.run(
        lambda backend: backend.delete_scope(scope, expect=expect, fence=fence)
    )
    return {"deleted": found}
