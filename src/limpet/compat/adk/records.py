"""Addresses of what ADK stores, and what the states there contain. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from google.adk.sessions import State

from limpet.compat.logs import KIND, MAIN, check_own, foreign
from limpet.compat.wire import escaped, unescaped
from limpet.errors import NotFound
from limpet.model import JSON, ScopeKey, Snapshot, SnapshotInfo

MARK = "adk"
_EMPTY = "%"
"""An empty name: in an escaped one, something follows the `%`."""


class Address(NamedTuple):
    """Where ADK looks for a session."""

    app_name: str
    user_id: str
    session_id: str

    @property
    def session(self) -> ScopeKey:
        return ScopeKey("/".join(map(_part, self)), MAIN, KIND)

    @classmethod
    def of(cls, key: ScopeKey) -> "Address | None":
        """Return the address of a stored session, None if the scope is something else."""
        parts = key.session_id.split("/")
        if key.scope_id != MAIN or len(parts) != len(cls._fields):
            return None
        address = cls(*(unescaped(part) or "" for part in parts))
        return address if address.session == key else None


def app_key(app_name: str) -> ScopeKey:
    return ScopeKey(_part(app_name), MAIN, "app")


def user_key(app_name: str, user_id: str) -> ScopeKey:
    return ScopeKey(f"{_part(app_name)}/{_part(user_id)}", MAIN, "user")


def prefix_of(*names: str) -> str:
    """Return the prefix of the sessions of an app, or of a user of an app."""
    return "".join(f"{_part(name)}/" for name in names)


def _part(name: str) -> str:
    return escaped(name) or _EMPTY


class Tiers(NamedTuple):
    """A state by who shares it; the prefixes of the keys are removed."""

    app: dict[str, JSON]
    user: dict[str, JSON]
    session: dict[str, JSON]

    @property
    def is_shared(self) -> bool:
        return bool(self.app or self.user)

    @classmethod
    def of(cls, state: Mapping[str, JSON]) -> "Tiers":
        tiers = cls({}, {}, {})
        for key, value in state.items():
            if key.startswith(State.APP_PREFIX):
                tiers.app[key.removeprefix(State.APP_PREFIX)] = value
            elif key.startswith(State.USER_PREFIX):
                tiers.user[key.removeprefix(State.USER_PREFIX)] = value
            elif not key.startswith(State.TEMP_PREFIX):
                tiers.session[key] = value
        return tiers

    def merged(self) -> dict[str, JSON]:
        """Return one state, as agents see it."""
        return {
            **self.session,
            **{State.APP_PREFIX + key: value for key, value in self.app.items()},
            **{State.USER_PREFIX + key: value for key, value in self.user.items()},
        }


class Document:
    """The state of a stored session: how it began, and its events."""

    def __init__(self, found: Snapshot[Any]) -> None:
        """Raises AlreadyExists or Corrupt if another program saved something else there."""
        check_own(found, MARK)
        state = found.state if isinstance(found.state, dict) else {}
        initial, events = state.get("state"), state.get("events")
        if not isinstance(initial, dict) or not isinstance(events, list):
            raise foreign(found, MARK)
        if not all(map(_is_event, events)):
            raise foreign(found, MARK)
        self.head = found
        self.initial: dict[str, JSON] = initial
        self.events: list[Any] = events

    @property
    def updated(self) -> float:
        """The time of the last event, or of the creation."""
        return float(self.events[-1]["timestamp"]) if self.events else created(self.head)

    @property
    def last_change(self) -> Tiers:
        """What the last event changed, or the creation."""
        return Tiers.of(delta_of(self.events[-1]) if self.events else self.initial)

    def session_state(self) -> dict[str, JSON]:
        """Return the state that is not shared: the first one, and all changes since."""
        state: dict[str, JSON] = {}
        for change in (self.initial, *map(delta_of, self.events)):
            if change:
                state.update(Tiers.of(change).session)
        return state

    def recent(self, count: int | None, after_timestamp: float | None) -> list[Any]:
        events = self.events
        if after_timestamp is not None:
            events = [each for each in events if each["timestamp"] >= after_timestamp]
        return events if count is None else events[max(0, len(events) - count) :]

    def count_until(self, at: str) -> int:
        """Return the number of events up to the one with this id, or the last of an invocation."""
        for field in ("id", "invocation_id"):
            for index in reversed(range(len(self.events))):
                if self.events[index].get(field) == at:
                    return index + 1
        where = f"session=`{self.head.session_id}` at=`{at}`"
        raise NotFound(f"no event and no invocation has this id. {where}")


def _is_event(value: Any) -> bool:
    """Return whether this has what is read here of an event."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("timestamp"), int | float)
        and isinstance(value.get("id"), str)
        and isinstance(value.get("actions"), dict)
        and isinstance(value["actions"].get("state_delta", {}), dict)
    )


def created(info: SnapshotInfo) -> float:
    return info.created_at.timestamp()


def delta_of(event: Mapping[str, Any]) -> Mapping[str, JSON]:
    delta: Mapping[str, JSON] = event["actions"].get("state_delta", {})
    return delta


def new_document(state: Mapping[str, JSON]) -> dict[str, JSON]:
    return {"state": dict(_kept(state)), "events": []}


def _kept(state: Mapping[str, JSON]) -> Iterator[tuple[str, JSON]]:
    return ((key, value) for key, value in state.items() if not key.startswith(State.TEMP_PREFIX))


def first_events(count: int, state: Any) -> dict[str, JSON]:
    return {**state, "events": state["events"][:count]}


def oldest_first(sessions: Iterable[Any]) -> list[Any]:
    return sorted(sessions, key=lambda each: (each.last_update_time, each.user_id, each.id))
