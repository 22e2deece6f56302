"""`holdfast schema`: the tables, as a database administrator wants to read them."""

import click

from holdfast.backends import _sql
from holdfast.cli import _exits
from holdfast.cli._shared import echo_json, json_option, make_console

_ENGINES = ("sqlite",)


@click.command()
@click.argument("engine", type=click.Choice(_ENGINES), default=_ENGINES[0])
@json_option
def schema(engine: str, as_json: bool) -> int:
    """Print the SQL that makes an engine's tables.

    All migrations of ENGINE (sqlite), in order, as text that the database takes.

    \b
    --json: {"engine": text, "migrations": [{"version": n, "name": text, "sql": text}, ...]}
    """
    migrations = _sql.load_migrations(engine)
    if as_json:
        shape = [
            {"version": version, "name": name, "sql": script}
            for version, name, script in migrations
        ]
        echo_json({"engine": engine, "migrations": shape})
        return _exits.FINE
    text = "\n".join(
        f"-- migration {version}: {name}\n\n{script}" for version, name, script in migrations
    )
    console = make_console()
    if console.is_terminal:
        from rich.syntax import Syntax  # slow to load: it brings the lexers

        coloured = Syntax("", "sql", theme="ansi_dark", background_color="default").highlight(text)
        console.print(coloured, soft_wrap=True, end="")
    else:
        click.echo(text, nl=False)  # the very text, whatever the width
    return _exits.FINE
