"""The sync and the async API behind one signature, so that each test is written once.

The async API runs in an event loop of the calling thread: each call returns when it is done.
"""

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

from limpet import AsyncScope, AsyncStore, Store

T = TypeVar("T")

Api: TypeAlias = Literal["sync", "async"]
APIS: Final[tuple[Api, ...]] = ("sync", "async")

_local = threading.local()
_DONE: Final = object()


def through(api: Api, store: Store) -> Store:
    """Return a store that is called like a sync one and uses the given API."""
    return store if api == "sync" else cast(Store, _Driven(store.aio))


def close_loop() -> None:
    """Close the event loop of this thread, if any. Every thread that uses `through` calls it."""
    runner: asyncio.Runner | None = getattr(_local, "runner", None)
    if runner is not None:
        del _local.runner
        runner.close()


def _runner() -> asyncio.Runner:
    runner: asyncio.Runner | None = getattr(_local, "runner", None)
    if runner is None:
        # With a factory the runner leaves the thread's current event loop, which others may have
        # set, alone.
        runner = _local.runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
    return runner


def _run(awaitable: Awaitable[T]) -> T:
    async def whole() -> T:
        return await awaitable

    return _runner().run(whole())


class _Driven:
    """An `AsyncStore` or an `AsyncScope` whose members answer as those of its twin do."""

    def __init__(self, target: AsyncStore | AsyncScope) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._target, name)
        return _called(member) if inspect.ismethod(member) else member

    def __enter__(self) -> "_Driven":
        _run(cast(AsyncStore, self._target).__aenter__())
        return self

    def __exit__(self, *error: Any) -> None:
        _run(cast(AsyncStore, self._target).__aexit__(*error))


def _called(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        answer = method(*args, **options)
        if inspect.isawaitable(answer):
            answer = _run(answer)
        if isinstance(answer, AsyncIterator):
            return _each(answer)
        if isinstance(answer, AbstractAsyncContextManager):
            return _within(answer)
        return _Driven(answer) if isinstance(answer, AsyncScope) else answer

    return call


@contextmanager
def _within(answer: AbstractAsyncContextManager[AsyncScope]) -> Iterator[_Driven]:
    with ExitStack() as stack:
        inside = _run(answer.__aenter__())
        stack.push(lambda *error: _run(answer.__aexit__(*error)))
        yield _Driven(inside)


def _each(answers: AsyncIterator[T]) -> Iterator[T]:
    async def following() -> T | object:
        return await anext(answers, _DONE)

    runner = _runner()
    try:
        while (answer := runner.run(following())) is not _DONE:
            yield cast(T, answer)
    finally:
        # A loop that is left early lets go at once; one that outlives its event loop was ended
        # when that was closed.
        if runner is getattr(_local, "runner", None) and inspect.isasyncgen(answers):
            runner.run(_ended(answers.aclose()))


async def _ended(closing: Awaitable[None]) -> None:
    await closing
