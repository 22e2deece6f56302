"""States of CrewAI flows: its `FlowPersistence` on every engine.

Each step of a flow is a snapshot, which can be loaded, compared and forked::

    from crewai.flow import Flow, persist
    from limpet.compat.crewai import LimpetFlowPersistence

    store = limpet.open("sqlite:///agents.db")

    @persist(LimpetFlowPersistence(store))
    class Support(Flow): ...

    Support().kickoff(inputs={"id": "chat-42"})

`docs/guides/crewai.md` lists where each thing is stored, so that other programs see it.

So `store.scope("chat-42", kind="flow")` is the flow: its history, diffs and forks.
"""

import json
from dataclasses import replace
from math import isfinite
from typing import Any
from weakref import WeakValueDictionary

from limpet import AsyncStore, Scope, Store, jsonable
from limpet.api.integrations import limits, new_id
from limpet.compat import needs
from limpet.compat.wire import check_store, require
from limpet.errors import InvalidInput
from limpet.model import JSON, Snapshot, SnapshotLike

with needs("crewai", "CrewAI", extra="crewai"):
    from crewai.flow.async_feedback.types import PendingFeedbackContext
    from crewai.flow.persistence import FlowPersistence
    from pydantic import BaseModel, Field, PrivateAttr

__all__ = ["LimpetFlowPersistence"]

KIND = "flow"
WAITING = "waiting"
ANSWERED = "answered"

_used: WeakValueDictionary[str, Store] = WeakValueDictionary()
"""The stores that flows of this process use, by URL."""


class LimpetFlowPersistence(FlowPersistence):
    """States of flows in an open store, sync or async. Safe for threads and processes.

    Example:
        @persist(LimpetFlowPersistence(limpet.open("sqlite:///agents.db")))
        class Support(Flow): ...
    """

    persistence_type: str = Field(default="LimpetFlowPersistence")
    url: str = Field(description="the store, without secrets")
    _store: Store = PrivateAttr()

    def __init__(self, store: Store | AsyncStore | None = None, /, **fields: Any) -> None:
        # Without a store CrewAI restores it, from the fields in a checkpoint of its own.
        found = _used.get(fields.get("url", "")) if store is None else check_store(store).sync
        if found is None:
            raise InvalidInput("a LimpetFlowPersistence must be made of an open store first")
        url = found.driver.opened.url
        super().__init__(**{**fields, "url": url})
        _used[url] = self._store = found

    def init_db(self) -> None:
        """Do nothing: the store is open."""

    def save_state(
        self, flow_uuid: str, method_name: str, state_data: dict[str, Any] | BaseModel
    ) -> None:
        """Save the state as a new snapshot. Durable when it returns.

        What is not JSON is stored as JSON: see `as_json`.

        Raises:
            InvalidInput: it is neither a dict nor a model, holds a cycle, or is too large.
        """
        self._save(flow_uuid, method_name, state_data)

    def load_state(self, flow_uuid: str) -> dict[str, Any] | None:
        """Return the state that was saved last; None if there is none."""
        found = self._scope(flow_uuid).load()
        return None if found is None or not isinstance(found.state, dict) else _own_state(found)

    def save_pending_feedback(
        self,
        flow_uuid: str,
        context: PendingFeedbackContext,
        state_data: dict[str, Any] | BaseModel,
    ) -> None:
        """Save the state and what a person is asked, as one snapshot with the status `waiting`."""
        self._save(flow_uuid, context.method_name, state_data, context)

    def load_pending_feedback(
        self, flow_uuid: str
    ) -> tuple[dict[str, Any], PendingFeedbackContext] | None:
        """Return the state and the question that waits for an answer; None if none does."""
        scope = self._scope(flow_uuid)
        asked = next(scope.history(status=WAITING, limit=1), None)
        found = None if asked is None else scope.load(asked)
        if found is None or not isinstance(found.metadata.get("crewai"), dict):
            return None
        context = PendingFeedbackContext.from_dict(found.metadata["crewai"])
        return _own_state(found), replace(context, flow_id=flow_uuid)  # that of a fork is its own

    def clear_pending_feedback(self, flow_uuid: str) -> None:
        """Give what waits the status `answered`. May be repeated."""
        scope = self._scope(flow_uuid)
        for asked in scope.history(status=WAITING):
            scope.update(asked, lambda found: found.with_(status=ANSWERED))

    def fork(self, flow_uuid: str, snapshot: SnapshotLike) -> str:
        """Begin a new flow with the state of a snapshot of another one; return its id.

        Raises:
            NotFound: the flow has no such snapshot.
        """
        forked = new_id(self._store.driver.tools)
        # CrewAI saves a flow under the `id` in its state.
        self._scope(flow_uuid).fork(snapshot, to=forked, patch={"id": forked})
        return forked

    def _scope(self, flow_uuid: str) -> Scope[Any]:
        return self._store.scope(flow_uuid, kind=KIND)

    def _save(
        self,
        flow_uuid: str,
        method_name: str,
        state_data: Any,
        context: PendingFeedbackContext | None = None,
    ) -> None:
        is_state = isinstance(state_data, dict | BaseModel)
        require(is_state, "the state of a flow must be a dict or a model", state_data)
        state: Any = _dumped(state_data) if isinstance(state_data, BaseModel) else state_data
        asked: Any = None if context is None else context.to_dict()
        scope = self._scope(flow_uuid)

        def save(state: JSON, asked: JSON) -> None:
            scope.save(
                state,
                status="" if context is None else WAITING,
                labels={"method": method_name},
                metadata=None if context is None else {"crewai": asked},
            )

        try:
            save(state, asked)
        except InvalidInput:  # nothing was stored; most states need no conversion
            save(as_json(state), as_json(asked))


def _own_state(found: Snapshot[Any]) -> dict[str, Any]:
    """Return the state; that of a fork has the id of the new flow, under which CrewAI saves it."""
    forked = {} if found.forked_from is None else {"id": found.session_id}
    return {**found.state, **forked}


def as_json(value: Any) -> Any:
    """Return a value as JSON: as `limpet.jsonable` has it, and any other as its text.

    As CrewAI's own store does, except that keys may be anything. Numbers that are not finite become
    text, which pydantic reads as the number again.
    """
    return _as_json(value, 0, {})


def _as_json(value: Any, depth: int, known: dict[int, tuple[Any, Any]]) -> Any:
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else json.dumps(value)
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if depth > limits.DEPTH_MAX:
        return value  # saving refuses it: it is too deep, or a cycle
    if id(value) not in known:  # what others share is converted once
        known[id(value)] = value, _converted(value, depth + 1, known)
    return known[id(value)][1]


def _converted(value: Any, depth: int, known: dict[int, tuple[Any, Any]]) -> Any:
    if isinstance(value, dict):
        return {_key(key): _as_json(each, depth, known) for key, each in list(value.items())}
    if isinstance(value, list | tuple):
        return [_as_json(each, depth, known) for each in list(value)]
    try:
        plain = _dumped(value) if isinstance(value, BaseModel) else jsonable(value)
    except Exception:  # of the value's own code, or none that jsonable knows
        plain = str(value)
    return _as_json(plain, depth, known)


def _key(key: Any) -> str:
    if key is None or isinstance(key, int | float):
        return json.dumps(key)
    return str(as_json(key if isinstance(key, str) else str(key)))


def _dumped(model: BaseModel) -> Any:
    try:
        return model.model_dump(mode="json")
    except Exception:  # a field that pydantic cannot write
        return model.model_dump(mode="python")
