"""Changes as server-sent events, for pages that show what agents do while they do it."""

from limpet.api import verbs
from limpet.core.operations import ANY_SESSION, PREFIX_PARAM, SCOPE_PARAMS
from limpet.errors import InvalidInput
from limpet.inspector.page import page
from limpet.server import streams
from limpet.server.answers import Stream
from limpet.server.call import Call


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
