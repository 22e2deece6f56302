"""Runs verbs over an opened backend: the layer below the public API that integrations may use.

A verb is *work* (one backend call), *steps* (several calls, written once as a generator) or a
*walk* (a listing, one page a call); `verbs.py` has the types. `store.driver` and `scope.driver` run
them, for the sync API in the caller's thread and for the async API in a bounded pool of threads.
"""

import inspect
import os
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast, get_args

from limpet.api.opened import Opened, Tools
from limpet.api.pool import Pool
from limpet.api.verbs import Ask, Block, Encode, Pause, Steps, Walk, Work, streamed
from limpet.api.watching import Dispatcher, Subscription
from limpet.core import codec, limits
from limpet.errors import Conflict, InvalidInput, Unsupported
from limpet.model import SnapshotInfo
from limpet.protocol import Topic

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
P = ParamSpec("P")
Self = TypeVar("Self")

# asyncio and its pools are imported where they are used: they take longer to load than all of
# Limpet, and a program that awaits has loaded them already. So is what few programs use.


class NotEntered(Exception):
    """The caller went on without entering a block that was ready."""


class _Closed(BaseException):
    """Stands for a GeneratorExit, which `yield from` would not throw but close the verb for."""


_Closed.__name__ = "GeneratorExit"  # as a run shows it


def _thrown(error: BaseException) -> BaseException:
    return _Closed() if isinstance(error, GeneratorExit) else error


class _NotEntered:
    """A claim, which becomes a lease or a run in a `with` block, and says so before."""

    _block = "with"

    def __init__(self, holding: Any, kind: type, example: str) -> None:
        self._holding = holding
        self._kind = kind
        self._example = example
        self.is_entered = self.is_over = False

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and hasattr(self._kind, name):
            raise self.misused()
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def misused(self) -> InvalidInput:
        advice = f"write `{self._block} {self._example}:`"
        return InvalidInput(f"claim is used without a block: {advice}")

    def _entered(self) -> Any:
        if self.is_over:
            raise Conflict("the claim is over: enter it before the next one is asked for")
        self.is_entered = True
        return self._holding


class Claimed(_NotEntered):
    """A claim for a `with` block."""

    def __enter__(self) -> Any:
        return self._entered().__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        is_handled: bool | None = self._holding.__exit__(*error)
        return is_handled


class AsyncClaimed(_NotEntered):
    """A claim for an `async with` block."""

    _block = "async with"

    async def __aenter__(self) -> Any:
        return await self._entered().__aenter__()

    async def __aexit__(self, *error: Any) -> bool | None:
        is_handled: bool | None = await self._holding.__aexit__(*error)
        return is_handled


