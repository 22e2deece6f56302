"""Operations that go on: being told of changes."""

from limpet.api import verbs
from limpet.core import limits
from limpet.protocol import Target, Topic
from limpet.server import schema, streams
from limpet.server.call import Call
from limpet.server.operations.declare import (
    ANY_SESSION,
    PREFIX_PARAM,
    SCOPE_PARAMS,
    SNAPSHOT,
    Result,
    operation,
)
from limpet.server.schema import ID, KIND, PREFIX, array, record


@operation(
    "GET",
    "/v1/watch",
    ANY_SESSION,
    SNAPSHOT._replace(what="the snapshot with this id, in any scope"),
    PREFIX_PARAM,
    answer=schema.TEXT,
)
async def watch(call: Call) -> Result:
    """The heads of a session, of a prefix, or one snapshot, as they change."""
    session_id = call.params.get("session_id")
    if session_id is not None:
        call.grant.check_session(session_id)
    return _events(call, verbs.topic(session_id, call.id, call.prefix))


@operation(
    "GET",
    "/v1/scope/watch",
    *SCOPE_PARAMS,
    SNAPSHOT,
    answer=schema.TEXT,
)
async def scope_watch(call: Call) -> Result:
    """The head of a scope, or one snapshot, as it changes."""
    return _events(call, verbs.scope_topic(call.scope, call.id))


def _events(call: Call, topic: Topic) -> Result:
    return streams.events(call.driver, topic, call.headers.get("last-event-id"))


_TOPIC = record({}, {"session_id": ID, "scope_id": ID, "kind": KIND, "id": ID, "prefix": PREFIX})


@operation(
    "POST",
    "/v1/changes",
    body=record({"topics": array(_TOPIC, maxItems=10_000)}),
    answer=record({}, {"session_id": schema.nullable(ID)}),
    writes=False,
)
async def changes(call: Call) -> Result:
    """The sessions in which something of many topics has changed, as JSON lines."""
    return streams.changes(call.driver, [_topic(call, each) for each in call.body["topics"]])


def _topic(call: Call, given: dict[str, str]) -> Topic:
    """Return a topic; with a scope id it is one scope."""
    session_id = given.get("session_id")
    if session_id is not None:
        call.grant.check_session(session_id)
    if session_id is not None and "scope_id" in given:
        scope = limits.check_scope(session_id, given["scope_id"], given.get("kind", "agent"))
        return Topic(Target(scope, given.get("id")))
    prefix = call.grant.within(given.get("prefix", ""))
    return Topic(session_id=session_id, prefix=prefix, id=given.get("id"))
