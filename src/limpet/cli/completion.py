"""`limpet completion`: the script that completes the command with Tab."""

import click
from click.shell_completion import get_completion_class

from limpet.cli import _exits
from limpet.cli._shared import echo_json, json_option

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_LIMPET_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@json_option
@click.pass_context
def completion(context: click.Context, shell: str, as_json: bool) -> int:
    """Print the script that completes `limpet` with Tab.

    It completes verbs, options and session ids. The ids come from the store of --url or
    $LIMPET_URL; ids that would need quoting are left out.

    To load it in every new shell, add to ~/.bashrc or ~/.zshrc (after compinit):

    \b
      eval "$(limpet completion bash)"
      eval "$(limpet completion zsh)"

    and for fish run once:

    \b
      limpet completion fish > ~/.config/fish/completions/limpet.fish

    \b
    --json: {"shell": text, "script": text}

    \b
    Examples:
      eval "$(limpet completion bash)"
    """
    kind = get_completion_class(shell)
    if kind is None:  # Click has one for each of _SHELLS
        raise click.UsageError(f"unknown shell. shell=`{shell}`")
    script = kind(context.find_root().command, {}, "limpet", _VARIABLE).source()
    if as_json:
        echo_json({"shell": shell, "script": script})
    else:
        click.echo(script)
    return _exits.FINE
