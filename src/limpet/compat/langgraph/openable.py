"""What LangGraph's own savers and stores have besides: `from_conn_string` and `setup`."""

from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any, Generic, Self, TypeVar

from limpet import AsyncStore, open_async

T = TypeVar("T")


class Openable:
    """A class whose constructor takes a store, and options that are not those of `limpet.open`."""

    @classmethod
    def from_conn_string(cls, conn_string: str | None = None, **options: Any) -> "Opening[Self]":
        """Open a store for the block of a `with` or an `async with`, which gets one of this class.

        It takes what `limpet.open` takes, and the options of this class.
        """
        make: Callable[..., Self] = cls
        own = {name: options.pop(name) for name in signature(cls).parameters if name in options}
        store = open_async(conn_string, **options)
        return Opening(make(store, **own), store)

    def setup(self) -> "Nothing":
        """Do nothing: there is nothing to create. May be awaited, as in the async classes."""
        return Nothing()


class Opening(Generic[T]):
    """The context of something with a store of its own, which is closed at its end."""

    def __init__(self, opened: T, store: AsyncStore) -> None:
        self._opened = opened
        self._store = store

    def __enter__(self) -> T:
        self._store.sync.__enter__()
        return self._opened

    def __exit__(self, *error: object) -> None:
        self._store.sync.close()

    async def __aenter__(self) -> T:
        await self._store.__aenter__()
        return self._opened

    async def __aexit__(self, *error: object) -> None:
        await self._store.close()


class Nothing:
    """What has happened already, for those who await it."""

    def __await__(self) -> Iterator[None]:
        return iter(())
