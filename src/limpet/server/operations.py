"""What the operations of the API do: a function for each in `core/operations.py`, with its name.

It gets a request that was checked, asks the backend once (or drives a verb of `limpet.api`), and
returns a value, which `Call.answer` makes JSON of. Those that are one method of the backend have no
function. What a token may see is checked by `Call` and `Grant`, and tested for every operation.
"""

import inspect
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeAlias

from limpet.api import branching, upkeep, verbs
from limpet.core import limits, matching, prepare, wire
from limpet.core.codec import encode
from limpet.core.operations import NAMED, OPERATIONS, Handler, Operation
from limpet.errors import InvalidInput
from limpet.model import ANY, Expect, Finding, Note, ScopeInfo, ScopeKey, SnapshotInfo
from limpet.protocol import (
    Backend,
    Claim,
    Commit,
    Copy,
    FoundNote,
    NoteChange,
    NoteDelete,
    NoteQuery,
    NoteWrite,
    Query,
    Target,
    Topic,
)
from limpet.server import streams
from limpet.server.call import Answer, Call, Listing, Response, Stream

Result: TypeAlias = Answer | Listing | Stream | Response | None

_REFS_DEFAULT, _REFS_MAX = 100, 1000
_FUNCTIONS: dict[str, Handler] = {}


def operation(handler: Handler) -> Handler:
    """Make this the function of the operation with its name."""
    _FUNCTIONS[NAMED[handler.__name__].name] = handler
    return handler


def handler_of(operation: Operation) -> Handler:
    """Return the function of an operation, or of a page."""
    return operation.handler or _HANDLERS[operation.name]


def _backend_method(operation: Operation) -> Handler:
    """Return the function of an operation that is one method of the backend."""
    name = operation.backend
    signature = inspect.signature(getattr(Backend, name))

    async def handler(call: Call) -> Result:
        given = call.arguments([*signature.parameters.values()][1:])

        def work(backend: Backend, **page: Any) -> Any:
            bound = signature.bind(backend, **{**given, **page})
            return getattr(backend, name)(*bound.args[1:], **bound.kwargs)

        if operation.cursor is None:
            return await call.ask(work)
        return Listing(lambda backend, after, limit: work(backend, after=after, limit=limit))

    return handler


# The store


@operation
async def about(call: Call) -> Result:
    from limpet import __version__

    return await call.ask(
        lambda backend: {
            "server": "limpet",
            "version": __version__,
            "capabilities": sorted(backend.capabilities),
            "state_bytes_max": call.driver.tools.state_bytes_max,
            "write": call.grant.write,
            "prefix": call.grant.prefix,
        }
    )


@operation
async def history(call: Call) -> Result:
    return _history(call, Query(prefix=call.prefix))


@operation
async def scope_history(call: Call) -> Result:
    return _history(call, Query(call.scope, leaves=call.params.get("leaves", False)))


def _history(call: Call, query: Query) -> Listing:
    query = query._replace(id=call.id, labels=call.labels, status=call.params.get("status"))

    def fetch(backend: Backend, after: int | None, limit: int) -> list[SnapshotInfo]:
        return backend.list_snapshots(query._replace(after=after), limit=limit)

    return Listing(fetch)


@operation
async def refs(call: Call) -> Result:
    call.grant.check_whole()
    begin = call.params["id_prefix"]
    limit = min(call.params.get("limit", _REFS_DEFAULT), _REFS_MAX)
    return await call.ask(lambda backend: backend.find_refs(begin, limit=limit))


@operation
async def revisions(call: Call) -> Result:
    targets = [
        Target(call.allowed(*wire.scope_of(each)), each.get("id")) for each in call.body["targets"]
    ]
    return await call.ask(lambda backend: backend.read_revisions(targets))


@operation
async def find_notes(call: Call) -> Result:
    given = dict(call.body)
    limit = given.pop("limit", limits.PAGE_ITEMS_MAX)
    query, prefix = NoteQuery(**given), call.grant.prefix
    matching.check(query.where)
    if prefix:
        call.grant.check_session(f"{query.under}/")

    def work(backend: Backend) -> list[FoundNote]:
        # With `under="a"` a token for `a/` asks for the session `a` too, which it may not see.
        asked = limit
        while True:
            found = backend.find_notes(query, limit=asked)
            inside = [each for each in found if each.scope.session_id.startswith(prefix)]
            if len(inside) >= limit or len(found) < asked:
                return inside[:limit]
            asked *= 2

    return await call.ask(work)


@operation
async def stats(call: Call) -> Result:
    session_id, limit = call.params.get("session_id"), call.params.get("limit")
    if session_id is None:
        call.grant.check_whole()
    else:
        call.grant.check_session(session_id)
    if limit is None:
        return await call.ask(upkeep.stats(session_id))
    count = min(limit, limits.PAGE_ITEMS_MAX)
    return await call.ask(lambda backend: backend.read_stats(session_id, limit=count))


@operation
async def check(call: Call) -> Result:
    return await _check(call, repair=False)


