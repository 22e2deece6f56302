"""`limpet compact`: free unused space."""

import click
from rich.text import Text

from limpet.cli import _exits
from limpet.cli._shared import echo_json, existing_store, store_options
from limpet.cli._terminal import make_console
from limpet.views.format import size_text


@click.command()
@store_options
def compact(url: str, as_json: bool) -> int:
    """Free unused space of a store.

    No snapshot is deleted. The store can be used meanwhile.

    \b
    --json: {"bytes": how many were freed}

    \b
    Examples:
      limpet compact
    """
    with existing_store(url) as store:
        freed = store.compact()
    if as_json:
        echo_json({"bytes": freed})
    else:
        make_console().print(Text.assemble((size_text(freed), "size"), " freed"))
    return _exits.FINE
