"""Statements whose values are sent as bytes, without a cursor: that takes much less CPU.

Several are sent in one pipeline, and so in one round trip. It waits as a cursor does, by
`Connection.wait`: an interrupt cancels the statement, and a lost connection raises
OperationalError. The server infers the types of values.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import psycopg
from psycopg import generators
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus
from psycopg.pq.abc import PGconn, PGresult

PREPARE_THRESHOLD = 2  # uses on a connection, after which a statement is prepared there
_BINARY = 1
_PLACEHOLDER = re.compile(r"%\((\w+)\)s")


class Statement(NamedTuple):
    """A statement with numbered placeholders, and the names of their values if they have any.

    One without a name is never prepared.
    """

    name: bytes
    text: bytes
    names: tuple[str, ...] = ()

    def with_values(self, values: Mapping[str, Any] | Sequence[Any]) -> "Command":
        if isinstance(values, Mapping):
            values = [values[name] for name in self.names]
        return self, values


Command: TypeAlias = tuple[Statement, Sequence[Any]]


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection, with how often it ran each statement, and how the results of each are read."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.uses: dict[bytes, int] = {}
        self.readers: dict[bytes, list[Callable[[bytes], Any]]] = {}


def statement_of(name: str, text: str) -> Statement:
    """Return a statement whose placeholders are all named, or all numbered."""
    names = list(dict.fromkeys(_PLACEHOLDER.findall(text)))
    numbered = _PLACEHOLDER.sub(lambda found: f"${names.index(found[1]) + 1}", text)
    return Statement(f"limpet_{name}".encode(), numbered.encode(), tuple(names))


def run(conn: Connection, commands: Sequence[Command]) -> list[PGresult]:
    """Send statements in one go; return the result of each, or raise the first error."""
    pgconn, (statement, values) = conn.pgconn, commands[-1]
    if len(commands) == 1 and not _is_due(conn, statement):
        _send(conn, statement, values)
        results: list[PGresult] = conn.wait(generators.execute(pgconn))
        return [_checked(results[-1])]
    pgconn.enter_pipeline_mode()
    wanted = list[bool]()
    for statement, values in commands:
        if _is_due(conn, statement):
            pgconn.send_prepare(statement.name, statement.text)
            wanted.append(False)
        _send(conn, statement, values)
        wanted.append(True)
    pgconn.pipeline_sync()
    results = conn.wait(_answers(pgconn))
    pgconn.exit_pipeline_mode()
    checked = [*map(_checked, results)]
    return [result for result, is_wanted in zip(checked, wanted, strict=True) if is_wanted]


def rows_of(conn: Connection, statement: Statement, result: PGresult) -> list[tuple[Any, ...]]:
    """Return the rows of a result."""
    count = result.ntuples
    if not count:
        return []
    columns = range(result.nfields)
    readers = conn.readers.get(statement.name)
    if readers is None:
        readers = [_READ[result.ftype(at)] for at in columns]
        conn.readers[statement.name] = readers
    get = result.get_value
    return [
        tuple(
            None if (value := get(row, at)) is None else read(value)
            for at, read in zip(columns, readers, strict=True)
        )
        for row in range(count)
    ]


def roll_back(conn: Connection) -> None:
    """End a transaction. A cursor would deallocate all prepared statements after it."""
    conn.pgconn.send_query(b"ROLLBACK")
    _checked(conn.wait(generators.execute(conn.pgconn))[-1])


def _is_due(conn: Connection, statement: Statement) -> bool:
    """Return whether a statement is to be prepared now."""
    return conn.uses.get(statement.name) == PREPARE_THRESHOLD


def _send(conn: Connection, statement: Statement, values: Sequence[Any]) -> None:
    sent = [_SENT.get(type(each), _other)(each) for each in values]
    formats = [type(each) is bytes for each in values]  # 1 is binary
    uses = conn.uses.get(statement.name, 0)
    if statement.name and conn.prepare_threshold is not None:
        conn.uses[statement.name] = uses + 1
    if uses < PREPARE_THRESHOLD:
        conn.pgconn.send_query_params(statement.text, sent, None, formats, _BINARY)
    else:
        conn.pgconn.send_query_prepared(statement.name, sent, formats, _BINARY)


def _answers(pgconn: PGconn) -> Any:
    """Wait for the results of a pipeline, as the generators of psycopg do.

    A statement that commits by itself does so at the end of the pipeline: an error may come there.
    """
    yield from generators.send(pgconn)
    results = list[PGresult]()
    while True:
        found = yield from generators.fetch(pgconn)
        if found is not None:
            if found.status == ExecStatus.PIPELINE_SYNC:
                return results
            results.append(found)
        elif pgconn.status != ConnStatus.OK:
            for result in results:
                _checked(result)
            raise psycopg.OperationalError("the connection is lost")


def _checked(result: PGresult) -> PGresult:
    if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        raise error_from_result(result)
    return result


def _text(value: str) -> bytes:
    if "\0" in value:  # the driver would end the text there
        raise psycopg.DataError("text holds NUL")
    return value.encode()


def _array(items: Iterable[Any]) -> bytes:
    return b"{%s}" % b",".join(map(_item, items))


def _item(item: Any) -> bytes:
    if item is None:
        return b"NULL"
    if type(item) is int:
        return b"%d" % item
    if type(item) is bytes:
        return b'"\\\\x%s"' % item.hex().encode()
    return b'"%s"' % _text(item).replace(b"\\", b"\\\\").replace(b'"', b'\\"')


_SENT: dict[type, Callable[[Any], bytes | None]] = {
    type(None): lambda _: None,
    bytes: bytes,
    bool: lambda value: b"t" if value else b"f",
    int: b"%d".__mod__,
    str: _text,
    list: _array,
}


def _other(value: Any) -> bytes | None:
    """Send a value of a derived class as one of its base."""
    return next(_SENT[base](value) for base in type(value).__mro__ if base in _SENT)


def _integer(value: bytes) -> int:
    return int.from_bytes(value, signed=True)


_READ: dict[int, Callable[[bytes], Any]] = {
    16: _integer,  # as SQLite has it
    17: bytes,
    19: bytes.decode,
    20: _integer,
    21: _integer,
    23: _integer,
    25: bytes.decode,
}
