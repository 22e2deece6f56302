"""`limpet ui`: the pages of the inspector in a browser."""

import webbrowser

import click

import limpet
from limpet.cli import _exits
from limpet.cli._shared import echo_json, existing_options, json_option, url_argument, url_here
from limpet.cli.serve import inspector_pages, log_to_stderr
from limpet.opening import environment, random_token

_HOST, _PORT = "127.0.0.1", 7421


@click.command()
@url_argument
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help=f"The port; 0 takes a free one. Default: {_PORT}, or a free one if it is taken.",
)
@click.option("--write", is_flag=True, help="Allow to fork and restore.")
@click.option("--no-open", is_flag=True, help="Open no browser.")
@click.option("--demo", is_flag=True, help="Show made-up sessions and an agent at work.")
@json_option
def ui(
    url: str | None, port: int | None, write: bool, no_open: bool, demo: bool, as_json: bool
) -> int:
    """Show a store in a browser.

    The pages are served on 127.0.0.1, to this machine alone, and load nothing from elsewhere. They
    only read, unless --write is given: then the address that is printed contains a token, and
    other programs on this machine cannot use the pages without it.

    \b
    --json: {"url": where the pages are}, once requests are accepted

    \b
    Examples:
      limpet ui
      limpet ui sqlite:///agents.db
      limpet ui s3://bucket/agents --write
      limpet ui --demo
    """
    pages = inspector_pages()
    from limpet.server.access import Access, Tokens
    from limpet.server.serving import is_free, run

    if demo:
        if url not in (None, environment().get("LIMPET_URL")):
            raise click.UsageError("give a URL or --demo, not both")
        url = _demo_url()

    token = random_token()
    access = Access(Tokens(None, token)) if write else Access(write=False)
    place = url_here() if url is None else url
    store = limpet.open_async(place, **existing_options(place, read_only=not write))

    def started(address: str) -> None:
        log_to_stderr(access=False)
        page = f"{address}/ui/login?token={token}" if write else f"{address}/ui"
        if as_json:
            echo_json({"url": page}, indent=None)
        else:
            click.echo(f"limpet: {store.driver.opened.url} is shown at {page} (Ctrl+C stops)")
        if not no_open:
            webbrowser.open(page)

    if port is None:
        port = _PORT if is_free(_HOST, _PORT) else 0
        if not port:
            click.echo(f"limpet: port {_PORT} is taken, so a free one is used", err=True)
    run(store, access, host=_HOST, port=port, started=started, pages=pages)
    return _exits.FINE


def _demo_url() -> str:
    """Return the URL of a store with the demo, which is removed when the command ends."""
    from limpet.inspector.demo import demo_store

    demo = click.get_current_context().with_resource(demo_store())
    for line in demo.left_out:
        click.echo(f"limpet: {line}", err=True)
    return demo.url
