"""`limpet fork`: begin a new line of state at a snapshot."""

import json
from typing import Any

import click
from rich.text import Text

from limpet.cli import _exits
from limpet.cli._shared import (
    address_options,
    echo_json,
    existing_store,
    json_option,
    make_console,
    snapshot_json,
    url_option,
)
from limpet.cli.completion import complete_session
from limpet.views.refs import find_snapshot
from limpet.views.sizes import short_id, visible


@click.command()
@click.argument("ref", metavar="REF", shell_complete=complete_session)
@click.option("--to", metavar="SESSION", help="The session of the new line; else the same one.")
@click.option("--as", "scope_id", metavar="SCOPE", help="The name of the new scope.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=JSON",
    help="Replace a top-level key of the state. May be repeated.",
)
@address_options
@url_option
@json_option
def fork(
    ref: str,
    to: str | None,
    scope_id: str | None,
    changes: tuple[str, ...],
    url: str,
    as_json: bool,
    **address: str | None,
) -> int:
    """Begin a new line of state at snapshot REF.

    Prints its address. The line that it leaves does not change. In the same session the new scope
    has a name of its own (`main~k3x9…`), in another session that of the old one, unless --as says
    another. Ends with 3 if there is something under that name already.

    \b
    --json: {"scope": {"session_id": text, "scope_id": text, "kind": text},
             "head": the first snapshot of the new line}

    \b
    Examples:
      limpet fork chat-42@~3
      limpet fork @ -s chat-42 --to chat-43 --set 'mood="bold"' --set 'step=0'
    """
    patch = dict(_change(text) for text in changes)
    with existing_store(url) as store:
        source = find_snapshot(store, ref, **address)
        made = store.scope(*source.scope).fork(
            source.id, to=to, scope_id=scope_id, patch=patch or None
        )
        key = made.key
        head = made.info() if as_json else None
    if as_json:
        first = None if head is None else snapshot_json(head)
        echo_json({"scope": key._asdict(), "head": first})
        return _exits.FINE
    console = make_console()
    line = Text(visible(f"{key.session_id}:{key.scope_id}"), "fork")
    if console.is_terminal:  # else it is the name alone, for a script to take
        line.append(f"  forked from {visible(short_id(source.id))}", "quiet")
    console.print(line, soft_wrap=True)
    return _exits.FINE


def _change(text: str) -> tuple[str, Any]:
    """Return the key and the value of KEY=JSON."""
    key, equals, value = text.partition("=")
    hint = "a text needs quotes of its own: --set 'name=\"value\"'"
    if not equals:
        raise click.BadParameter(f"it must be KEY=JSON; {hint}", param_hint="--set")
    try:
        return key, json.loads(value, parse_constant=_refuse)
    except (ValueError, RecursionError):  # the value may be a secret, so it is not told
        message = f"the value of `{key}` is no JSON; {hint}"
        raise click.BadParameter(message, param_hint="--set") from None


def _refuse(constant: str) -> None:
    raise ValueError(constant)