@operation
async def repair(call: Call) -> Result:
    return await _check(call, repair=True)


async def _check(call: Call, *, repair: bool) -> Result:
    call.grant.check_whole()
    after, limit = call.params.get("after", ""), call.limit
    return await call.ask(lambda backend: backend.check(after, repair=repair, limit=limit))


@operation
async def unlisted(call: Call) -> Result:
    def work(backend: Backend) -> list[Finding]:
        found, prefix = backend.list_unlisted(), call.grant.prefix
        if not prefix:
            return found
        return [each for each in found if each.scope and each.scope[0].startswith(prefix)]

    return await call.ask(work)


# The snapshots of a scope


@operation
async def save(call: Call) -> Result:
    scope, given = call.scope, call.body
    if ("state" in given) == given.get("copy", False):
        raise InvalidInput("give a state, or copy: true")
    source = wire.ref_of(given.get("forked_from"))
    if source is not None:
        call.allowed(*source.scope)
    if given.get("copy") and not {"forked_from", "source"} <= given.keys():
        raise InvalidInput("a copy needs forked_from, and its revision as source")
    names = ("id", "parent", "keep", "head", "overwrite", "status", "labels", "metadata")
    prepared = partial(
        prepare.save,
        scope,
        given.get("state"),
        stamp=call.stamp(),
        state_bytes_max=call.driver.tools.state_bytes_max,
        created_at=_time(given.get("created_at")),
        forked_from=source,
        fence=call.fence,
        **{name: given[name] for name in names if name in given},
    )
    commit: Commit = await call.driver.encoded(given.get("state"), prepared)
    bare = ("replaces", "source", "new_scope", "past_damage")
    more = {name: given[name] for name in bare if name in given}
    if given.get("copy"):
        more |= {"body": Copy(), "append_offsets": None}
    return await _commit(call, commit._replace(**more))


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            "a time is written as 2026-11-17T09:30:00Z", path="/created_at"
        ) from None


@operation
async def append(call: Call) -> Result:
    given, bytes_max = call.body, call.driver.tools.state_bytes_max
    options = {**given, "state_bytes_max": min(bytes_max, given.get("state_bytes_max", bytes_max))}
    commit = prepare.append(call.scope, **options, fence=call.fence, stamp=call.stamp())
    return await _commit(call, commit)


async def _commit(call: Call, commit: Commit) -> Result:
    # `expect` is the client's text as it is: it was not minted here.
    return await call.ask(verbs.save(commit._replace(expect=call.expect, again=call.again)))


@operation
async def load(call: Call) -> Result:
    scope, snapshot_id, visible = call.scope, call.id, call.grant.visible

    def work(backend: Backend) -> Answer | None:
        found = backend.read_snapshots(scope, [snapshot_id])
        if not found:
            return None
        info, body = found[0]
        return Answer(wire.encode_found((visible(info), body)), info.revision)

    return await call.driver.run(work)


@operation
async def info(call: Call) -> Result:
    scope, snapshot_id = call.scope, call.id
    return await call.ask(lambda backend: backend.read_info(scope, snapshot_id))


@operation
async def load_many(call: Call) -> Result:
    return streams.snapshots(call, call.scope, call.body["ids"])


@operation
async def ancestors(call: Call) -> Result:
    walk, limit = branching.ancestors(call.scope, call.params["id"]), call.limit
    found: list[SnapshotInfo] = []
    if limit:
        async for each in call.driver.stream(walk):
            found.append(each)
            if len(found) == limit:
                break
    following = found[-1].parent_id if found and len(found) == limit else None
    return call.answer((found, following))


@operation
async def diff(call: Call) -> Result:
    return await call.ask(branching.difference(call.scope, call.params["a"], call.params["b"]))


@operation
async def fork(call: Call) -> Result:
    given = call.body
    to = given.get("to")
    if to is not None:
        call.grant.check_session(to)
    options = {name: given.get(name) for name in ("to", "scope_id", "patch", "labels", "metadata")}
    key: ScopeKey = await call.driver.drive(branching.fork(call.context, given["id"], **options))
    return await call.ask(lambda backend: ScopeInfo(key, backend.read_info(key, None)))


@operation
async def restore(call: Call) -> Result:
    given = call.body
    work = branching.restore(
        call.context,
        given["id"],
        labels=given.get("labels"),
        metadata=given.get("metadata"),
        expect=call.expect,
    )
    return await call.ask(work)


@operation
async def prune(call: Call) -> Result:
    given = call.body
    age_s = given.get("older_than_s")
    verb = upkeep.prune(
        call.context._replace(tools=call.driver.tools),
        keep_last=given.get("keep_last"),
        older_than=None if age_s is None else timedelta(seconds=age_s),
        dry_run=given.get("dry_run", False),
    )
    return call.answer(await call.driver.drive(verb))


# The notes of a scope


@operation
async def list_notes(call: Call) -> Result:
    return _notes(call, call.params["on"] or [None], call.params.get("name"))


@operation
async def list_many_notes(call: Call) -> Result:
    return _notes(call, call.body["on"], call.body.get("name"))


