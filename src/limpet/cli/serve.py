"""`limpet serve`: the store as an HTTP API."""

import click

import limpet
from limpet.cli import _exits
from limpet.cli._shared import url_here


@click.command()
@click.argument("url", required=False, envvar="LIMPET_URL")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=7420, show_default=True, help="The port; 0 takes a free one.")
def serve(url: str | None, host: str, port: int) -> int:
    """Serve a store over HTTP.

    Programs open it with limpet.open("http://127.0.0.1:7420"), from any machine that may connect;
    /openapi.json describes the API.

    \b
    Examples:
      limpet serve
      limpet serve sqlite:///agents.db --port 8000
    """
    try:
        from limpet.server.serving import run
    except ImportError:
        raise limpet.Unsupported("serve needs an extra: pip install 'limpet[server]'") from None
    from limpet.server.access import Access

    store = limpet.open_async(url_here() if url is None else url)
    run(store, Access(), host=host, port=port, started=lambda address: _started(store, address))
    return _exits.FINE


def _started(store: limpet.AsyncStore, address: str) -> None:
    click.echo(f"limpet: {store!r} is served on {address}")
