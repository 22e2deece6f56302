"""How often `ancestors` and `stats` ask the backend."""

from typing import Any

import limpet
from limpet.core import limits
from tests.cases import for_each


class Counting:
    """Counts the calls of a backend."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.calls.append(name)
        return getattr(self._backend, name)


def counted(store: limpet.Store) -> Counting:
    counting = Counting(store.driver.opened.backend)
    store.driver.opened._backend = counting
    return counting


@for_each("count", [1, 2, 16, 17, 18, 255, 256, 257, 600])
def test_a_line_is_read_in_pages(count: int) -> None:
    with limpet.open("memory:") as store:
        scope = store.scope("s")
        saved = [scope.save({"n": number}) for number in range(count)]
        counting = counted(store)
        assert list(scope.ancestors(saved[-1].id)) == saved[::-1]
        assert len(counting.calls) <= 12 + 4 * count // limits.PAGE_ITEMS_MAX


def test_parents_that_are_far_away_are_read_one_by_one() -> None:
    """Many lines that take turns: little more is read than the ancestors themselves."""
    with limpet.open("memory:") as store:
        scope = store.scope("s")
        lines: list[list[Any]] = [[] for _ in range(40)]
        for _ in range(20):
            for line in lines:
                parent = line[-1].id if line else None
                line.append(scope.save({}, parent=parent))
        counting = counted(store)
        assert list(scope.ancestors(lines[7][-1].id)) == lines[7][::-1]
        assert len(counting.calls) <= 20 + 4
