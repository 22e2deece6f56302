"""`limpet runs`: supervised runs: look at them, abort them, take over those of dead workers."""

from datetime import datetime
from itertools import chain
from typing import Any

import click
from click.core import ParameterSource
from rich.text import Text

import limpet
from limpet.cli import _adopt, _exits
from limpet.cli._shared import (
    age_text,
    echo_json,
    existing_store,
    json_option,
    make_console,
    output,
    time_json,
    url_option,
)
from limpet.cli._tables import Column, now, print_line, status_text, table
from limpet.cli.completion import complete_session
from limpet.runs import RunInfo, abort, get
from limpet.runs import list as list_runs
from limpet.runs.model import STATUSES
from limpet.views.names import visible
from limpet.views.sizes import count_text

_COLUMNS = (
    Column("run", cells_min=16),
    Column("status", cells_min=9),
    Column("task", cells_min=8, rank=4),
    Column("owner", cells_min=8, rank=5),
    Column("attempt", right=True, rank=3),
    Column("steps", right=True, rank=2),
    Column("age", right=True),
    Column("error", cells_min=12, rank=1),
)


@click.group(invoke_without_command=True)
@click.option("--status", type=click.Choice(STATUSES), help="Only those of this status.")
@click.option("--task", metavar="TASK", help="Only those of this task.")
@click.option("--prefix", metavar="TEXT", default="", help="Only runs whose id begins so.")
@url_option
@json_option
@click.pass_context
def runs(
    context: click.Context,
    status: str | None,
    task: str | None,
    prefix: str,
    url: str,
    as_json: bool,
) -> int:
    """List the supervised runs; abort one, or take it over.

    A run that is running, but whose worker gives no sign of life, is expired: a worker that starts
    it again goes on where it stopped, and so does `limpet runs adopt`.

    \b
    --json: a line for each run:
            {"run_id": text, "task": text or null, "status": text, "owner": text or null,
             "attempt": n, "steps": n, "error": {"type": text, "message": text} or null,
             "started_at": time, "updated_at": time, "id": of its snapshot}

    \b
    Examples:
      limpet runs --status expired
      limpet runs abort nightly-report
      limpet runs adopt nightly-report -- ./finish-report.sh
    """
    if context.invoked_subcommand is not None:
        return _exits.FINE
    with existing_store(url) as store:
        found = list_runs(store, status=status, task=task, prefix=prefix)
        if as_json:
            for each in found:
                echo_json(_shape(each), indent=None)
            return _exits.FINE
        first = next(found, None)
        if first is None:
            click.echo("there are no runs, or none that fits", err=True)
            return _exits.FINE
        moment = now()
        with output() as console:
            rows = (_row(each, moment) for each in chain([first], found))
            for line in table(_COLUMNS, rows, console.width):
                print_line(console, line)
    return _exits.FINE


@runs.command("abort")
@click.argument(
    "run_ids", metavar="RUN...", nargs=-1, required=True, shell_complete=complete_session
)
@url_option
@json_option
@click.pass_context
def runs_abort(context: click.Context, run_ids: tuple[str, ...], url: str, as_json: bool) -> int:
    """Abort runs. Their workers find out at their next step, if not before.

    Runs must be named in full. One that is not running is left as it is. Aborted runs can be
    started again. Ends with 1 if there is no such run; those before it are aborted.

    \b
    --json: a line for each run, as `limpet runs` has it

    \b
    Examples:
      limpet runs abort nightly-report
    """
    url, as_json = _inherited(context, url, as_json)
    console = make_console()
    with existing_store(url) as store:
        for run_id in run_ids:
            told = abort(store, run_id)
            if as_json:
                echo_json(_shape(told), indent=None)
            else:
                line = Text.assemble((visible(run_id), "title"), "  ", status_text(told.status))
                console.print(line, soft_wrap=True)
    return _exits.FINE


