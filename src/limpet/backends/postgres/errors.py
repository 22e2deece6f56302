"""PostgreSQL's errors as ours, chosen by code (SQLSTATE)."""

import re

import psycopg
from psycopg.conninfo import conninfo_to_dict

from limpet.backends.sql.transaction import upgraded
from limpet.errors import Corrupt, InvalidInput, LimpetError, Unavailable, Unsupported

# Conflicts with another transaction, after which nothing was applied: a serialization failure, a
# deadlock, a key that was inserted at the same moment. To be retried.
_RACES = {"40001", "40P01", "23505"}

# A prepared statement is missing, or another one has its name. A new connection helps, unless a
# pooler assigns connections to single statements.
_UNPREPARED = {"26000", "42P05"}

# The server closed the connection: it shuts down, restarts, or waited too long for the client.
# Class 08 is for connection errors; poolers use all of it.
_GONE = {"57P01", "57P02", "57P03", "57P05", "25P03", *_UNPREPARED}

_FACTS = {
    "25006": "the server accepts no writes: it is a replica or read-only",
    "42501": "the role lacks a permission on the tables",
    "53100": "the server's disk is full",
    "53300": "the server has no connection left",
    "55P03": "another transaction holds the lock: try again later, or raise lock_wait_s",
    "57014": "the statement took too long, or was cancelled",
}

_PLACES = {"scopes_pkey", "snapshots_pkey", "snapshots_by_id", "tails_pkey", "labels_pkey"}
_MISSING = {"42P01", "3F000", "42703"}  # a table, a schema, a column
_UPGRADED = "22012"  # a division by zero, of `check_version` alone


def is_race(cause: Exception) -> bool:
    return isinstance(cause, psycopg.Error) and cause.sqlstate in _RACES


def is_of_other_tables(cause: psycopg.Error) -> bool:
    """Return whether a table or column does not exist, or has a constraint that is not ours."""
    return cause.sqlstate in _MISSING or (cause.sqlstate or "").startswith("23")


def is_taken(cause: Exception) -> bool:
    """Return whether a place in history is taken, or an id in its scope."""
    if not isinstance(cause, psycopg.errors.UniqueViolation):
        return False
    return cause.diag.constraint_name in _PLACES


def is_unprepared(cause: psycopg.Error) -> bool:
    """Return whether a statement was not run because the server does not have it prepared."""
    return cause.sqlstate in _UNPREPARED


def is_gone(cause: Exception) -> bool:
    """Return whether the connection is lost, so that a new one may help."""
    if not isinstance(cause, psycopg.Error):
        return False
    if cause.sqlstate is None:
        return isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError)
    if cause.diag.severity_nonlocalized in ("FATAL", "PANIC"):
        return True  # after an ERROR the connection would still be usable
    return cause.sqlstate in _GONE or cause.sqlstate.startswith("08")


def translated(cause: Exception) -> LimpetError:
    """Return our error for the driver's. The server's message is not repeated: it may hold data."""
    state = getattr(cause, "sqlstate", None)
    where = f"postgres=`{state or type(cause).__name__}`"
    if state == _UPGRADED:
        return upgraded(where)
    if state in _MISSING:
        return Unavailable(
            "the tables are missing or not up to date: open the store once with setup=True, or run "
            f"the SQL that `limpet schema postgres` prints. {where}"
        )
    if state in _FACTS:
        return Unavailable(f"{_FACTS[state]}. {where}")
    if state in _UNPREPARED:
        return Unavailable(f"the connection goes through a pooler: open with pooler=True. {where}")
    if state in _RACES:
        return Unavailable(f"other transactions kept conflicting: try again later. {where}")
    if state is None and isinstance(cause, psycopg.DataError):
        return InvalidInput(f"the driver does not accept a value. {where}")
    match (state or "")[:2]:
        case "XX" | "21":
            return Corrupt(f"the database is damaged, or the server failed. {where}")
        case "22" | "54":
            return InvalidInput(f"the server does not accept a value. {where}")
        case "0A":
            return Unsupported(f"the server cannot do this. {where}")
    notes = getattr(cause, "__notes__", ())  # `place_of`, if a connection failed
    return Unavailable(f"{_reason(cause)}. {where}{''.join(notes)}")


# A refused connection has no SQLSTATE. These texts choose no class of error; they only say what can
# be done. The rest of the message is not repeated.
_REASONS = {
    "Connection refused": "no server listens there: start it, or correct host and port of the URL",
    "No such file or directory": "no server listens at this socket: start it, or name its host",
    "password authentication failed": (
        "the server refuses the password: correct it in the URL, an @ as %40, or in PGPASSWORD"
    ),
    "no password supplied": "a password is needed: put it in the URL, PGPASSWORD or ~/.pgpass",
    r"pg_hba\.conf": "pg_hba.conf does not admit this host: add a line for it there",
    'database ".*" does not exist': (
        "there is no such database: make it by CREATE DATABASE, or correct its name in the URL"
    ),
    'role ".*" does not exist': (
        "there is no such role: make it by CREATE ROLE, or correct the user of the URL"
    ),
    "timeout expired": "the server does not answer: look whether it runs, and the network",
    "could not translate host name": "the host name is not known: correct it in the URL",
    "failed to resolve host": "the host name is not known: correct it in the URL",
}


def _reason(cause: Exception) -> str:
    text = str(cause) if isinstance(cause, psycopg.OperationalError) else ""
    found = (reason for pattern, reason in _REASONS.items() if re.search(pattern, text))
    return next(found, "postgres did not answer")


def place_of(cause: Exception, conninfo: str) -> str:
    """Return the address that was tried: as the driver says, else as the URL does."""
    tried = getattr(cause, "pgconn", None)
    if tried is not None:
        host, port = tried.host.decode(), tried.port.decode()
    else:
        given = conninfo_to_dict(conninfo)
        host, port = given.get("host", given.get("hostaddr", "")), given.get("port", "5432")
    return f" host=`{host}` port=`{port}`"
