"""One transaction of a SQL engine, for code that knows its tables but not its driver.

Statements have names, which are the same in every dialect (`sql/*.sql`). Writes whose
answer is not needed may be sent late, together with the next query or the commit: round trips are
what a save costs over a network.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Transaction(Protocol):
    """Runs statements by name inside one transaction. `values` are positional or named."""

    def one(self, name: str, values: Any = ()) -> Any:
        """Return the first row of a statement, or None."""
        ...

    def all(self, name: str, values: Any = ()) -> list[Any]:
        """Return all rows of a statement that has few."""
        ...

    def each(self, name: str, values: Any = ()) -> Iterator[Any]:
        """Yield the rows of a statement, which may be many, until the reader stops."""
        ...

    def page(self, name: str, values: Any, take: Callable[[Any], T | None], limit: int) -> list[T]:
        """Return up to `limit` of what `take` makes of the rows, without those it makes None."""
        ...

    def do(self, name: str, values: Any = ()) -> None:
        """Write; the answer is not needed, but an error ends the transaction."""
        ...

    def do_many(self, name: str, rows: Iterable[Any]) -> None:
        """Write the same with each of several rows of values."""
        ...

    def count(self, name: str, values: Any = ()) -> int:
        """Write, and return how many rows were touched."""
        ...

    def many(self, keys: Iterable[int]) -> Any:
        """Return several keys as one value."""
        ...
