"""`limpet redact`: replace content in all snapshots."""

import click
from rich.text import Text

import limpet
from limpet.cli import _exits
from limpet.cli._shared import (
    complete_session,
    confirm,
    echo_json,
    existing_store,
    store_options,
    yes_option,
)
from limpet.cli._terminal import make_console
from limpet.views.format import address_text, count_text, visible
from limpet.views.preview import scopes_to_prune


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.argument("scope", required=False)
@click.option("--path", metavar="POINTER", help="What is at this place, as `limpet diff` shows it.")
@click.option("--text", metavar="TEXT", help="Every text that contains this.")
@yes_option
@store_options
def redact(
    session: str,
    scope: str | None,
    path: str | None,
    text: str | None,
    yes: bool,
    url: str,
    as_json: bool,
) -> int:
    """Replace content in all snapshots of a SESSION or SCOPE.

    It becomes null, also in drafts, notes, and forks in the session; ids and names stay. An object
    with the --text in one of its keys is replaced as a whole. Asks first; without a terminal --yes
    is required. SESSION and SCOPE must be written in full. Run `limpet compact` afterwards: it
    removes the bytes from storage.

    \b
    --json: a line for each scope, with its forks:
            {"session_id": text, "scope_id": text, "kind": text,
             "snapshots": how many were changed, "notes": how many}

    \b
    Examples:
      limpet redact chat-42 --text alice@example.com
      limpet redact chat-42 planner --path /messages/3/content
    """
    if (path is None) == (text is None) or text == "":
        raise click.UsageError("give one of --path and --text")

    def has_text(_: str, value: limpet.JSON) -> bool:
        texts = [value] if isinstance(value, str) else value if isinstance(value, dict) else ()
        return any(str(text) in each for each in texts)

    with existing_store(url) as store:
        scopes = list(scopes_to_prune(store, session, scope, None, ""))
        count = count_text(len(scopes), "scope")
        confirm(f"Replace it in all snapshots of {count} for good?", yes=yes)
        console = make_console()
        for key in scopes:
            done = store.scope(*key).redact(has_text if path is None else path)
            if as_json:
                facts = {"snapshots": done.snapshots, "notes": done.notes}
                echo_json({**key._asdict(), **facts}, indent=None)
                continue
            changed = f"{count_text(done.snapshots, 'snapshot')}, {count_text(done.notes, 'note')}"
            changed = f"changed: {changed}"
            line = Text.assemble(f"{visible(address_text(key))}  ", (changed, "quiet"))
            console.print(line, soft_wrap=True)
    return _exits.FINE
