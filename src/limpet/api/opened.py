"""An opened store: the backend, its life cycle, and what its sync and async API share."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple, Protocol, TypeVar

from limpet.backends.support.forks import renew_after_fork
from limpet.core import codec
from limpet.errors import CLOSED, InvalidInput, Unavailable
from limpet.model import JSON, ScopeKey, SnapshotInfo
from limpet.protocol import Backend, Clock, Stamp


class Tools(NamedTuple):
    """Clock, randomness and limits, injected by `opening.py`."""

    draw: Callable[[], Stamp]
    clock: Clock
    state_bytes_max: int
    workers: int
    default: codec.Default | None = None  # makes JSON of a caller's value that is not


def start_thread(run: Callable[[], None], name: str) -> threading.Thread:
    """Start a daemon thread; raise Unavailable if the system allows no more."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as cause:
        raise Unavailable(f"no thread can be started. name=`{name}`") from cause
    return thread


class Service(Protocol):
    """Something that works for an opened store in the background, with threads of its own."""

    def close(self) -> None:
        """End. May be repeated."""
        ...


S = TypeVar("S", bound=Service)


class Opened:
    """A backend that is opened by its first use, and closed once for both APIs."""

    def __init__(self, opener: Callable[[], Backend], tools: Tools, url: str = "") -> None:
        """Take what opens the backend, and its URL as it may be shown."""
        self.tools = tools
        self.url = url
        self._opener = opener
        self._backend: Backend | None = None
        self._closed = False
        self.after_fork()
        self._at_close: list[Callable[[], None]] = []
        self._services: dict[object, Any] = {}
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Replace the locks, which a thread of the parent may have held."""
        self._lock = threading.Lock()
        self._services_lock = threading.Lock()  # its own, since opening may take long

    @property
    def backend(self) -> Backend:
        """The backend, opened if it is not open yet; InvalidInput once it is closed."""
        backend = self._backend
        return self.open() if backend is None else backend

    @property
    def may_block(self) -> bool:
        """Whether a call may wait for storage; opening the backend may."""
        backend = self._backend
        if self._closed:
            raise InvalidInput(CLOSED)
        return backend is None or backend.blocking

    @property
    def is_open(self) -> bool:
        """Whether the backend is open; if not, its first use may have to wait."""
        return self._backend is not None

    @property
    def closed(self) -> bool:
        return self._closed

    def open(self) -> Backend:
        with self._lock:
            if self._closed:
                raise InvalidInput(CLOSED)
            if self._backend is None:
                self._backend = self._opener()
            return self._backend

    def service(self, factory: Callable[["Opened"], S]) -> S:
        """Return the one service that `factory` makes for this store, made by its first use.

        It is closed before the backend is.
        """
        with self._services_lock:
            if self._closed:
                raise InvalidInput(CLOSED)
            found: S | None = self._services.get(factory)
            if found is None:
                found = self._services[factory] = factory(self)
            return found

    def at_close(self, action: Callable[[], None]) -> None:
        """Call `action` when the backend is closed; now, if it is closed already."""
        with self._lock:
            if not self._closed:
                self._at_close.append(action)
                return
        action()

    def close(self) -> None:
        """Close the services and the backend. May be repeated."""
        with self._services_lock:
            self._closed = True
            services, self._services = list(self._services.values()), {}
        with ExitStack() as stack:  # if one fails, the rest is closed all the same
            stack.callback(self._close_backend)
            for service in services:
                stack.callback(service.close)

    def _close_backend(self) -> None:
        with self._lock:
            backend, self._backend = self._backend, None
            actions, self._at_close = self._at_close, []
        if backend is not None:
            backend.close()
        for action in actions:
            action()


class JsonModel:
    """How states become JSON and come back: as they are. `typed.py` has the other way."""

    def dump(self, state: Any) -> JSON:
        return state

    def dump_member(self, key: str, value: Any) -> tuple[str, JSON]:
        """Return one top-level key of a state, as it is stored, and its value."""
        return key, value

    def load(self, info: SnapshotInfo, body: bytes) -> Any:
        return codec.decode(body)


JSON_MODEL = JsonModel()


class ScopeContext(NamedTuple):
    """A scope with what its verbs need. `fence` is the key of the lease that they write under."""

    key: ScopeKey
    tools: Tools
    model: JsonModel = JSON_MODEL
    fence: str | None = None

    def of_write(self) -> dict[str, Any]:
        """Return the arguments that all functions of `core.prepare` take that prepare a write."""
        tools = self.tools
        limits = {"state_bytes_max": tools.state_bytes_max, "default": tools.default}
        return {"fence": self.fence, "stamp": tools.draw(), **limits}


class ScopeBase:
    """A scope, and what runs its verbs: for the sync and the async API."""

    def __init__(self, driver: Any, context: ScopeContext) -> None:
        """Made by `Store.scope`, which checks the key."""
        self.driver = driver
        self._opened: Opened = driver.opened
        self._context = context
        self._key = context.key

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.session_id!r}, {self.scope_id!r}, {self.kind!r})"

    @property
    def key(self) -> ScopeKey:
        """The address of this scope."""
        return self._key

    @property
    def session_id(self) -> str:
        """The session that the scope belongs to."""
        return self._key.session_id

    @property
    def scope_id(self) -> str:
        """The name of the scope inside its session."""
        return self._key.scope_id

    @property
    def kind(self) -> str:
        """What sort of state the scope holds."""
        return self._key.kind