@runs.command("adopt")
@click.argument("run_id", metavar="RUN", shell_complete=complete_session)
@click.argument("command", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--owner", metavar="NAME", help="Who goes on with it. Else this host and process.")
@click.option(
    "--wait",
    "wait_s",
    type=float,
    default=0.0,
    metavar="SECONDS",
    help="How long to wait for a worker that may be dead.",
)
@url_option
@json_option
@click.pass_context
def runs_adopt(
    context: click.Context,
    run_id: str,
    command: tuple[str, ...],
    owner: str | None,
    wait_s: float,
    url: str,
    as_json: bool,
) -> int:
    """Take over the run of a worker that died.

    With a COMMAND: holds the run while the command goes on with it. The command finds the state of
    the run as JSON in the file $LIMPET_RUN_STATE, and what it leaves there is saved as a step;
    $LIMPET_URL and $LIMPET_RUN_ID say where the run is. If it ends with 0 the run is completed,
    else failed, and this command ends with the same code. A command that starts the run by itself,
    as any worker does, needs no adoption: it takes over by itself.

    Without one: prints the state, and leaves the run as it was, for a worker to start. The old
    worker, should it only have been asleep, cannot write to it any more.

    Ends with 3 if the worker lives, or the run is not running any more; with 1 if there is none.

    \b
    --json: the run, as `limpet runs` has it, and its "state";
            what the COMMAND prints then goes to the standard error

    \b
    Examples:
      limpet runs adopt nightly-report --json
      limpet runs adopt nightly-report -- python finish_report.py
    """
    url, as_json = _inherited(context, url, as_json)
    who: dict[str, Any] = {"owner": owner, "wait_s": wait_s}
    with existing_store(url) as store:
        if not command:
            found, state = _adopt.look(store, run_id, **who)
            _show(found, state, as_json=as_json)
            return _exits.FINE
        code = _adopt.work(store, run_id, command, url=url, quiet=as_json, **who)
        ended = get(store, run_id)
        if ended is not None:
            _show_end(store, ended, as_json=as_json)
        return code


def _inherited(context: click.Context, url: str, as_json: bool) -> tuple[str, bool]:
    """Return the options of a subcommand; those of the group count where it has none itself."""
    above = context.parent
    if above is None:
        return url, as_json
    given = ParameterSource.COMMANDLINE
    if context.get_parameter_source("url") != given == above.get_parameter_source("url"):
        url = above.params["url"]
    return url, as_json or above.params["as_json"]


def _shape(run: RunInfo) -> dict[str, Any]:
    error = run.error
    return {
        "run_id": run.run_id,
        "task": run.task,
        "status": run.status,
        "owner": run.owner,
        "attempt": run.attempt,
        "steps": run.steps,
        "error": None if error is None else {"type": error.type, "message": error.message},
        "started_at": time_json(run.started_at),
        "updated_at": time_json(run.updated_at),
        "id": run.info.id,
    }


def _row(run: RunInfo, moment: datetime) -> list[Text]:
    error = "" if run.error is None else f"{run.error.type}: {run.error.message}"
    return [
        Text(visible(run.run_id), "title"),
        status_text(run.status),
        Text(visible(run.task or "")),
        Text(visible(run.owner or ""), "quiet"),
        Text(f"{run.attempt:,}"),
        Text(f"{run.steps:,}"),
        Text(age_text(run.updated_at, moment)),
        Text(visible(error), "bad"),
    ]


def _show(run: RunInfo, state: Any, *, as_json: bool) -> None:
    """Print the state, which a program may read; what is told about it goes beside it."""
    if as_json:
        echo_json({**_shape(run), "state": state})
        return
    echo_json(state)
    hint = "it was left as it is: a worker that starts it goes on from this state"
    _tell(run, hint)


def _show_end(store: limpet.Store, run: RunInfo, *, as_json: bool) -> None:
    if not as_json:
        _tell(run, count_text(run.steps, "step"))
        return
    head = store.scope(*run.info.scope).load(run.info.id)
    echo_json({**_shape(run), "state": None if head is None else head.state})


def _tell(run: RunInfo, hint: str) -> None:
    line = Text.assemble((visible(run.run_id), "title"), "  ", status_text(run.status))
    line.append(f"  attempt {run.attempt:,}; {hint}", "quiet")
    make_console(stderr=True).print(line, soft_wrap=True)