class Driver:
    """Runs verbs for the sync API, in the caller's thread."""

    def __init__(self, opened: Opened) -> None:
        self.opened = opened

    def __del__(self) -> None:
        # Stores and scopes hold the driver: none of them is left. The end of the interpreter closes
        # everything, and the memory engine has nothing to close.
        opened = self.opened
        if opened.is_open and opened.may_block and not sys.is_finalizing():
            advice = "use it as a context manager, or call close()"
            message = f"a store was never closed: {advice}. url=`{opened.url}`"
            warnings.warn(message, ResourceWarning, stacklevel=2, source=self)

    @property
    def tools(self) -> Tools:
        return self.opened.tools

    def run(self, work: Work[T]) -> T:
        return work(self.opened.backend)

    def drive(self, verb: Steps[T], left_by: BaseException | None = None) -> T:
        """Run a verb of several steps, up to its `Block` or from there to its end.

        Errors of the backend are raised inside it, and so is the one by which the block was left.
        """
        advance: Callable[[Any], Any] = verb.send if left_by is None else verb.throw
        value: Any = left_by
        while True:
            try:
                step = advance(value)
            except StopIteration as done:
                result: T = done.value
                return result
            if isinstance(step, Block):
                return cast(T, step.value)
            try:
                advance, value = verb.send, self._answer(step)
            except BaseException as error:
                if isinstance(step, Ask):
                    raise  # from the caller's own function
                advance, value = verb.throw, error

    @contextmanager
    def block(self, verb: Steps[Any], value: Any = None) -> Iterator[Any]:
        """Run a verb around a block of the caller; `value` if it is already at its `Block`."""
        value = self.drive(verb) if value is None else value
        try:
            yield value
        except BaseException as error:
            with suppress(_Closed):
                self.drive(verb, _thrown(error))
            raise
        self.drive(verb)

    def blocks(self, verb: Callable[[], Steps[Any]]) -> Iterator[Claimed]:
        """Yield a block for each verb, one after the other, until one has none."""
        while (value := self.drive(current := verb())) is not None:
            claimed = Claimed(self.block(current, value), type(value), "claim as run")
            try:
                yield claimed
                if not claimed.is_entered:
                    raise claimed.misused()
            finally:
                claimed.is_over = True
                if not claimed.is_entered:
                    self.drive(current, NotEntered())

    def _answer(self, step: Any) -> Any:
        if isinstance(step, Pause):
            return self.tools.clock.sleep(step.seconds)
        if isinstance(step, Encode):
            return step.encode()
        if not isinstance(step, Ask):
            return self.run(step)
        answer = step.function(step.argument)
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()  # or Python would warn that it was never awaited
            raise InvalidInput("an async function needs the async API: call it on store.aio")
        return answer

    def stream(self, walk: Walk[T]) -> Iterator[T]:
        return streamed(self.run, walk)

    def watch(self, topic: Topic, timeout_s: float | None) -> Iterator[SnapshotInfo]:
        """Yield the current state of a topic, and again after each change."""
        if timeout_s is not None:
            timeout_s = limits.check_seconds("timeout_s", timeout_s)
        return self._changes(topic, timeout_s)

    def _changes(self, topic: Topic, timeout_s: float | None) -> Iterator[SnapshotInfo]:
        dispatcher = self.opened.service(Dispatcher)
        notified = threading.Event()
        subscription = Subscription(topic, notified.set)
        try:
            while True:
                if subscription.pid != os.getpid():  # the dispatcher's thread is in the parent
                    notified = threading.Event()
                    subscription = subscription.resumed(notified.set)
                dispatcher.add(subscription)
                notified.clear()
                changes, is_over = subscription.take()
                yield from changes
                if is_over:
                    return
                if not changes and not notified.wait(subscription.wait_s(timeout_s)):
                    return
        finally:
            dispatcher.remove(subscription)


