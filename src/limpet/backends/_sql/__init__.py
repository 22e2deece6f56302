"""SQL is source code: named statements and numbered migrations, in .sql files beside this one."""

import re
from importlib.resources import files

_NAME = re.compile(r"^-- name: ([a-z_]+)\n", re.MULTILINE)
_MIGRATION = re.compile(r"(\d{3})_([a-z_]+)\.sql")
SCHEMA = "limpet"
_SCHEMA = re.compile(r"\blimpet\b(?=[.;]| IS )")


def load_queries(file: str) -> dict[str, str]:
    """Return the statements of a file by the name in the `-- name:` line above each."""
    parts = _NAME.split(files(__name__).joinpath(file).read_text("utf-8"))
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def load_migrations(folder: str) -> list[tuple[int, str, str]]:
    """Return (version, name, script) of every migration in a folder, in order."""
    entries = files(__name__).joinpath(folder).iterdir()
    matches = [(match, entry) for entry in entries if (match := _MIGRATION.fullmatch(entry.name))]
    return sorted((int(m[1]), m[2], entry.read_text("utf-8")) for m, entry in matches)


def in_schema(text: str, schema: str) -> str:
    """Return statements for the tables of a schema; they are written for those in `limpet`."""
    return text if schema == SCHEMA else _SCHEMA.sub(f'"{schema}"', text)
