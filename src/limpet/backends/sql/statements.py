"""Loads an engine's named statements and numbered migrations from its folder `sql/`."""

import re
from importlib.resources import files
from importlib.resources.abc import Traversable

_NAME = re.compile(r"^-- name: ([a-z_]+)\n", re.MULTILINE)
_MIGRATION = re.compile(r"(\d{3})_([a-z_]+)\.sql")
SCHEMA = "limpet"
_SCHEMA = re.compile(r"\blimpet\b(?=[.;]| IS )")


def load_queries(engine: str, file: str) -> dict[str, str]:
    """Return the statements of `sql/<file>.sql` by the name in the `-- name:` line above each."""
    parts = _NAME.split(_folder(engine).joinpath(f"{file}.sql").read_text("utf-8"))
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def load_statements(engine: str) -> dict[str, str]:
    """Return all statements of an engine; those of bodies.sql and check.sql have a prefix."""
    found = load_queries(engine, "queries") | load_queries(engine, "listings")
    for file in ("bodies", "check"):
        found |= {f"{file}.{name}": text for name, text in load_queries(engine, file).items()}
    return found


def load_migrations(engine: str) -> list[tuple[int, str, str]]:
    """Return (version, name, script) of every migration of an engine, in order."""
    entries = _folder(engine).iterdir()
    matches = [(match, entry) for entry in entries if (match := _MIGRATION.fullmatch(entry.name))]
    return sorted((int(m[1]), m[2], entry.read_text("utf-8")) for m, entry in matches)


def in_schema(text: str, schema: str) -> str:
    """Return statements for the tables of a schema; they are written for those in `limpet`."""
    return text if schema == SCHEMA else _SCHEMA.sub(f'"{schema}"', text)


def _folder(engine: str) -> Traversable:
    return files(f"limpet.backends.{engine}").joinpath("sql")
