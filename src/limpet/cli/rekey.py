"""`limpet rekey`: encrypt everything with the current keys, and verify it."""

import click
from rich.text import Text

from limpet.cli import _exits
from limpet.cli._shared import echo_json, existing_store, store_options
from limpet.cli._terminal import make_console
from limpet.views.format import count_text


@click.command()
@click.option("--plaintext", is_flag=True, help="Also encrypt what is not encrypted yet.")
@store_options
def rekey(plaintext: bool, url: str, as_json: bool) -> int:
    """Encrypt everything with the current keys.

    The keys are those of $LIMPET_KEYS_FILE or $LIMPET_KEYS, or of keys_file in the URL. Run it
    after a new key was added above the old one. With --plaintext a store that is not encrypted is;
    use it once, since somebody may have put in what is not encrypted later. The store can be used
    meanwhile by programs that have the new key; the exit code is 4 if one keeps writing with an
    older key. If it is interrupted, run it again. At the end everything is read and checked; the
    exit code is 5 if something cannot be decrypted, else 0.

    \b
    --json: {"encrypted": how many parts were encrypted, "errors": how many cannot be read}

    \b
    Examples:
      limpet rekey
      limpet rekey --plaintext
      limpet rekey --url "sqlite:///agents.db?keys_file=keys"
    """
    with existing_store(url, **{"allow_plaintext": True} if plaintext else {}) as store:
        count = store.rekey()
    with existing_store(url, read_only=True) as store:
        errors = sum(finding.severity == "error" for finding in store.check())
    if as_json:
        echo_json({"encrypted": count, "errors": errors})
    else:
        fact = count_text(errors, "error") if errors else "everything can be read"
        style = "bad" if errors else "good"
        make_console().print(
            Text.assemble(f"{count_text(count, 'part')} encrypted, ", (fact, style))
        )
    return _exits.CORRUPT if errors else _exits.FINE
