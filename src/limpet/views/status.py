"""What the work in a scope is up to, from what its framework stores. Pure.

Some frameworks have no status, and LangGraph's checkpoints are all stored as `completed`: for these
it is read from the head and the notes on it. `running` says that the last step has not ended;
whether its process still lives, only runs know.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import takewhile
from typing import Any, Final, TypeAlias

from limpet.model import JSON, Note, Snapshot, SnapshotInfo

RUNNING: Final = "running"
WAITING: Final = "waiting"
FAILED: Final = "failed"
COMPLETED: Final = "completed"

_Read: TypeAlias = Callable[[Any, SnapshotInfo, Iterable[Note]], str | None]
_Objects: TypeAlias = list[dict[str, Any]]


def is_stored(head: SnapshotInfo) -> bool:
    """Return whether the status of a head is the stored one, which other states do not change."""
    given = head.status not in ("", COMPLETED)
    return given or _READERS.keys().isdisjoint((head.scope.kind, *head.metadata))


def read_status(head: Snapshot, notes: Iterable[Note]) -> str:
    """Return the status of a head; `notes` are those on its id, and read only if needed."""
    for name in () if is_stored(head) else (head.scope.kind, *head.metadata):
        # A state that only looks like one of a framework may hold anything.
        with suppress(TypeError, AttributeError, LookupError):
            found = _READERS[name](head.state, head, notes) if name in _READERS else None
            if found is not None:
                return found
    return head.status


def _at(value: Any, *names: str) -> Any:
    """Return the value at a path; None if there is none."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _objects(value: Any) -> _Objects:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _answered(messages: _Objects) -> str:
    """Return whether the last message is an answer, which calls no tool."""
    last = messages[-1] if messages else {}
    blocks = _objects(last.get("content"))
    calls = any(each.get("type") == "tool_use" or "toolUse" in each for each in blocks)
    return RUNNING if calls or last.get("role") == "user" else COMPLETED


_UNDONE = {"__error__", "__interrupt__", "__resume__"}  # else a task has ended
_NO_TASK = "00000000-0000-0000-0000-000000000000"
_BY_NAME = 3  # the version of checkpoints whose channels name each node that comes next


def _langgraph(state: Any, head: SnapshotInfo, notes: Iterable[Note]) -> str:
    """Which nodes come next, and what they wrote: questions and errors, until the next step."""
    channels = _at(state, "channel_values") or {}
    is_next = any(_is_next(*each) for each in channels.items()) or _at(state, "pending_sends")
    if not is_next and (_at(state, "v") or _BY_NAME) >= _BY_NAME:
        return COMPLETED
    written = {note.name: _channels(note.value) for note in notes}
    tasks = [each for each in written.values() if each <= _UNDONE]
    if any("__error__" in each for each in tasks):
        return FAILED
    # An answer is written at once, and by the task itself when that asks again.
    answered = {"__interrupt__"} if _NO_TASK in written else None
    if any("__interrupt__" in each != answered for each in tasks):
        return WAITING
    return RUNNING if is_next else COMPLETED


def _channels(written: JSON) -> set[str]:
    return {str(each[1]) for each in _at(written, "writes") or ()}


def _is_next(channel: str, value: Any) -> bool:
    if channel == "__pregel_tasks":
        return bool(value)
    if channel.startswith("join:"):  # `join:a+b:c` starts c after both others
        return {*channel.split(":")[1].split("+")} <= {*(_at(value, "$set") or ())}
    return channel == "__start__" or channel.startswith(("branch:", "start:"))


def _openai(state: Any, head: SnapshotInfo, notes: Iterable[Note]) -> str:
    """A call is stored with its result, unless it waits for an approval."""
    items = _objects(_at(state, "items"))
    called, done = set(), set()
    for each in takewhile(lambda item: item.get("role") != "user", reversed(items)):
        type = str(each.get("type"))
        if type.endswith("_output"):
            done.add(each.get("call_id", each.get("id")))
        elif type.endswith("_call") and "call_id" in each:  # not one that OpenAI runs
            called.add(each["call_id"])
    if called - done:
        return WAITING
    is_next = items and str(items[-1].get("type")).endswith("_output")
    return RUNNING if is_next else _answered(items)


_QUESTIONS = ("AskUserQuestion", "ExitPlanMode")


