"""Operations on the notes and the lease of one scope."""

from collections.abc import Sequence
from typing import Any

from limpet.core import prepare, wire
from limpet.core.codec import encode
from limpet.errors import InvalidInput
from limpet.model import ANY, Expect, Note
from limpet.protocol import Backend, Claim, NoteChange, NoteDelete, NoteWrite
from limpet.server import answers, schema
from limpet.server.answers import Answer, Listing
from limpet.server.call import Call, Param
from limpet.server.operations.declare import (
    NAME,
    ON,
    PAGE,
    SCOPE_PARAMS,
    Result,
    found_notes,
    operation,
)
from limpet.server.schema import BOOLEAN, ID, PREFIX, TEXT, array, nullable, record

_ON_SCOPE = ""  # in a query, the notes of the scope itself


@operation(
    "GET",
    "/v1/scope/notes",
    *SCOPE_PARAMS,
    Param("on", PREFIX, "a snapshot id, may be repeated; empty: the scope itself", many=True),
    Param("name", ID, "only with this name"),
    *PAGE,
    answer=answers.page_of(answers.NOTE),
)
async def list_notes(call: Call) -> Result:
    """The notes of a scope, or on snapshot ids, ordered by name."""
    return _listed(call, call.params["on"] or [_ON_SCOPE], call.params.get("name"))


@operation(
    "POST",
    "/v1/scope/notes/list",
    *SCOPE_PARAMS,
    *PAGE,
    body=record({"on": array(nullable(ID), maxItems=answers.LIST_ITEMS_MAX)}, {"name": ID}),
    answer=answers.page_of(answers.NOTE),
    writes=False,
)
async def list_many_notes(call: Call) -> Result:
    """The same for more snapshot ids than an address can hold; null: the scope itself."""
    return _listed(call, call.body["on"], call.body.get("name"))


def _listed(call: Call, on: Sequence[str | None], name: str | None) -> Listing:
    scope, owners = call.scope, [each or None for each in dict.fromkeys(on)]

    def fetch(backend: Backend, after: str | None, limit: int) -> list[Note]:
        rest, last = owners, ""
        if after is not None:
            owner, last = wire.cursor_parts(after, 2)
            rest = owners[owners.index(owner or None) :] if (owner or None) in owners else []
        return backend.list_notes(scope, on=rest, name=name, after=last, limit=limit)

    return Listing(
        fetch, lambda note: wire.cursor_text(note.snapshot_id or "", note.name), wire.note_json
    )


@operation(
    "GET",
    "/v1/scope/note",
    *SCOPE_PARAMS,
    NAME,
    ON,
    answer=answers.NOTE,
    conditional=True,
)
async def read_note(call: Call) -> Result:
    """One note."""
    scope, name, on = call.scope, call.params["name"], call.params.get("on")
    found = await call.driver.run(
        lambda backend: backend.list_notes(scope, on=[on], name=name, after="", limit=1)
    )
    return _written(found[0]) if found else None


def _written(note: Note) -> Answer:
    return Answer(encode(wire.note_json(note)), note.revision)


@operation(
    "PUT",
    "/v1/scope/note",
    *SCOPE_PARAMS,
    NAME,
    ON,
    body=schema.ANYTHING,
    answer=answers.NOTE,
    conditional=True,
)
async def write_note(call: Call) -> Result:
    """Write a note; the body is its value."""
    change = _write(call, call.params["name"], call.params.get("on"), call.body, call.expect)
    return _written(await call.driver.run(lambda backend: backend.write_note(change)))


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


@operation(
    "DELETE",
    "/v1/scope/note",
    *SCOPE_PARAMS,
    NAME,
    ON,
    answer=answers.DELETED,
)
async def delete_note(call: Call) -> Result:
    """Delete a note."""
    scope, fence = call.scope, call.fence
    name, on = call.params["name"], call.params.get("on")
    found = await call.driver.run(
        lambda backend: backend.delete_note(scope, name, on=on, fence=fence)
    )
    return {"deleted": found}


