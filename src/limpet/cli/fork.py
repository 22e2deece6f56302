"""`limpet fork`: start a new scope from a snapshot."""

from typing import Any

import click
from rich.text import Text

from limpet.cli import _exits
from limpet.cli._shared import (
    address_options,
    complete_session,
    echo_json,
    existing_store,
    parse_json,
    store_options,
)
from limpet.cli._terminal import make_console
from limpet.core.wire import info_json
from limpet.views.format import address_text, short_id, visible
from limpet.views.refs import find_snapshot


@click.command()
@click.argument("ref", metavar="REF", shell_complete=complete_session)
@click.option("--to", metavar="SESSION", help="The session of the new scope. Default: the same.")
@click.option("--as", "scope_id", metavar="SCOPE", help="The id of the new scope.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=JSON",
    help="Replace a top-level key of the state. May be repeated.",
)
@address_options
@store_options
def fork(
    ref: str,
    to: str | None,
    scope_id: str | None,
    changes: tuple[str, ...],
    url: str,
    as_json: bool,
    **address: str | None,
) -> int:
    """Start a new scope from snapshot REF.

    Prints the new scope. The original scope does not change. Without --as, the new scope gets
    a generated id (`main~k3x9…`), or in another session the same id. The exit code is 3 if the
    scope exists already.

    \b
    --json: {"scope": {"session_id": text, "scope_id": text, "kind": text},
             "head": the first snapshot of the new scope}

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
        first = None if head is None else info_json(head)
        echo_json({"scope": key._asdict(), "head": first})
        return _exits.FINE
    console = make_console()
    line = Text(visible(address_text(key)), "fork")
    if console.is_terminal:  # a script gets only the name
        line.append(f"  forked from {visible(short_id(source.id))}", "quiet")
    console.print(line, soft_wrap=True)
    return _exits.FINE


def _change(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    hint = "quote a text as JSON: --set 'name=\"value\"'"
    if not equals:
        raise click.BadParameter(f"expected KEY=JSON; {hint}", param_hint="--set")
    try:
        return key, parse_json(value.encode())
    except ValueError:  # the value may be a secret, so it is not shown
        message = f"the value of `{key}` is not JSON; {hint}"
        raise click.BadParameter(message, param_hint="--set") from None