def _claude(state: Any, head: SnapshotInfo, notes: Iterable[Note]) -> str:
    entries = _objects(_at(state, "entries"))
    said = (each for each in reversed(entries) if "role" in (_at(each, "message") or ()))
    last = next(said, {})
    if last.get("isApiErrorMessage") is True:
        return FAILED
    asks = any(each.get("name") in _QUESTIONS for each in _objects(_at(last, "message", "content")))
    return WAITING if asks else _answered(_objects([last.get("message")]))


def _adk(state: Any, head: SnapshotInfo, notes: Iterable[Note]) -> str:
    """Calls that the user answers are named as long-running, also requested confirmations."""
    events = _objects(_at(state, "events"))
    answered: set[Any] = set()
    for event in reversed(events):
        if event.get("author") == "user":
            parts = _objects(_at(event, "content", "parts"))
            answers = {_at(each, "function_response", "id") for each in parts} - {None}
            if not answers:
                break  # a new question: what waited before it does no more
            answered |= answers
        elif {*(event.get("long_running_tool_ids") or ())} - answered:
            return WAITING
    last = events[-1] if events else {}
    calls = any("function_call" in each for each in _objects(_at(last, "content", "parts")))
    if last.get("error_code"):
        return FAILED
    return RUNNING if calls or last.get("author") == "user" else COMPLETED


_STRANDS = {  # the most urgent first: a graph has the status of such a node
    "interrupted": WAITING,
    "failed": FAILED,
    "executing": RUNNING,
    "running": RUNNING,
    "completed": COMPLETED,
}


def _strands(state: Any, head: SnapshotInfo, notes: Iterable[Note]) -> str:
    """What an agent asks; the status of a graph or swarm, or of its nodes; that of a turn."""
    if any(_at(state, each, "activated") for each in ("interrupts", "interrupt_state")):
        return WAITING
    nodes = _at(state, "state", "nodes")
    said = [_at(each, "status") for each in nodes.values()] if isinstance(nodes, dict) else []
    said += [_at(head.metadata, "strands", each, "status") for each in ("appData", "app_data")]
    known = {str(each).lower() for each in (*said, _at(state, "state", "status"))}
    found = next((status for name, status in _STRANDS.items() if name in known), None)
    return found or _answered(_objects(_at(state, "messages")))


def _agentos(state: Any, head: SnapshotInfo, notes: Iterable[Note]) -> str:
    """A node with a result that was not visited has failed, or is a person's."""
    facts, node = head.metadata["agentos"], head.labels.get("node_id", "")
    result = _at(facts, "nodeResults", node)
    if result is not None and node not in (_at(facts, "visitedNodes") or ()):
        return WAITING if _at(result, "effectClass") == "human" else FAILED
    return RUNNING if _at(facts, "pendingEdges") else COMPLETED


def _vercel_ai(state: Any, head: SnapshotInfo, notes: Iterable[Note]) -> str:
    """Calls that the server runs have a result when the answer is stored."""
    messages = _objects(_at(state, "messages"))
    parts = _objects(messages[-1].get("parts")) if messages else []
    asks = any(each.get("state") in ("approval-requested", "input-available") for each in parts)
    return WAITING if asks else _answered(messages)


_AG2 = {
    **dict.fromkeys(("HumanInputRequest", "ToolApprovalRequest"), WAITING),
    **dict.fromkeys(("HumanMessage", "ModelRequest", "ToolResultsEvent"), RUNNING),
}


def _ag2(state: Any, head: SnapshotInfo, notes: Iterable[Note]) -> str:
    for event in reversed(_objects(_at(state, "events"))):
        kind = str(event.get("__event__")).rpartition(".")[2]
        if kind == "ModelResponse":
            return RUNNING if _at(event, "tool_calls", "calls") else COMPLETED
        if kind in _AG2:
            return _AG2[kind]
    return COMPLETED


_READERS: Final[dict[str, _Read]] = {  # by a member of the metadata, or the kind of the scope
    "adk": _adk,
    "ag2": _ag2,
    "agentos": _agentos,
    "claude": _claude,
    "genkit": lambda _, head, notes: (
        WAITING if _at(head.metadata, "genkit", "finishReason") == "interrupted" else None
    ),
    "langgraph": _langgraph,
    "openai": _openai,
    "pydantic_ai": lambda _, head, notes: (  # stored at the end of a run
        WAITING if _at(head.metadata, "pydantic_ai", "deferred_tool_requests") else COMPLETED
    ),
    "strands": _strands,
    "vercel_ai": _vercel_ai,
    "workflow": lambda state, _, notes: (
        (RUNNING if state["messages"] else COMPLETED) if state["iteration_count"] >= 0 else None
    ),
}
