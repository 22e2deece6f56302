"""Stores on PostgreSQL that are ill-treated, and what their server is asked afterwards."""

import secrets
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import limpet
from limpet import Scope, Store, Unavailable
from tests.servers.postgres import HERE, LOCKED_HERE, Postgres, with_option
from tests.waiting import WAIT_S_MAX, until

# A connection that is idle holds nothing. Locks of relations are looked for in the whole schema, as
# behind a pooler a connection does not have the name that its client gave.
_BUSY = f"""
    SELECT a.state, a.query FROM pg_stat_activity AS a
     WHERE a.application_name = %(name)s
       AND (a.state <> 'idle' OR EXISTS (SELECT 1 FROM pg_locks AS l WHERE l.pid = a.pid))
     UNION ALL
    SELECT l.mode, c.relname FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation
     WHERE c.relnamespace = to_regnamespace(%(schema)s) AND l.pid <> pg_backend_pid()
       AND l.{LOCKED_HERE}
     UNION ALL
    SELECT l.mode, 'advisory' FROM pg_locks AS l WHERE l.locktype = 'advisory' AND l.{LOCKED_HERE}
"""
_OPEN = "SELECT state, query FROM pg_stat_activity WHERE application_name = %(name)s"


@contextmanager
def opened(server: Postgres, url: str, **options: Any) -> Iterator[Store]:
    """Open a store, and see in the end that nothing of it is left on the server.

    It holds no lock and no transaction before it is closed, and no connection after that.
    """
    named = with_option(url, "application_name", f"limpet-{secrets.token_hex(4)}")
    with limpet.open(named, **options) as store:
        yield store
        assert_none(server, _BUSY, named)
    if not options.get("pooler"):  # else those that are left are the pooler's
        assert_none(server, _OPEN, named)


def assert_none(server: Postgres, query: str, url: str) -> None:
    """See that a query finds nothing before long: a server needs a moment to end a connection."""
    options = parse_qs(urlsplit(url).query)
    asked = {
        "name": options["application_name"][0],
        "schema": options.get("schema", ["limpet"])[0],
    }
    found: list[Any] = []

    def is_clean() -> bool:
        found[:] = connection.execute(query, asked).fetchall()
        return not found

    with server.connect() as connection:
        try:
            until(is_clean)
        except AssertionError:
            raise AssertionError(f"left on the server: {found}") from None


class Background(threading.Thread):
    """Runs a function in a thread; `result` returns or raises what came of it."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._function = function
        self._answer: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._answer = self._function()
        except BaseException as error:
            self._error = error

    def result(self) -> Any:
        self.join(WAIT_S_MAX)
        assert not self.is_alive(), "it did not come to its end"
        if self._error is not None:
            raise self._error
        return self._answer


def waiters(server: Postgres) -> int:
    """Return how many connections wait for a lock."""
    query = f"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND {HERE}"
    with server.connect() as connection:
        (row,) = connection.execute(query).fetchall()
    return int(row[0])


def everything(store: Store) -> list[Any]:
    """Return all that a store shows."""
    return [
        (info, list(scope.load_many(scope.ids())), list(scope.history()), list(scope.notes()))
        for info in store.scopes()
        for scope in [store.scope(*info.key)]
    ]


def fill(scope: Scope) -> None:
    for number in range(3):
        scope.save({"n": number, "items": []}, id=f"id-{number}", labels={"a": "b"})
    scope.set_note("name", 0)


WRITES: dict[str, Callable[[Scope], object]] = {
    "save": lambda scope: scope.save({"text": "x"}),
    "first save": lambda scope: Store(scope.driver).scope("new").save({"text": "x"}),
    "draft": lambda scope: scope.save({"text": "x"}, keep=False),
    "append": lambda scope: scope.append("items", ["x"]),
    "update": lambda scope: scope.update("id-1", lambda s: s.with_(state="x")),
    "overwrite": lambda scope: scope.save("x", id="id-1", overwrite=True),
    "fork": lambda scope: scope.fork("id-1"),
    "note": lambda scope: scope.set_note("name", "x"),
    "counter": lambda scope: scope.set_note("name", lambda n: n + 1),
    "delete_snapshot": lambda scope: scope.delete_snapshot("id-1"),
    "delete": lambda scope: scope.delete(),
    "delete_note": lambda scope: scope.delete_note("name"),
    "delete_session": lambda scope: Store(scope.driver).delete_session(scope.session_id),
}


def outage(write: Callable[[Scope], object], store: Store) -> Unavailable:
    """Return how a write to session `s` fails, after checking that it changed nothing."""
    before = everything(store)
    with pytest.raises(Unavailable) as caught:
        write(store.scope("s"))
    assert caught.value.outcome_known
    assert everything(store) == before
    return caught.value


def run_script(script: str, *arguments: object, timeout_s: float = 100) -> str:
    """Run a script in a process of its own, which must end well; return what it printed."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
