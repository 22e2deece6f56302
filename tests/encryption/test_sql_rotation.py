"""Random programs on encrypted tables, by two processes, while keys are rotated."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from limpet import opening
from limpet.engine import Engine, rolling
from limpet.protocol import Backend
from limpet.testing.stateful import Lockstep
from tests.conformance.parts import some
from tests.encryption.keys import ONE, THREE, TWO
from tests.unit.sql_damage import inspect

_PREFIXES = ("", "s/1", "t")
_ENCRYPTED = {
    "scopes": "offsets",
    "snapshots": "metadata",
    "tails": "substr(body, CASE encoding WHEN 2 THEN 17 ELSE 1 END)",  # behind a name
    "segments": "body",
    "shared": "body",
    "notes": "value",
}


class _Alternating:
    """Two opened engines of one store, which take turns: each meets what the other has done."""

    def __init__(self, *backends: Any) -> None:
        self._backends = backends
        self._turns: Iterator[Any] = cycle(backends)

    def __getattr__(self, name: str) -> Any:
        return getattr(next(self._turns), name)

    def close(self) -> None:
        for each in self._backends:
            each.close()


class Rotating(Lockstep):
    def __init__(self) -> None:
        self.rings = {prefix: [ONE] for prefix in _PREFIXES}
        super().__init__()

    def open_backend(self, place: Path) -> Any:
        self.place = place
        return _Alternating(self._open(self.rings), self._open(self._reversed()))

    def _open(self, rings: dict[str, list[str]]) -> Backend:
        keys = "\n".join(f"{key} {prefix}" for prefix in rings for key in rings[prefix])
        url = f"sqlite:///{self.place}/limpet.db"
        opened = opening.open_backend(url, synchronous="off", keys=keys)
        assert isinstance(opened, Engine)
        tails = rolling.Limits(snapshots=3)  # so that there are segments
        return Engine(opened.storage, clock=opening.CLOCK, draw=opening.draw, tails=tails)

    def _reversed(self) -> dict[str, list[str]]:
        return {prefix: ring[::-1] for prefix, ring in self.rings.items()}

    @rule(prefix=st.sampled_from(_PREFIXES), key=st.sampled_from([ONE, TWO, THREE]))
    def rotate(self, prefix: str, key: str) -> None:
        if key not in self.rings[prefix]:
            self.rings[prefix].insert(0, key)
            self._twins.reopen(closing=True)  # one that has not the new key could not read it

    @rule(drops=st.booleans())
    def rekey(self, drops: bool) -> None:
        with closing(self._open(self.rings)) as backend:
            after: str | None = ""
            while after is not None:
                _, after = backend.rekey(after, limit=3)
            if drops:
                self.rings = {prefix: ring[:1] for prefix, ring in self.rings.items()}
                self._twins.reopen(closing=True)

    def teardown(self) -> None:
        with closing(self._open(self.rings)) as backend:
            assert not inspect(backend)
        with closing(sqlite3.connect(f"{self.place}/limpet.db")) as conn:
            for table, column in _ENCRYPTED.items():
                plain = f"substr({column}, 1, 1) <> x'01'"
                assert not conn.execute(f"SELECT * FROM {table} WHERE {plain}").fetchall()
            hashed = "SELECT status, '' FROM snapshots UNION SELECT name, value FROM labels"
            for texts in conn.execute(hashed):
                assert {len(each) for each in texts} <= {0, 16}
        super().teardown()


@pytest.mark.slow
def test_rotated_sqlite_does_what_memory_does() -> None:
    run_state_machine_as_test(Rotating, settings=some(15, 40))
