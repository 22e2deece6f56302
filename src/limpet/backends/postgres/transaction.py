"""One transaction on a PostgreSQL connection, by the names of statements.

A statement whose answer is not needed waits for the next query or the end of the transaction, and
is sent along in one pipeline: to read and to write are two round trips, however much is written.
What will be needed is sent along, too: `ahead` of the next query, or behind it (`also`). The key of
a scope may not be known then: statements also take its address in the place of the key.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from psycopg.pq.abc import PGresult

from limpet.backends.postgres.raw import Command, Connection, Statement, rows_of, run, statement_of
from limpet.backends.sql.transaction import in_schema, load_statements, migrations_of
from limpet.model import ScopeKey

T = TypeVar("T")

_STATEMENTS = load_statements("postgres", "queries", "listings", "check")
MIGRATIONS = migrations_of("postgres")
OLDEST, NEWEST = MIGRATIONS[1].version, MIGRATIONS[-1].version  # the first makes the schema alone
_NO_LISTENERS = "0 /* has_listeners */"
_FETCH = 100  # rows at a time of a statement whose reader may stop
_COMMIT = Statement(b"limpet_commit", b"COMMIT")
# Once the scope is locked it is known how many rows these touch, or else they fail.
_CERTAIN = {"add_scope": "insert_scope", "move_scope": "move_scope"}


@lru_cache(maxsize=64)
def statements_of(schema: str, *, notifies: bool = True) -> Mapping[str, Statement]:
    """Return the statements for the tables of a schema; with `notifies` a save asks who listens."""
    found = dict(_STATEMENTS)
    found["save_with_notes"] = found["save"]
    for part in ("no_such_note", "add_notes"):
        text = found.pop(part)
        found["save_with_notes"] = found["save_with_notes"].replace(f"/* {part} */", text)
    if notifies:
        has_listeners = found["has_listeners"].rstrip(";")
        check = found["check_version"].rstrip(";")
        found["check_version"] = f"SELECT ({has_listeners}), ({check})"
        for name, last in (("save", "$41"), ("save_with_notes", "$49")):
            asked = has_listeners.replace("%(listeners)s", last)
            found[name] = found[name].replace(_NO_LISTENERS, f"({asked})::int")
    newest = f"{NEWEST} /* newest */"
    pk = found["pks_of_scope"].replace("FOR UPDATE;", "")
    with_pk = [(name, text) for name, text in found.items() if "%(pk)s" in text]
    found |= {f"{name}_at": text.replace("%(pk)s", f"({pk})") for name, text in with_pk}
    return {
        name: statement_of(name, in_schema(text.replace("0 /* newest */", newest), schema))
        for name, text in found.items()
    }


class Moved(Exception):
    """What is sent ahead of each query has another answer this time."""


class Answer:
    """The rows of a statement that is sent along with another."""

    def __init__(self, command: Command) -> None:
        self.command, self.is_known = command, False
        self.rows: list[tuple[Any, ...]] = []


class PostgresTransaction:
    """Implements `sql.transaction.Transaction`. Without `begin` each statement commits alone.

    If it is `apart`, each query is a transaction of its own, in one round trip. It raises Moved
    unless the answers to what is sent `ahead` stay the same: then all queries see the same scopes.
    """

    def __init__(
        self, conn: Connection, statements: Mapping[str, Statement], begin: Iterable[Statement] = ()
    ) -> None:
        self.conn = conn
        self._statements = statements
        self._waiting: list[Command] = [(each, ()) for each in begin]
        self._begins = bool(self._waiting)
        self.apart = False
        self._ahead: list[Answer] = []
        self._following: list[Answer] = []
        self._cursors = 0
        self.is_locked = False  # the scope that is changed
        self.changed = ""  # the session that listeners are to be notified of

    def _ask(self, command: Command) -> PGresult:
        waiting, ahead, following = self._waiting, self._ahead, self._following
        end = [(_COMMIT, ())] if self.apart else []
        asked = [*(each.command for each in ahead), command, *(each.command for each in following)]
        results = run(self.conn, [*waiting, *asked, *end])[len(waiting) :]
        found = results.pop(len(ahead))
        for each, result in zip([*ahead, *following], results, strict=False):
            rows = rows_of(self.conn, each.command[0], result)
            if each.is_known and each.rows != rows:
                raise Moved
            each.rows, each.is_known = rows, True
        self._following = []
        if not self.apart:
            self._waiting, self._ahead = [], []
        return found

    def _command(self, name: str, values: Any) -> Command:
        if isinstance(values, dict) and isinstance(key := values.get("pk"), ScopeKey):
            return self._statements[f"{name}_at"].with_values({**values, **key._asdict()})
        return self._statements[name].with_values(values)

    def commit(self, name: str = "", values: Any = ()) -> list[tuple[Any, ...]]:
        """Send what waits and commit; return the rows of a last statement before that."""
        commands, self._waiting = self._waiting, []
        if name:
            commands.append(self._command(name, values))
        results = run(self.conn, [*commands, (_COMMIT, ())] if self._begins else commands)
        at = len(commands) - 1
        return rows_of(self.conn, commands[at][0], results[at]) if name else []

    def one(self, name: str, values: Any = ()) -> Any:
        found = self.all(name, values)
        return found[0] if found else None

    def all(self, name: str, values: Any = ()) -> list[Any]:
        command = self._command(name, values)
        return rows_of(self.conn, command[0], self._ask(command))

    def also(self, name: str, values: Any) -> Answer:
        """Send a statement along, right after the next query, by which its answer comes."""
        self._following.append(Answer(self._command(name, values)))
        return self._following[-1]

    def ahead(self, name: str, values: Any) -> Answer:
        """Send a statement right before the next query; with `apart`, before each."""
        self._ahead.append(Answer(self._command(name, values)))
        return self._ahead[-1]

    def each(self, name: str, values: Any = ()) -> Iterator[Any]:
        (label, text, _), given = self._command(name, values)
        self._cursors += 1
        cursor = b"%b_%d" % (label, self._cursors)
        self._waiting.append((Statement(b"", b"DECLARE %b CURSOR FOR %b" % (cursor, text)), given))
        fetch = Statement(cursor, b"FETCH %d FROM %b" % (_FETCH, cursor))
        while rows := rows_of(self.conn, fetch, self._ask((fetch, ()))):
            yield from rows

    def page(self, name: str, values: Any, take: Callable[[Any], T | None], limit: int) -> list[T]:
        asked = limit
        while True:
            rows = self.all(name, {**values, "limit": asked})
            items = [item for found in rows if (item := take(found)) is not None]
            if len(items) >= limit or len(rows) < asked:
                return items[:limit]
            asked *= 2  # some were damaged, which is rare enough to begin again

    def do(self, name: str, values: Any = ()) -> None:
        self._waiting.append(self._command(name, values))

    def do_many(self, name: str, rows: Iterable[Any]) -> None:
        self._waiting += [self._command(name, row) for row in rows]

    def count(self, name: str, values: Any = ()) -> int:
        if self.is_locked and name in _CERTAIN:
            self.do(_CERTAIN[name], values)
            return 1
        return self._ask(self._command(name, values)).command_tuples or 0

    def many(self, keys: Iterable[int | str]) -> Any:
        return list(keys)
