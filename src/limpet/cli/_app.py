"""The group of verbs, and the handling of errors: one line on stderr, and an exit code."""

import io
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from keyword import iskeyword
from typing import Any

import click

import limpet
from limpet.cli import _exits
from limpet.core.limits import TOO_DEEP
from limpet.opening import environment
from limpet.views.format import visible, without_secrets

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Inspect": {
        "ls": "List the sessions, or the scopes of one SESSION.",
        "log": "Show the history of a SESSION, or of one SCOPE of it.",
        "show": "Show one snapshot, with its messages as a chat.",
        "diff": "Show what changed from snapshot A to snapshot B.",
        "grep": "Search the texts of all states, or of one SESSION.",
        "tail": "Show the last messages of a chat, and follow it with -f.",
        "notes": "Show the notes of a SESSION; write or delete one.",
        "stats": "Show counts and sizes, and what is largest.",
        "usage": "Show the tokens that models took, and what they cost.",
        "runs": "List supervised runs; show one, abort it, or take it over.",
    },
    "Change": {
        "fork": "Start a new scope from snapshot REF.",
        "restore": "Make an earlier state the current one again.",
        "rm": "Delete sessions, or one scope, or one snapshot.",
        "prune": "Delete old snapshots of a SESSION, or of one SCOPE of it.",
        "redact": "Replace content in all snapshots of a SESSION or SCOPE.",
    },
    "Maintain": {
        "policy": "Show the retention rules of a store; set or remove one.",
        "check": "Check everything in a store for errors.",
        "compact": "Free unused space of a store.",
        "rekey": "Encrypt everything with the current keys.",
    },
    "Transfer": {
        "backup": "Back a store up to one FILE, or some sessions of it.",
        "export": "Export a store, or one SESSION.",
        "import": "Import a backup, an export, or the data of other tools.",
        "copy": "Copy a store to another one, of any engine.",
    },
    "Share": {
        "ui": "Show a store in a browser.",
        "serve": "Serve a store over HTTP.",
    },
    "Set up": {
        "doctor": "Show what is installed, and whether the storage works.",
        "schema": "Print the SQL that creates an engine's tables.",
        "completion": "Print the script that completes `limpet` with Tab.",
        "demo": "Watch an agent being killed and resumed.",
    },
}
"""The verbs and their summaries: reading those from the modules would import all of them."""

VERBS = tuple(verb for verbs in GROUPS.values() for verb in verbs)
_MODULES = {
    verb: verb if title == "Inspect" else title.lower().replace(" ", "")
    for title, verbs in GROUPS.items()
    for verb in verbs
} | {"demo": "demo", "backup": "copies", "copy": "copies"}


class _Verbs(click.Group):
    """Imports the module of a verb only when it is used."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _discard_output()
            ctx.exit(_exits.CLOSED)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, verbs in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(list(verbs.items()), col_max=12)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in VERBS and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = get_close_matches(args[0], VERBS, n=1)
            hint = f"did you mean `{near[0]}`?" if near else "`limpet --help` lists the verbs"
            ctx.fail(f"there is no verb `{args[0]}`: {hint}")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        name = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        module = import_module(f"limpet.cli.{_MODULES[cmd_name]}")
        verb: click.Command = getattr(module, name)
        return verb


@click.group(
    cls=_Verbs,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(limpet.__version__, message="limpet %(version)s")
@click.option("--url", metavar="URL", help="The store, here or after the verb.")
@click.pass_context
def app(context: click.Context, url: str | None) -> None:
    """Keep the state of AI agents safe.

    A store holds sessions. A session has one or more scopes, such as one for each agent. A scope
    has a history of snapshots; the current one is its head. Name the store with --url or
    $LIMPET_URL; otherwise it is the only one in this folder. `limpet VERB --help` shows examples.

    Exit codes: 0 success, 1 not found or differences, 2 usage, 3 conflict, 4 unavailable,
    5 corrupt, 130 interrupted, 141 the output was closed.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(_exits.USAGE)
    verb = app.get_command(context, context.invoked_subcommand)
    if url is not None and verb is not None and all(each.name != "url" for each in verb.params):
        context.fail(f"{context.invoked_subcommand} takes no --url")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code. Errors are one line on stderr, without secrets."""
    if sys.stdout is None:  # the caller has closed it
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character shows a question mark, not a traceback.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        code = app.main(arguments, prog_name="limpet", standalone_mode=False)
        sys.stdout.flush()
    except click.Abort:
        return _exits.INTERRUPTED
    except click.ClickException as error:
        if isinstance(error, click.UsageError) and error.ctx is not None:
            click.echo(error.ctx.get_usage(), err=True)
        _echo_error(error.format_message())
        return error.exit_code
    except limpet.LimpetError as error:
        _echo_error(str(error))
        for address in getattr(error, "addresses", ()):  # what may be typed instead
            click.echo(f"  {address}", err=True)
        return _exits.code_of(error)
    except RecursionError:
        _echo_error(TOO_DEEP)
        return _exits.CORRUPT
    except OSError as error:
        _discard_output()
        _echo_error(f"cannot write the output: {error.strerror or type(error).__name__}")
        return _exits.UNAVAILABLE
    except Exception as error:
        if environment().get("LIMPET_DEBUG"):
            raise
        fact = "this is a bug in limpet: please report it with the traceback of LIMPET_DEBUG=1"
        _echo_error(f"{fact}. error=`{type(error).__name__}: {error}`")
        return _exits.DEFECT
    return code if isinstance(code, int) else _exits.FINE


def _discard_output() -> None:
    """Redirect stdout to /dev/null: flushing it at exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _echo_error(message: str) -> None:
    line = " ".join(without_secrets(message).split())
    click.echo(f"limpet: {visible(line)}", err=True)