def _notes(call: Call, on: Sequence[str | None], name: str | None) -> Listing:
    scope, owners = call.scope, [*dict.fromkeys(each or None for each in on)]

    def fetch(backend: Backend, after: list[str] | None, limit: int) -> list[Note]:
        rest, last = owners, ""
        if after is not None:
            owner, last = after[0] or None, after[1]
            rest = owners[owners.index(owner) :] if owner in owners else []
        return backend.list_notes(scope, on=rest, name=name, after=last, limit=limit)

    return Listing(fetch)


@operation
async def read_note(call: Call) -> Result:
    scope, name, on = call.scope, call.params["name"], call.params.get("on")

    def work(backend: Backend) -> Note | None:
        found = backend.list_notes(scope, on=[on], name=name, after="", limit=1)
        return found[0] if found else None

    return await call.ask(work)


@operation
async def write_note(call: Call) -> Result:
    change = _write(call, call.params["name"], call.params.get("on"), call.body, call.expect)
    return await call.ask(lambda backend: backend.write_note(change))


def _write(call: Call, name: str, on: str | None, value: Any, expect: Expect) -> NoteWrite:
    return prepare.note_write(
        call.scope,
        name,
        value,
        on=on,
        expect=expect,
        fence=call.fence,
        stamp=call.stamp(),
        state_bytes_max=call.driver.tools.state_bytes_max,
    )


@operation
async def write_notes(call: Call) -> Result:
    changes = [_change(call, each) for each in call.body["changes"]]
    await call.driver.run(lambda backend: backend.write_notes(changes))
    return call.answer({})


def _change(call: Call, given: dict[str, Any]) -> NoteChange:
    name, on, expect = given["name"], given.get("on"), given.get("expect", ANY)
    if given.get("delete", False):
        return NoteDelete(call.scope, name, on, expect, call.fence)
    if "value" not in given:
        raise InvalidInput(f"a change has a value, or delete: true. name=`{name}`")
    write, keep = _write(call, name, on, given["value"], expect), given.get("keep")
    if "stamp" in given:
        stamp = wire.stamp_of(given["stamp"])
        write = write._replace(stamp=stamp._replace(now=min(stamp.now, write.stamp.now)))
    if keep is None:
        return write
    if not isinstance(given["value"], dict) or keep["key"] in given["value"]:
        raise InvalidInput(f"`keep` adds a member to an object that lacks it. name=`{name}`")
    return write._replace(keep=(keep["key"], encode(keep["value"])))


# The lease of a scope


def _claim(call: Call) -> Claim:
    stamp, given = call.stamp(), call.body
    key = given.get("key", f"{stamp.nonce}{stamp.bits:020x}")
    return Claim(call.scope, key, given["owner"], int(given["ttl_s"] * 1_000_000), stamp)


@operation
async def claim(call: Call) -> Result:
    asked = _claim(call)
    held = await call.driver.run(lambda backend: backend.claim(asked))
    return call.answer({**held._asdict(), "held": held.key == asked.key})


@operation
async def renew(call: Call) -> Result:
    asked = _claim(call)
    held = await call.driver.run(lambda backend: backend.renew(asked))
    return call.answer({**held._asdict(), "held": True})


@operation
async def release(call: Call) -> Result:
    asked = Claim(call.scope, call.params["key"], "", 0, call.stamp())
    await call.driver.run(lambda backend: backend.release(asked))
    return call.answer({})


@operation
async def read_lease(call: Call) -> Result:
    scope, now = call.scope, call.stamp().now
    held = await call.driver.run(lambda backend: backend.read_lease(scope, now=now))
    if held is None:
        return None
    # Anyone who knows the key can write under it.
    shown = held if call.grant.write else held._replace(key="")
    return call.answer({**shown._asdict(), "held": False})


# Watching


@operation
async def watch(call: Call) -> Result:
    session_id = call.params.get("session_id")
    if session_id is not None:
        call.grant.check_session(session_id)
    return streams.events(call, verbs.topic(session_id, call.id, call.prefix))


@operation
async def scope_watch(call: Call) -> Result:
    return streams.events(call, verbs.scope_topic(call.scope, call.id))


@operation
async def changes(call: Call) -> Result:
    return streams.changes(call.driver, [_topic(call, each) for each in call.body["topics"]])


def _topic(call: Call, given: dict[str, str]) -> Topic:
    """Return a topic; with a scope id it is one scope."""
    session_id = given.get("session_id")
    if session_id is not None:
        call.grant.check_session(session_id)
    if "scope_id" in given:
        if session_id is None:
            raise InvalidInput("a topic with a scope_id needs its session_id")
        scope = call.allowed(session_id, given["scope_id"], given.get("kind", "agent"))
        return Topic(Target(scope, given.get("id")))
    prefix = call.grant.within(given.get("prefix", ""))
    return Topic(session_id=session_id, prefix=prefix, id=given.get("id"))


_HANDLERS = {each.name: _FUNCTIONS.get(each.name) or _backend_method(each) for each in OPERATIONS}
