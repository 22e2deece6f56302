"""`limpet ui` and `limpet serve`: a store in a browser, and as an HTTP API."""

import logging
import webbrowser
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

import limpet
from limpet.cli import _exits
from limpet.cli._shared import (
    check_exists,
    duration,
    echo_json,
    existing_options,
    json_option,
    url_argument,
    url_here,
    without_setup,
)
from limpet.opening import environment, random_token
from limpet.views.format import visible

if TYPE_CHECKING:
    from limpet.server.app import Pages

_OTHER_MACHINES = (
    "other machines need a token: write one of 16 characters or more into a file, and give it with"
    " --token-file (or in $LIMPET_TOKENS)"
)
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@url_argument
@click.option("--create", is_flag=True, help="Create the store if there is none.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=7420,
    show_default=True,
    help="The port; 0 takes a free one.",
)
@click.option(
    "--token-file",
    type=_FILE,
    help="Tokens, one a line: TOKEN [read|write] [PREFIX]. It is read again when it changes.",
)
@click.option("--tls-cert", type=_FILE, help="A certificate with its chain, in PEM: serve HTTPS.")
@click.option("--tls-key", type=_FILE, help="The key of the certificate, in PEM.")
@click.option(
    "--allow-host",
    multiple=True,
    metavar="NAME",
    help="A name of this server, as a proxy sends it.",
)
@click.option(
    "--allow-origin", multiple=True, metavar="URL", help="A web site whose pages may use the API."
)
@click.option("--ui", is_flag=True, help="Show the pages of the inspector too, at /ui.")
@click.option(
    "--policy-every",
    type=duration,
    metavar="TIME",
    help="Prune by `limpet policy` now and every 90s 15m 12h 30d 8w.",
)
@click.option("--no-access-log", is_flag=True, help="Log no line for each request.")
@json_option
def serve(
    url: str | None,
    create: bool,
    host: str,
    port: int,
    token_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    allow_host: tuple[str, ...],
    allow_origin: tuple[str, ...],
    ui: bool,
    policy_every: timedelta | None,
    no_access_log: bool,
    as_json: bool,
) -> int:
    """Serve a store over HTTP.

    Programs open it with limpet.open("http://127.0.0.1:7420"), from any machine that may connect;
    /openapi.json describes the API. On 127.0.0.1 no token is needed. Elsewhere give tokens, in a
    file or in $LIMPET_TOKENS, and use TLS, here or in a proxy.

    \b
    --json: {"url": where it is served}, once requests are accepted

    \b
    Examples:
      limpet serve sqlite:///new.db --create
      limpet serve sqlite:///agents.db --port 8000 --ui --policy-every 1h
      limpet serve --host 0.0.0.0 --token-file tokens --tls-cert cert.pem --tls-key key.pem
    """
    try:
        from limpet.server.access import Access, Tokens, is_loopback
        from limpet.server.serving import Tls, run
    except ImportError:
        raise limpet.Unsupported("serve needs an extra: pip install 'limpet[server]'") from None
    pages = inspector_pages() if ui else None
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("give both --tls-cert and --tls-key")
    given = environment().get("LIMPET_TOKENS", "")
    if token_file is None and not given and not is_loopback(host):
        raise click.UsageError(_OTHER_MACHINES)
    tokens = Tokens(token_file, given) if token_file is not None or given else None
    access = Access(tokens, hosts=allow_host, origins=allow_origin)
    place = url_here() if url is None else url
    if not create:
        check_exists(place, "name another, or create it with --create")
    store = limpet.open_async(place, **({} if create else without_setup(place)))

    def started(address: str) -> None:
        log_to_stderr(access=not no_access_log)
        if as_json:
            echo_json({"url": address}, indent=None)
        else:
            pages_at = f", its pages on {address}/ui" if ui else ""
            click.echo(f"limpet: {store.driver.opened.url} is served on {address}{pages_at}")

    tls = None if tls_cert is None or tls_key is None else Tls(tls_cert, tls_key)
    run(store, access, policy_every, host=host, port=port, started=started, tls=tls, pages=pages)
    return _exits.FINE


def inspector_pages() -> "Pages":
    """Return the pages of the inspector, or raise Unsupported."""
    try:
        from limpet.inspector.pages import PAGES
        from limpet.server import serving  # noqa: F401  (what serves them)
    except ImportError:
        hint = "pip install 'limpet[inspector]'"
        raise limpet.Unsupported(f"the inspector needs an extra: {hint}") from None
    return PAGES


class _Lines(logging.Formatter):
    """A line with its time, which is formatted once a second: that takes longest."""

    _second, _text = 0, ""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return visible(super().formatMessage(record))  # it may hold ids; a traceback is added later

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        if int(record.created) != self._second:
            self._second = int(record.created)
            self._text = super().formatTime(record, "%Y-%m-%dT%H:%M:%S%z")
        return self._text


def log_to_stderr(*, access: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines("%(asctime)s %(levelname)s %(message)s"))
    for name in ("limpet", "uvicorn.error"):
        logging.getLogger(name).addHandler(handler)
    logging.getLogger("limpet").setLevel(logging.INFO)
    if not access:
        logging.getLogger("limpet.access").setLevel(logging.WARNING)


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
