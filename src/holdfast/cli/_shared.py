"""What the verbs share: options, opening the store they are asked about, and the terminal."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.theme import Theme

import holdfast
from holdfast.opening import DEFAULT_URL, file_of

F = TypeVar("F", bound=Callable[..., Any])

_COLUMNS_MAX = 100  # lines longer than this are hard to read
_THEME = Theme(
    {
        "title": "bold",
        "quiet": "dim",
        "good": "green",
        "bad": "bold red",
        "odd": "yellow",
        "accent": "cyan",
        "fork": "magenta",
        "size": "cyan",
    }
)


def url_option(command: F) -> F:
    """Add `--url`, which may also stand in `$HOLDFAST_URL`."""
    return click.option(
        "--url",
        metavar="URL",
        envvar="HOLDFAST_URL",
        show_envvar=True,
        default=DEFAULT_URL,
        help=f"The store: sqlite:///file.db, sqlite:////absolute/file.db. Else {DEFAULT_URL}",
    )(command)


def json_option(command: F) -> F:
    """Add `--json`; the shape stands in the help of the verb."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(
        command
    )


@contextmanager
def existing_store(url: str) -> Iterator[holdfast.Store]:
    """Open a store that is there: asking about a store must not create one."""
    path = file_of(url)
    if path is not None and not os.path.exists(path):
        raise holdfast.NotFound(
            f"there is no such file; name one with --url or $HOLDFAST_URL. path=`{path}`"
        )
    with holdfast.open(url) as store:
        yield store


def make_console() -> Console:
    """Return the terminal, or the pipe: then without colour. Text is never taken for markup."""
    console = Console(theme=_THEME, markup=False, highlight=False, emoji=False)
    console.width = min(console.width, _COLUMNS_MAX)
    return console


def echo_json(value: Any, *, indent: int | None = 2) -> None:
    """Print a value as JSON in ASCII, which every terminal and every pipe can carry."""
    click.echo(json.dumps(value, indent=indent))
