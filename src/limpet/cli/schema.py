"""`limpet schema`: the tables, as a database administrator wants to read them."""

import click

from limpet.backends.sql import statements
from limpet.backends.sql.statements import SCHEMA, in_schema
from limpet.cli import _exits
from limpet.cli._shared import echo_json, json_option, make_console
from limpet.opening import check_schema

_ENGINES = ("sqlite", "postgres")


@click.command()
@click.argument("engine", type=click.Choice(_ENGINES), default=_ENGINES[0], metavar="[ENGINE]")
@click.option(
    "--schema", "name", metavar="NAME", default=SCHEMA, help="PostgreSQL: the schema of the tables."
)
@json_option
def schema(engine: str, name: str, as_json: bool) -> int:
    """Print the SQL that makes an engine's tables.

    All migrations of ENGINE (sqlite or postgres), in order, as text that the database takes. For
    PostgreSQL it is one transaction to be run by a role that may create tables; others then open
    the store with setup=False.

    \b
    --json: {"engine": text, "migrations": [{"version": n, "name": text, "sql": text}, ...]}

    \b
    Examples:
      limpet schema sqlite
      limpet schema postgres --schema agents | psql
    """
    migrations = [
        (version, title, in_schema(script, check_schema(name)))
        for version, title, script in statements.load_migrations(engine)
    ]
    if as_json:
        shape = [
            {"version": version, "name": title, "sql": script}
            for version, title, script in migrations
        ]
        echo_json({"engine": engine, "migrations": shape})
        return _exits.FINE
    text = "\n".join(
        f"-- migration {version}: {title}\n\n{script}{_noted(engine, name, version, title)}"
        for version, title, script in migrations
    )
    text = f"BEGIN;\n\n{text}\nCOMMIT;\n" if engine == "postgres" else text
    console = make_console()
    if console.is_terminal:
        from rich.syntax import Syntax  # slow to load: it brings the lexers

        coloured = Syntax("", "sql", theme="ansi_dark", background_color="default").highlight(text)
        console.print(coloured, soft_wrap=True, end="")
    else:
        click.echo(text, nl=False)  # the very text, whatever the width
    return _exits.FINE


def _noted(engine: str, name: str, version: int, title: str) -> str:
    """Return what makes the migration known, where the tables themselves hold that."""
    if engine != "postgres" or version == 0:
        return ""
    note = f"INSERT INTO {SCHEMA}.schema_migrations (version, name) VALUES ({version}, '{title}');"
    return "\n" + in_schema(note, name) + "\n"
