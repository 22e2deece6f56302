"""`limpet completion`: what the Tab key knows of the command, and of the sessions in a store."""

import re
from itertools import islice

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem, get_completion_class

from limpet.cli import _exits
from limpet.cli._shared import echo_json, existing_store, json_option
from limpet.errors import LimpetError

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_LIMPET_COMPLETE"
_NAMES_MAX = 50
# What a name is made of goes into a command line as it is: none may be run by a shell, be taken
# for an option, or end the line in which a completion is handed over.
_HARMLESS = re.compile(r"(?!-)[\w@%+=:./-]+")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@json_option
@click.pass_context
def completion(context: click.Context, shell: str, as_json: bool) -> int:
    """Print the script that completes `limpet` with Tab.

    It completes verbs and options, and where a session is wanted the sessions of the store that
    --url or $LIMPET_URL names, as far as their names are safe to stand in a command line.

    To have it in every new shell, add to ~/.bashrc or ~/.zshrc (after compinit):

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
    if kind is None:  # there is one for each of the shells that can be chosen
        raise click.UsageError(f"this shell is not known. shell=`{shell}`")
    root = context.find_root()
    script = kind(root.command, {}, "limpet", _VARIABLE).source()
    if as_json:
        echo_json({"shell": shell, "script": script})
    else:
        click.echo(script)
    return _exits.FINE


def complete_session(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the sessions that begin with what was typed, for the `shell_complete` of an argument.

    At most 50. If the store cannot be read there is just nothing to offer: a person is typing.
    """
    try:
        with existing_store(_url(context)) as store:
            names = islice(store.sessions(prefix=incomplete, limit=_NAMES_MAX), _NAMES_MAX)
            return [CompletionItem(name) for name in names if _HARMLESS.fullmatch(name)]
    except (LimpetError, OSError):
        return []


def _url(context: click.Context) -> str:
    """Return the store that is meant, by this verb or else by the group that it belongs to."""
    lineage = [context]
    while lineage[-1].parent is not None:
        lineage.append(lineage[-1].parent)
    named = [each for each in lineage if each.params.get("url")]
    typed = [
        each for each in named if each.get_parameter_source("url") is ParameterSource.COMMANDLINE
    ]
    return str([*typed, *named][0].params["url"])
