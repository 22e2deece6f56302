"""What is compared: `save` of a state, and a bare INSERT of the bytes that it is encoded to."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import psycopg
from psycopg import sql

import limpet
from benchmarks.material import state_of
from benchmarks.postgres.threads import Crowd, Work
from limpet.core.codec import encode

SESSIONS = 4  # of each thread, in turn
STATES = 200
APART = 31  # sessions of a thread are so many states apart
BARE, EXTERNAL = "bare", "bare_external"
SAVE = "save"


@dataclass(frozen=True, slots=True)
class Material:
    """States of one size, and their encodings."""

    states: Sequence[limpet.JSON]
    bodies: Sequence[bytes]


def material_of(size_bytes: int) -> Material:
    """Return windows of messages, each one message further than the one before."""
    states = [state_of(number, size_bytes=size_bytes) for number in range(STATES)]
    return Material(states, [encode(state) for state in states])


def make_tables(connection: psycopg.Connection[tuple[object, ...]], schema: str) -> None:
    """Make the bare tables: one as they come, one whose values are not compressed."""
    for name in (BARE, EXTERNAL):
        table = sql.Identifier(schema, name)
        connection.execute(sql.SQL("CREATE TABLE {} (id bigint, body bytea)").format(table))
    table = sql.Identifier(schema, EXTERNAL)
    statement = sql.SQL("ALTER TABLE {} ALTER COLUMN body SET STORAGE EXTERNAL")
    connection.execute(statement.format(table))


@contextmanager
def crowds(
    dsn: str, schema: str, material: Material, threads: int, name: str = ""
) -> Iterator[dict[str, Crowd]]:
    """Yield the sides, each with connections of its own, one for each thread."""
    with ExitStack() as stack:
        url = f"{dsn}?schema={schema}"
        store = stack.enter_context(limpet.open(url, connections=threads))
        found = {SAVE: Crowd([_saving(store, material, f"{name}{n}") for n in range(threads)])}
        for table in (BARE, EXTERNAL):
            works = []
            for _ in range(threads):
                conn = stack.enter_context(psycopg.connect(dsn, autocommit=True))
                works.append(_inserting(conn, f"{schema}.{table}", material))
            found[table] = Crowd(works)
        yield found


def _saving(store: limpet.Store, material: Material, name: str) -> Work:
    scopes = [store.scope(f"session {name} {number}") for number in range(SESSIONS)]
    states = material.states

    def save(number: int) -> None:
        turn, at = divmod(number, SESSIONS)
        scopes[at].save(states[(turn + at * APART) % STATES])

    return save


def _inserting(
    conn: psycopg.Connection[tuple[object, ...]], table: str, material: Material
) -> Work:
    query = f"INSERT INTO {table} (id, body) VALUES (%s, %s)".encode()
    execute: Callable[..., object] = partial(conn.execute, query, prepare=True)
    bodies = material.bodies

    def insert(number: int) -> None:
        turn, at = divmod(number, SESSIONS)
        execute((number, bodies[(turn + at * APART) % STATES]))

    return insert