_CHANGE = record(
    {"name": ID},
    {
        "on": nullable(ID),
        "value": schema.ANYTHING,
        "delete": BOOLEAN,
        "expect": nullable(TEXT),
        "keep": record({"key": TEXT, "value": schema.ANYTHING}),
        "stamp": TEXT,
    },
)


@operation(
    "POST",
    "/v1/scope/notes",
    *SCOPE_PARAMS,
    body=record({"changes": array(_CHANGE, maxItems=answers.LIST_ITEMS_MAX)}),
    answer=record({}),
)
async def write_notes(call: Call) -> Result:
    """Write and delete several notes, as one step where the engine can."""
    changes = [_change(call, each) for each in call.body["changes"]]
    await call.driver.run(lambda backend: backend.write_notes(changes))
    return {}


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


@operation(
    "POST",
    "/v1/scope/notes/read",
    *SCOPE_PARAMS,
    body=record({"names": answers.IDS}),
    answer=record({"items": array(answers.FOUND_NOTE)}),
    writes=False,
)
async def read_notes(call: Call) -> Result:
    """The notes of a scope that exist, in the order of their names."""
    scope, names = call.scope, call.body["names"]
    return await call.driver.run(lambda backend: found_notes(backend.read_notes(scope, names)))


@operation(
    "GET",
    "/v1/scope/noted",
    *SCOPE_PARAMS,
    *PAGE,
    answer=answers.page_of(ID),
)
async def noted(call: Call) -> Result:
    """The snapshot ids with notes, in text order."""
    scope = call.scope

    def fetch(backend: Backend, after: str | None, limit: int) -> list[str]:
        return backend.list_noted(scope, after=after or "", limit=limit)

    return Listing(fetch, str, str)


# Leases

_CLAIM = {"owner": ID, "ttl_s": schema.SECONDS}
_KEY = {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$"}


def _claim(call: Call) -> Claim:
    stamp, given = call.stamp(), call.body
    key = given.get("key", f"{stamp.nonce}{stamp.bits:020x}")
    return Claim(call.scope, key, given["owner"], int(given["ttl_s"] * 1_000_000), stamp)


@operation(
    "POST",
    "/v1/scope/lease",
    *SCOPE_PARAMS,
    body=record(_CLAIM, {"key": _KEY}),
    answer=answers.HOLD,
)
async def claim(call: Call) -> Result:
    """Claim the lease of a scope; `held` says whether it is yours."""
    asked = _claim(call)
    held = await call.driver.run(lambda backend: backend.claim(asked))
    return {**wire.hold_json(held), "held": held.key == asked.key}


@operation(
    "PUT",
    "/v1/scope/lease",
    *SCOPE_PARAMS,
    body=record({**_CLAIM, "key": _KEY}),
    answer=answers.HOLD,
)
async def renew(call: Call) -> Result:
    """Renew a lease."""
    asked = _claim(call)
    held = await call.driver.run(lambda backend: backend.renew(asked))
    return {**wire.hold_json(held), "held": True}


@operation(
    "DELETE",
    "/v1/scope/lease",
    *SCOPE_PARAMS,
    Param("key", _KEY, "the key of the lease", required=True),
    answer=record({}),
)
async def release(call: Call) -> Result:
    """Release a lease, unless the scope carries another."""
    asked = Claim(call.scope, call.params["key"], "", 0, call.stamp())
    await call.driver.run(lambda backend: backend.release(asked))
    return {}


@operation(
    "GET",
    "/v1/scope/lease",
    *SCOPE_PARAMS,
    answer=answers.HOLD,
)
async def read_lease(call: Call) -> Result:
    """The lease that a scope carries, ended or not."""
    scope, now = call.scope, call.stamp().now
    held = await call.driver.run(lambda backend: backend.read_lease(scope, now=now))
    if held is None:
        return None
    # Who knows the key can write under it.
    shown = held if call.grant.write else held._replace(key="")
    return {**wire.hold_json(shown), "held": False}
