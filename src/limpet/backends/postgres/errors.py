"""PostgreSQL's errors as ours, chosen by code (SQLSTATE)."""

import psycopg

from limpet.errors import Corrupt, InvalidInput, LimpetError, Unavailable, Unsupported

# Another transaction was in the way. Nothing happened, and trying again is the answer: a conflict
# of serialization, a deadlock, a name or place that somebody else took at the same moment, a scope
# that was deleted under us.
_RACES = {"40001", "40P01", "23505", "23503"}

# What was prepared on a connection is not there, or something else is: another connection will do,
# unless somebody hands them out statement by statement.
_UNPREPARED = {"26000", "42P05"}

# The server ended the connection: it shuts down, restarts, or waited too long for us. The class 08
# is that of connections; poolers use all of it.
_GONE = {"57P01", "57P02", "57P03", "57P05", "25P03", *_UNPREPARED}

_FACTS = {
    "25006": "the server takes no writes: it is a replica or read-only",
    "42501": "the role has no permission",
    "53100": "the server's disk is full",
    "53300": "the server has no connection left",
    "55P03": "another writer holds the scope",
    "57014": "the statement took too long, or was cancelled",
}

_MISSING = {"42P01", "3F000", "42703"}  # a table, a schema, a column


def is_race(cause: Exception) -> bool:
    """Tell whether another transaction was merely in the way."""
    return isinstance(cause, psycopg.Error) and cause.sqlstate in _RACES


def is_place_taken(cause: Exception) -> bool:
    """Tell whether another scope had taken the very place; the next attempt takes another one."""
    if not isinstance(cause, psycopg.errors.UniqueViolation):
        return False
    return cause.diag.constraint_name in ("snapshots_pkey", "bodies_pkey")


def is_gone(cause: Exception) -> bool:
    """Tell whether the connection is lost, so that another one may do."""
    if not isinstance(cause, psycopg.Error):
        return False
    if cause.sqlstate is None:
        return isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError)
    if cause.diag.severity_nonlocalized in ("FATAL", "PANIC"):
        return True  # only an ERROR is a refusal
    return cause.sqlstate in _GONE or cause.sqlstate.startswith("08")


def translated(cause: Exception) -> LimpetError:
    """Return our error for the driver's. No message of the server is repeated."""
    state = getattr(cause, "sqlstate", None)
    where = f"postgres=`{state or type(cause).__name__}`"
    if state in _MISSING:
        return Unavailable(
            "the tables are missing or not up to date: open the store once with setup=True, or run "
            f"what `limpet schema postgres` prints. {where}"
        )
    if state in _FACTS:
        return Unavailable(f"{_FACTS[state]}. {where}")
    if state in _UNPREPARED:
        return Unavailable(f"there is a pooler in between: open with pooler=True. {where}")
    if state in _RACES:
        return Unavailable(f"other writers were in the way for too long. {where}")
    if state is None and isinstance(cause, psycopg.DataError):
        return InvalidInput(f"the driver does not take a value. {where}")
    match (state or "")[:2]:
        case "XX" | "21":
            return Corrupt(f"the database is damaged, or the server failed. {where}")
        case "22" | "54":
            return InvalidInput(f"the server does not take a value. {where}")
        case "0A":
            return Unsupported(f"the server cannot do this. {where}")
    return Unavailable(f"postgres did not answer{_reason(cause)}. {where}")


# A connection that is refused comes without a code. These words choose no class of error: they only
# tell a person more. What else the message says is not repeated.
_REASONS = {
    "Connection refused": "nobody listens there",
    "password authentication failed": "the password is refused",
    "no password supplied": "it wants a password",
    "does not exist": "there is no such database or role",
    "pg_hba.conf": "it does not let this host in",
    "timeout expired": "not in time",
    "could not translate host name": "the host is not known",
    "No such file or directory": "nobody listens there",
}


def _reason(cause: Exception) -> str:
    if not isinstance(cause, psycopg.OperationalError):
        return ""
    text = str(cause)
    return next((f": {reason}" for words, reason in _REASONS.items() if words in text), "")
