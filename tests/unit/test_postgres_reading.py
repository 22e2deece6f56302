"""What is read from PostgreSQL in several round trips is of one moment."""

from typing import Any

import limpet
from limpet.storage import Reader


def test_what_changes_meanwhile_is_read_again(postgres_url: str) -> None:
    with limpet.open(postgres_url) as store, limpet.open(postgres_url) as others:
        scope, storage = others.scope("s"), store.driver.opened.backend.storage  # type: ignore[attr-defined]
        calls = list[Any]()

        def use(reader: Reader) -> list[list[str]]:
            found = [[row.id for row in reader.rows(["a", "b"])]]
            calls.append(found[0])
            if len(calls) in (1, 3):
                scope.save({"n": len(calls)}, id="ab"[len(calls) // 2])
            return [*found, [row.id for row in reader.rows(["a", "b"])]]

        assert storage.read(scope.key, use) == [["a"], ["a"]]  # it did not exist
        assert storage.read(scope.key, use) == [["a", "b"]] * 2
        assert storage.read(scope.key, use) == [["a", "b"]] * 2
        assert calls == [[], ["a"], ["a"], ["a", "b"], ["a", "b"]]