class AsyncDriver:
    """Runs verbs for the async API. A cancelled await does not stop a write that has begun."""

    def __init__(self, sync: Driver) -> None:
        self.sync = sync
        self.opened = sync.opened
        self._pool = Pool(self.tools.workers)
        self.opened.at_close(self._pool.close)

    @property
    def tools(self) -> Tools:
        return self.opened.tools

    async def run(self, work: Work[T]) -> T:
        return await self.offload(self.sync.run, work)

    async def drive(self, verb: Steps[T], left_by: BaseException | None = None) -> T:
        """Async twin of `Driver.drive`; functions of the caller run in the caller's task."""
        advance: Callable[[Any], Any] = verb.send if left_by is None else verb.throw
        value: Any = left_by
        while True:
            try:
                step = advance(value)
            except StopIteration as done:
                result: T = done.value
                return result
            if isinstance(step, Block):
                return cast(T, step.value)
            try:
                advance, value = verb.send, await self._answer(step)
            except BaseException as error:
                if isinstance(step, Ask):
                    raise  # from the caller's own function
                advance, value = verb.throw, error

    @asynccontextmanager
    async def block(self, verb: Steps[Any], value: Any = None) -> AsyncIterator[Any]:
        """Async twin of `Driver.block`."""
        value = await self.drive(verb) if value is None else value
        try:
            yield value
        except BaseException as error:
            with suppress(_Closed):
                await self.drive(verb, _thrown(error))
            raise
        await self.drive(verb)

    async def blocks(self, verb: Callable[[], Steps[Any]]) -> AsyncIterator[AsyncClaimed]:
        """Async twin of `Driver.blocks`."""
        while (value := await self.drive(current := verb())) is not None:
            claimed = AsyncClaimed(self.block(current, value), type(value), "claim as run")
            try:
                yield claimed
                if not claimed.is_entered:
                    raise claimed.misused()
            finally:
                claimed.is_over = True
                if not claimed.is_entered:
                    await self.drive(current, NotEntered())

    async def _answer(self, step: Any) -> Any:
        if isinstance(step, Pause):
            import asyncio

            return await asyncio.sleep(step.seconds)
        if isinstance(step, Encode):
            return await self.encoded(step.value, step.encode)
        if not isinstance(step, Ask):
            return await self.run(step)
        answer = step.function(step.argument)
        return await answer if inspect.isawaitable(answer) else answer

    async def stream(self, walk: Walk[T]) -> AsyncIterator[T]:
        page: Sequence[T] | None = None
        while True:
            try:
                work = next(walk) if page is None else walk.send(page)
            except StopIteration:
                return
            page = await self.run(work)
            for item in page:
                yield item

    def watch(self, topic: Topic, timeout_s: float | None) -> AsyncIterator[SnapshotInfo]:
        if timeout_s is not None:
            timeout_s = limits.check_seconds("timeout_s", timeout_s)
        return self._changes(topic, timeout_s)

    async def _changes(self, topic: Topic, timeout_s: float | None) -> AsyncIterator[SnapshotInfo]:
        async for batch in self.batches(topic, timeout_s):
            for info in batch:
                yield info
            if not batch:
                return

    async def batches(
        self, topic: Topic, timeout_s: float | None
    ) -> AsyncIterator[list[SnapshotInfo]]:
        """Yield what is new in a topic until it is deleted; [] after `timeout_s` of silence."""
        import asyncio

        dispatcher = self.opened.service(Dispatcher)
        loop, notified = running_loop(), asyncio.Event()
        subscription = Subscription(topic, lambda: loop.call_soon_threadsafe(notified.set))
        try:
            dispatcher.add(subscription)
            while True:
                notified.clear()
                changes, is_over = subscription.take()
                if changes:
                    yield changes
                if is_over:
                    return
                if not changes:
                    try:
                        # Not `wait_for`, which may swallow a cancellation.
                        async with asyncio.timeout(subscription.wait_s(timeout_s)):
                            await notified.wait()
                    except TimeoutError:
                        yield []
        finally:
            dispatcher.remove(subscription)

    async def encoded(self, value: Any, encode: Callable[[], T]) -> T:
        """Encode a value: in the pool if that takes long, else here.

        So the caller may change a small value as soon as the call has begun, and a large one once
        it has returned.
        """
        return await self.in_pool(encode) if codec.is_large(value) else encode()

    async def offload(self, fn: Callable[..., T], *args: Any) -> T:
        """Call a function: in the pool if the backend may block, else here."""
        return await self.in_pool(fn, *args) if self.opened.may_block else fn(*args)

    async def in_pool(
        self, fn: Callable[..., T], *args: Any, future: "asyncio.Future[T] | None" = None
    ) -> T:
        """Call a function in the pool, which answers a new future of the running loop, or yours."""
        future = future or running_loop().create_future()
        self._pool.submit(future, fn, *args)
        try:
            return await future
        finally:
            del future  # an error refers to this frame, and would keep itself and `args` alive


def awaited(
    method: Callable[Concatenate[Self, P], T], *, body: object = None
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return the async twin of a method that ends in `return self.driver.run(…)` or `drive(…)`.

    It has the body of the sync method: called with an object whose driver is an `AsyncDriver`, that
    returns an awaitable. Or it has `body`, which takes the same arguments and returns an awaitable.
    """
    run: Any = body or method

    @wraps(method)
    async def twin(self: Any, /, *args: P.args, **options: P.kwargs) -> T:
        answer: T = await run(self, *args, **options)
        return answer

    _describe(twin, method)
    return twin


def iterated(
    method: Callable[Concatenate[Self, P], Iterator[T]],
) -> Callable[Concatenate[Any, P], AsyncIterator[T]]:
    """Return the async twin of a method that ends in `return self.driver.stream(…)` or `watch(…)`.

    It is a copy of the sync method, see `awaited`.
    """
    origin: Any = method
    twin = FunctionType(origin.__code__, origin.__globals__, argdefs=origin.__defaults__)
    twin.__kwdefaults__ = origin.__kwdefaults__
    item: Any = get_args(origin.__annotations__["return"])[0]
    twin.__annotations__ = {**origin.__annotations__, "return": AsyncIterator[item]}
    _describe(twin, method)
    return twin


def _describe(twin: Any, method: Any) -> None:
    """Set what `help`, tracebacks and warnings show of a twin."""
    twin.__module__, twin.__name__ = method.__module__, method.__name__
    twin.__qualname__ = f"Async{method.__qualname__}"
    summary = (method.__doc__ or "").partition("\n\n")[0]
    pointer = f"Async twin of `{method.__qualname__}`, which explains the arguments."
    twin.__doc__ = f"{summary}\n\n{pointer}"


def running_loop() -> "asyncio.AbstractEventLoop":
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        advice = "run it by asyncio, or by anyio on asyncio; trio has no such loop"
        raise Unsupported(f"the async API needs a running asyncio loop: {advice}") from None
