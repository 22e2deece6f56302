"""The stateful machine on PostgreSQL: it does what the memory engine does."""

from pathlib import Path

import pytest
from hypothesis.stateful import invariant, run_state_machine_as_test

from limpet import opening
from limpet.protocol import Backend
from limpet.testing.stateful import Lockstep
from tests.property.test_stateful import some
from tests.servers.postgres import Schemas


def machine(schemas: Schemas) -> type[Lockstep]:
    """Return a machine whose places are schemas of one server, each used by one program."""

    class Postgres(Lockstep):
        text_order = False  # only across scopes: there the order is that of the clocks

        def open_backend(self, place: Path) -> Backend:
            return opening.open_backend(schemas.url(str(place)))

        @invariant()
        def names_are_in_the_order_of_text(self) -> None:
            store = self._twins._tested.store
            sessions = list(store.sessions())
            assert sessions == sorted(sessions)
            keys = [info.key for info in store.scopes()]
            assert keys == sorted(keys, key=lambda key: (key.session_id, key.kind, key.scope_id))
            for key in keys:
                scope = store.scope(*key)
                ids, names = list(scope.ids()), [note.name for note in scope.notes()]
                assert ids == sorted(ids)
                assert names == sorted(names)

    return Postgres


@pytest.mark.slow
def test_postgres_does_what_memory_does(schemas: Schemas) -> None:
    run_state_machine_as_test(machine(schemas), settings=some(5, 20))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", [0, *(pytest.param(n, marks=pytest.mark.torture) for n in (1, 2))])
def test_postgres_does_what_memory_does_for_long(schemas: Schemas, part: int) -> None:
    run_state_machine_as_test(machine(schemas), settings=some(20, 40))
