"""The group of verbs, and what becomes of errors: one line, and an exit code."""

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
from limpet.opening import environment
from limpet.views.sizes import visible, without_secrets

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Look": ("ls", "log", "show", "diff", "grep", "tail", "stats", "runs"),
    "Change": ("fork", "restore", "rm", "prune"),
    "Keep in order": ("check", "repair", "compact"),
    "Carry over": ("export", "import", "copy"),
    "Set up": ("doctor", "schema", "completion", "demo"),
}
_FILES = {"repair": "check"}  # a verb whose file does not have its name
VERBS = tuple(verb for verbs in GROUPS.values() for verb in verbs)


class _Verbs(click.Group):
    """Loads the file of a verb when it is asked for, so that a new verb slows down no other."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _let_go_of_output()
            ctx.exit(_exits.CLOSED)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, verbs in GROUPS.items():
            commands = [(verb, self.get_command(ctx, verb)) for verb in verbs]
            rows = [(name, each.get_short_help_str(70)) for name, each in commands if each]
            with formatter.section(title):
                formatter.write_dl(rows, col_max=12)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        name = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        file = _FILES.get(cmd_name, name)
        verb: click.Command = getattr(import_module(f"limpet.cli.{file}"), name)
        return verb


@click.group(
    cls=_Verbs,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(limpet.__version__, message="limpet %(version)s")
@click.pass_context
def app(context: click.Context) -> None:
    """Keeps the state of AI agents safe.

    Exit codes: 0 fine, 1 not found or differences, 2 usage, 3 conflict, 4 unavailable, 5 corrupt,
    130 interrupted, 141 nobody reads the output any more.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        context.exit(_exits.USAGE)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code. What fails is told in one line, without secrets."""
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
        _tell(error.format_message())
        return error.exit_code
    except limpet.LimpetError as error:
        _tell(str(error))
        return _exits.code_of(error)
    except OSError as error:
        _let_go_of_output()
        _tell(f"cannot write the output: {error.strerror or type(error).__name__}")
        return _exits.UNAVAILABLE
    except Exception as error:
        if environment().get("LIMPET_DEBUG"):
            raise
        told = f"{type(error).__name__}: {error}"
        _tell(f"this is a defect of limpet; LIMPET_DEBUG=1 tells more. error=`{told}`")
        return _exits.DEFECT
    return code if isinstance(code, int) else _exits.FINE


def _let_go_of_output() -> None:
    """Let what is left of the output go nowhere: it would fail again at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tell(message: str) -> None:
    line = " ".join(without_secrets(message).split())
    click.echo(f"limpet: {visible(line)}", err=True)
