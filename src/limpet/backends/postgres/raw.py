"""One statement whose values are sent as bytes, without a cursor: that takes much less CPU.

It waits as a cursor does, by `Connection.wait`: an interrupt cancels the statement, and a lost
connection raises OperationalError. The server infers the types of values, which are text or bytes.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from psycopg import generators
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from limpet.backends.postgres.transaction import Connection

PREPARE_THRESHOLD = 2  # uses on a connection, after which a statement is prepared there
_PLACEHOLDER = re.compile(rb"%\((\w+)\)s")


class RawStatement(NamedTuple):
    """A statement with numbered placeholders, and the names of their values."""

    name: bytes
    text: bytes
    names: tuple[str, ...]

    def one(self, conn: Connection, values: Mapping[str, Any]) -> tuple[int, ...] | None:
        """Run it outside of a transaction; return its first row, which has integers only."""
        pgconn, given = conn.pgconn, [values[name] for name in self.names]
        sent = [_SENT[type(each)](each) for each in given]
        formats = [type(each) is bytes for each in given]  # 1 is binary
        uses = conn.uses[self.name] = conn.uses.get(self.name, 0) + 1
        if uses <= PREPARE_THRESHOLD:
            pgconn.send_query_params(self.text, sent, None, formats)
        else:
            if uses == PREPARE_THRESHOLD + 1:
                pgconn.send_prepare(self.name, self.text)
                _answer(conn)
            pgconn.send_query_prepared(self.name, sent, formats)
        found = _answer(conn)
        if not found.ntuples:
            return None
        return tuple(int(found.get_value(0, at) or b"0") for at in range(found.nfields))


def raw_statement(name: str, text: bytes) -> RawStatement:
    """Return a statement that has named placeholders."""
    names = dict.fromkeys(_PLACEHOLDER.findall(text))
    numbers = {each: b"$%d" % number for number, each in enumerate(names, 1)}
    numbered = _PLACEHOLDER.sub(lambda found: numbers[found[1]], text)
    return RawStatement(f"limpet_{name}".encode(), numbered, tuple(each.decode() for each in names))


def roll_back(conn: Connection) -> None:
    """End a transaction. A cursor would deallocate all prepared statements after it."""
    conn.pgconn.send_query(b"ROLLBACK")
    _answer(conn)


def _answer(conn: Connection) -> PGresult:
    result: PGresult = conn.wait(generators.execute(conn.pgconn))[-1]
    if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        raise error_from_result(result)
    return result


def _array(items: Iterable[Any]) -> bytes:
    return b"{%s}" % b",".join(map(_item, items))


def _item(item: Any) -> bytes:
    if item is None:
        return b"NULL"
    if type(item) is int:
        return b"%d" % item
    text = b"\\x%s" % item.hex().encode() if type(item) is bytes else item.encode()
    return b'"%s"' % text.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


_SENT: dict[type, Callable[[Any], bytes | None]] = {
    type(None): lambda _: None,
    bytes: bytes,
    bool: lambda value: b"t" if value else b"f",
    int: lambda value: b"%d" % value,
    str: str.encode,
    list: _array,
}
