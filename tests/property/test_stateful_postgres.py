"""The stateful machine on PostgreSQL: it does what the memory engine does."""

from pathlib import Path

import pytest
from hypothesis.stateful import run_state_machine_as_test

from holdfast import opening
from holdfast.protocol import Backend
from holdfast.testing.stateful import Lockstep
from tests.property.test_stateful import some
from tests.servers.fixtures import postgres, schemas  # noqa: F401
from tests.servers.postgres import Schemas


def machine(schemas: Schemas) -> type[Lockstep]:  # noqa: F811
    """Return a machine whose places are schemas of one server, each used by one program."""

    class Postgres(Lockstep):
        def open_backend(self, place: Path) -> Backend:
            return opening.open_backend(schemas.url(str(place)))

    return Postgres


def test_postgres_does_what_memory_does(schemas: Schemas) -> None:  # noqa: F811
    run_state_machine_as_test(machine(schemas), settings=some(5, 20))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_postgres_does_what_memory_does_for_long(schemas: Schemas) -> None:  # noqa: F811
    run_state_machine_as_test(machine(schemas), settings=some(60, 40))
