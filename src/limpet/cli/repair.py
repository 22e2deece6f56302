"""`limpet repair`: mend what `limpet check` finds."""

import click

from limpet.cli._shared import json_option, url_option
from limpet.cli.check import examine


@click.command()
@url_option
@json_option
def repair(url: str, as_json: bool) -> int:
    """Read everything stored, and mend what is wrong with it.

    Only what can be mended without losing anything that can still be read. The same as
    `limpet check --repair`: ends with 0 if nothing is wrong any more, with 5 if an error is left,
    and with 1 if a warning is.

    \b
    --json: a line for each finding, as `limpet check` has it; `repaired` tells what was mended

    \b
    Examples:
      limpet repair
    """
    return examine(url, repair=True, as_json=as_json)
