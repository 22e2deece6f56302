"""What the two faces of one opened store share: the engine, its life, and its tools."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol, TypeVar

from limpet.backends.support.forks import renew_after_fork
from limpet.errors import InvalidInput, Unavailable
from limpet.model import ScopeKey
from limpet.protocol import Backend, Clock, Stamp


@dataclass(frozen=True, slots=True)
class Tools:
    """Time, chance and limits, injected by the composition point."""

    draw: Callable[[], Stamp]
    clock: Clock
    state_bytes_max: int
    workers: int


def start_thread(run: Callable[[], None], name: str) -> threading.Thread:
    """Return a thread that runs, or raise Unavailable if there can be no more."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as cause:
        raise Unavailable("no thread can be started") from cause
    return thread


class Companion(Protocol):
    """What works beside an engine, with a thread of its own."""

    def close(self) -> None:
        """Come to an end. May be repeated."""
        ...


C = TypeVar("C", bound=Companion)


class Opened:
    """A backend that is opened once, by its first use, and closed once for both faces."""

    def __init__(self, opener: Callable[[], Backend], tools: Tools) -> None:
        self.tools = tools
        self._opener = opener
        self._backend: Backend | None = None
        self._closed = False
        self.after_fork()
        self._at_close: list[Callable[[], None]] = []
        self._companions: dict[object, Companion] = {}
        renew_after_fork(self)

    def after_fork(self) -> None:  # noqa: D102
        self._lock = threading.Lock()
        self._gathering = threading.Lock()  # apart, since opening may take long

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
            raise InvalidInput("the store is closed")
        return backend is None or backend.blocking

    @property
    def is_open(self) -> bool:
        """Whether the backend is open: until then, whoever asks for it may have to wait."""
        return self._backend is not None

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""
        return self._closed

    def open(self) -> Backend:
        """Open the backend if it is not open yet."""
        with self._lock:
            if self._closed:
                raise InvalidInput("the store is closed")
            if self._backend is None:
                self._backend = self._opener()
            return self._backend

    def companion(self, kind: Callable[["Opened"], C]) -> C:
        """Return the one of its kind that works for this engine, made when it is first needed.

        It is closed before the backend is.
        """
        with self._gathering:
            if self._closed:
                raise InvalidInput("the store is closed")
            found = self._companions.get(kind)
            if found is None:
                found = self._companions[kind] = kind(self)
            return found  # type: ignore[return-value]

    def at_close(self, action: Callable[[], None]) -> None:
        """Have something else let go when the engine is closed: at once if it is closed already."""
        with self._lock:
            if not self._closed:
                self._at_close.append(action)
                return
        action()

    def close(self) -> None:
        """Close the backend and whatever joined it. May be repeated."""
        with self._gathering:
            self._closed = True
            companions, self._companions = list(self._companions.values()), {}
        with ExitStack() as stack:  # whatever fails, the rest is closed
            stack.callback(self._close_backend)
            for companion in companions:
                stack.callback(companion.close)

    def _close_backend(self) -> None:
        with self._lock:
            backend, self._backend = self._backend, None
            actions, self._at_close = self._at_close, []
        if backend is not None:
            backend.close()
        for action in actions:
            action()


class Address:
    """The names of a scope, which both of its faces show."""

    def __init__(self, key: ScopeKey) -> None:
        self._key = key

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.session_id!r}, {self.scope_id!r}, {self.kind!r})"

    @property
    def key(self) -> ScopeKey:
        """The address of this scope."""
        return self._key

    @property
    def session_id(self) -> str:
        """The session that it belongs to."""
        return self._key.session_id

    @property
    def scope_id(self) -> str:
        """Its name inside the session."""
        return self._key.scope_id

    @property
    def kind(self) -> str:
        """What sort of state it holds."""
        return self._key.kind
