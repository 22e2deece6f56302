"""`limpet schema`: the SQL that creates the tables, for a database administrator."""

import click

from limpet.cli import _exits
from limpet.cli._shared import echo_json, json_option
from limpet.cli._terminal import make_console
from limpet.opening import DEFAULT_SCHEMA, schema_migrations

_ENGINES = ("sqlite", "postgres")


@click.command()
@click.argument("engine", type=click.Choice(_ENGINES), default=_ENGINES[0], metavar="[ENGINE]")
@click.option(
    "--schema", metavar="NAME", default=DEFAULT_SCHEMA, help="PostgreSQL: the schema of the tables."
)
@json_option
def schema(engine: str, schema: str, as_json: bool) -> int:
    """Print the SQL that creates an engine's tables.

    Prints all migrations of ENGINE (sqlite or postgres), in order. For PostgreSQL it is one
    transaction, to be run by a role that may create tables; other roles then open the store with
    setup=False.

    \b
    --json: {"engine": text,
             "migrations": [{"version": n, "name": text, "sql": text}, ...]}

    \b
    Examples:
      limpet schema sqlite
      limpet schema postgres --schema agents | psql
    """
    migrations = schema_migrations(engine, schema)
    if as_json:
        echo_json(
            {
                "engine": engine,
                "migrations": [
                    {"version": each.version, "name": each.name, "sql": each.sql}
                    for each in migrations
                ],
            }
        )
        return _exits.FINE
    text = "\n".join(
        f"-- migration {each.version}: {each.name}\n\n{each.sql}{each.record_sql}"
        for each in migrations
    )
    text = f"BEGIN;\n\n{text}\nCOMMIT;\n" if engine == "postgres" else text
    console = make_console()
    if console.is_terminal:
        from rich.syntax import Syntax  # slow to load: it brings the lexers

        coloured = Syntax("", "sql", theme="ansi_dark", background_color="default").highlight(text)
        console.print(coloured, soft_wrap=True, end="")
    else:
        click.echo(text, nl=False)
    return _exits.FINE
