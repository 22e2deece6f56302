"""`limpet compact`: give unused space back."""

import click
from rich.text import Text

from limpet.cli import _exits
from limpet.cli._shared import echo_json, existing_store, json_option, make_console, url_option
from limpet.views.sizes import size_text


@click.command()
@url_option
@json_option
def compact(url: str, as_json: bool) -> int:
    """Give unused space back to the operating system.

    Deletes nothing. Others may go on working with the store meanwhile.

    \b
    --json: {"bytes": what was given back}

    \b
    Examples:
      limpet compact
    """
    with existing_store(url) as store:
        given_back = store.compact()
    if as_json:
        echo_json({"bytes": given_back})
    else:
        make_console().print(Text.assemble((size_text(given_back), "size"), " given back"))
    return _exits.FINE
