"""`limpet runs`: list supervised runs, abort them, take over those of dead workers."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any

import click
from rich.text import Text

import limpet
import limpet.runs
from limpet.api.leases import held
from limpet.cli import _exits
from limpet.cli._shared import (
    complete_session,
    echo_json,
    existing_store,
    parse_json,
    store_options,
    url_here,
    with_store,
)
from limpet.cli._terminal import (
    Cells,
    Column,
    output,
    print_line,
    print_table,
    say,
    status_text,
)
from limpet.core.wire import time_json
from limpet.opening import environment
from limpet.runs import RunInfo, abort, get
from limpet.runs import list as list_runs
from limpet.runs.handles import prepare_claim
from limpet.runs.model import ABORTED, KIND, RUNNING, SCOPE_ID, STATUSES, read_record
from limpet.views.format import count_text, visible
from limpet.views.runs import read_run

_POLL_S = 0.2  # how often it is checked whether the run was aborted
_STOP_S = 10.0  # how long a command may take to end after SIGTERM
_CANNOT_RUN = 126  # exit codes as a shell gives them
_BY_SIGNAL = 128  # plus the signal
_OWNER = "limpet runs adopt"
_TTL_S = 30.0
_RUNS: Cells = {
    Column("run"): lambda run: Text(visible(run.run_id), "title"),
    Column("status", cells_min=9): lambda run: status_text(run.status),
    Column("task", cells_min=8, rank=4): lambda run: Text(visible(run.task or "")),
    Column("owner", cells_min=8, rank=5): lambda run: Text(visible(run.owner or ""), "quiet"),
    Column("attempt", right=True, rank=3): lambda run: Text(f"{run.attempt:,}"),
    Column("steps", right=True, rank=2): lambda run: Text(f"{run.steps:,}"),
    Column("age", right=True): lambda run: run.updated_at,
    Column("error", below=True): lambda run: Text(_error_text(run), "bad"),
}


@click.group(invoke_without_command=True)
@click.option("--status", type=click.Choice(STATUSES), help="Only runs with this status.")
@click.option("--task", metavar="TASK", help="Only runs of this task.")
@click.option("--prefix", metavar="TEXT", default="", help="Only runs with this prefix.")
@store_options
@click.pass_context
def runs(
    context: click.Context,
    status: str | None,
    task: str | None,
    prefix: str,
    url: str | None,
    as_json: bool,
) -> int:
    """List supervised runs; show one, abort it, or take it over.

    A run is expired if it is running but its worker's lease has ended, or its process is dead, as
    far as this machine can tell. A worker that starts it again continues where it stopped, and so
    does `limpet runs adopt`.

    \b
    --json: a line for each run:
            {"run_id": text, "task": text or null, "status": text,
             "owner": text or null, "attempt": n, "steps": n,
             "error": {"type": text, "message": text} or null,
             "started_at": time, "updated_at": time, "id": of its snapshot}

    \b
    Examples:
      limpet runs --status expired
      limpet runs show nightly-report
      limpet runs abort nightly-report
      limpet runs adopt nightly-report -- ./finish-report.sh
    """
    if context.invoked_subcommand is not None:
        return _exits.FINE
    with existing_store(url or url_here(), read_only=True) as store:
        found = list_runs(store, status=status, task=task, prefix=prefix)
        if as_json:
            for each in found:
                echo_json(_run_json(each), indent=None)
            return _exits.FINE
        first = next(found, None)
        if first is None:
            click.echo("no run matches", err=True)
            return _exits.FINE
        with output(wide=True) as console:
            print_table(console, _RUNS, chain([first], found))
    return _exits.FINE


@runs.command("show")
@click.argument("run_id", metavar="RUN", shell_complete=complete_session)
@with_store()
def runs_show(store: limpet.Store, run_id: str, as_json: bool) -> None:
    """Show one run: why it failed, and its attempts. `limpet log RUN` shows its steps.

    A traceback is shown if the worker asked for it. The exit code is 1 if there is no such run.

    \b
    --json: the run, as in `limpet runs`, and "traceback": text or null, "lease": text,
            "attempts": [{the columns as texts}, ...]

    \b
    Examples:
      limpet runs show nightly-report
    """
    panel = read_run(store, run_id)
    if panel is None:
        raise limpet.NotFound(f"there is no such run. run_id=`{run_id}`")
    if as_json or _is_json_above():
        error = panel.run.error
        echo_json(
            {
                **_run_json(panel.run),
                "traceback": error and error.traceback,
                "lease": panel.facts["lease"],
                "attempts": panel.attempts,
            }
        )
        return
    title = Text.assemble((visible(run_id), "title"), "  ", status_text(panel.run.status))
    with output() as console:
        for line in (title, *(Text(each, "bad") for each in panel.error)):
            print_line(console, line)
        for name, text in panel.facts.items():
            print_line(console, Text.assemble((f"{name:10}", "quiet"), text))
        if panel.attempts:
            print_line(console, Text("\nAttempts", "title"))
            cells = {Column(name): _cell(name) for name in panel.attempts[0]}
            print_table(console, cells, panel.attempts)


def _cell(name: str) -> Callable[[dict[str, str]], Text]:
    return lambda row: Text(row[name])


@runs.command("abort")
@click.argument(
    "run_ids", metavar="RUN...", nargs=-1, required=True, shell_complete=complete_session
)
@with_store(write=True)
def runs_abort(store: limpet.Store, run_ids: tuple[str, ...], as_json: bool) -> None:
    """Abort runs. Their workers stop at the next step at the latest.

    Run ids must be written in full. A run that is not running is not changed. An aborted run can be
    started again. The exit code is 1 if a run does not exist; the runs before it are aborted.

    \b
    --json: a line for each run, as in `limpet runs`

    \b
    Examples:
      limpet runs abort nightly-report
    """
    as_json = as_json or _is_json_above()
    for run_id in run_ids:
        run = abort(store, run_id)
        if as_json:
            echo_json(_run_json(run), indent=None)
        else:
            hint = "" if run.status == ABORTED else "  it was not running, and was not changed"
            say((visible(run_id), "title"), "  ", status_text(run.status), (hint, "quiet"))


@runs.command("adopt")
@click.argument("run_id", metavar="RUN", shell_complete=complete_session)
@click.argument("command", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--owner", metavar="NAME", help="The new owner. Default: this host and process.")
@click.option(
    "--wait",
    "wait_s",
    type=float,
    default=0.0,
    metavar="SECONDS",
    help="How long to wait for a worker that is alive.",
)
@store_options
def runs_adopt(
    run_id: str,
    command: tuple[str, ...],
    owner: str | None,
    wait_s: float,
    url: str,
    as_json: bool,
) -> int:
    """Take over the run of a worker that died.

    With a COMMAND: holds the run while the command runs. The command reads the state of the run as
    JSON from the file $LIMPET_RUN_STATE; if it changes the file, that is saved as a step.
    $LIMPET_URL and $LIMPET_RUN_ID name the run. If the command ends with 0 the run is completed,
    else it is failed, and the exit code is that of the command. A command that starts the run
    itself, as a worker does, needs no adoption.

    Without a COMMAND: prints the state, and leaves the run for a worker to start. The old worker
    cannot write to it any more.

    The exit code is 3 if the worker is alive or the run is not running, and 1 if there is no such
    run.

    \b
    --json: the run, as in `limpet runs`, and its "state";
            the output of COMMAND then goes to stderr

    \b
    Examples:
      limpet runs adopt nightly-report --json
      limpet runs adopt nightly-report -- python finish_report.py
    """
    as_json = as_json or _is_json_above()
    who: dict[str, Any] = {"owner": owner, "wait_s": wait_s}
    with existing_store(url) as store:
        if not command:
            found, state = _claim_briefly(store, run_id, **who)
            echo_json({**_run_json(found), "state": state} if as_json else state)
            if not as_json:
                _report(found, "not changed: a worker that starts it continues from this state")
            return _exits.FINE
        code = _work(store, run_id, command, url=url, quiet=as_json, **who)
        ended = get(store, run_id)
        if ended is not None and as_json:
            head = store.scope(*ended.info.scope).load(ended.info.id)
            echo_json({**_run_json(ended), "state": None if head is None else head.state})
        elif ended is not None:
            _report(ended, count_text(ended.steps, "step"))
        return code


def _is_json_above() -> bool:
    """Return whether `--json` is given before the verb: `limpet runs --json abort`."""
    context = click.get_current_context().parent
    return context is not None and bool(context.params["as_json"])


def _run_json(run: RunInfo) -> dict[str, Any]:
    error = run.error
    names = ("run_id", "task", "status", "owner", "attempt", "steps")
    return {
        **{name: getattr(run, name) for name in names},
        "error": error and {"type": error.type, "message": error.message},
        "started_at": time_json(run.started_at),
        "updated_at": time_json(run.updated_at),
        "id": run.info.id,
    }


def _error_text(run: RunInfo) -> str:
    return "" if run.error is None else visible(f"  {run.error.type}: {run.error.message}")


def _report(run: RunInfo, hint: str) -> None:
    name, more = (visible(run.run_id), "title"), (f"  attempt {run.attempt:,}; {hint}", "quiet")
    say(name, "  ", status_text(run.status), more, stderr=True)


class CommandFailed(Exception):
    """The command did not end with 0. The run stores the name of this class as its error type."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def _claim_briefly(
    store: limpet.Store, run_id: str, *, owner: str | None, wait_s: float
) -> tuple[RunInfo, limpet.JSON]:
    """Claim a run for a moment, and return it with its state.

    The previous owner cannot write to it any more. Conflict if its worker is alive after `wait_s`,
    or the run is not running.
    """
    _check_running(store, run_id)
    scope = store.scope(run_id, SCOPE_ID, KIND)
    wanted, _ = prepare_claim(store.driver.tools, scope.key, owner or _OWNER, _TTL_S, wait_s)
    with held(scope, wanted, limpet.Lease) as lease:
        _check_running(store, run_id)
        head = lease.load()
    found = get(store, run_id)
    if head is None or found is None:
        raise limpet.Conflict(f"the run was deleted. run_id=`{run_id}`")
    # Before the first step the head is not a state that the worker saved.
    return found, head.state if read_record(head).has_state else None


def _check_running(store: limpet.Store, run_id: str) -> None:
    found = get(store, run_id)
    if found is None:
        raise limpet.NotFound(f"there is no such run. run_id=`{run_id}`")
    if found.info.status != RUNNING:
        where = f"run_id=`{run_id}` status=`{found.status}`"
        raise limpet.Conflict(f"only a running run can be adopted. {where}")


def _work(
    store: limpet.Store,
    run_id: str,
    command: Sequence[str],
    *,
    url: str,
    owner: str | None,
    wait_s: float,
    quiet: bool,
) -> int:
    """Hold a run while a command runs, and close it; return the command's exit code.

    With `quiet` its output goes to stderr. Conflict if the worker is alive after `wait_s`, the run
    is not running, or it was aborted or taken over meanwhile; then the command was stopped.
    """
    if shutil.which(command[0]) is None:
        # Before the run is claimed: a typing error must not fail the run.
        raise click.UsageError(f"there is no such command. command=`{command[0]}`")
    try:
        with (
            limpet.runs.adopt(store, run_id, owner=owner, wait_s=wait_s) as run,
            _state_file(run.state) as path,
        ):
            names = {"LIMPET_URL": url, "LIMPET_RUN_ID": run_id, "LIMPET_RUN_STATE": path}
            before = _read(path)
            code = _run_command(command, environment(**names), run, quiet=quiet)
            if (after := _read(path)) != before:
                run.step(_parsed_state(after, code), keep=True)
            if code:
                raise CommandFailed(f"the command ended with {code}", code)
    except CommandFailed as failure:
        return failure.code
    return 0


@contextmanager
def _state_file(state: limpet.JSON) -> Iterator[str]:
    """Write a state to a temporary file that only this user can read."""
    with tempfile.TemporaryDirectory(prefix="limpet-run-") as folder:
        path = os.path.join(folder, "state.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write(json.dumps(state, ensure_ascii=False, indent=2) + "\n")
        yield path


def _read(path: str) -> bytes:
    with suppress(OSError), open(path, "rb") as file:
        return file.read()
    return b""  # not JSON either


def _parsed_state(text: bytes, code: int) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        message = "the command left a state that is not JSON"
        raise CommandFailed(message, code or 1) from None


def _run_command(
    command: Sequence[str], env: dict[str, str], run: limpet.runs.Run, *, quiet: bool
) -> int:
    """Run a command to its end; stop it if the run is lost meanwhile."""
    out = sys.stderr if quiet else None
    process: subprocess.Popen[bytes] | None = None
    try:
        try:
            with _sigterm_deferred():
                process = subprocess.Popen(command, env=env, stdout=out)  # noqa: S603  # as asked
        except OSError as error:
            reason = error.strerror or "it cannot be run"
            raise CommandFailed(f"the command was not started: {reason}", _CANNOT_RUN) from None
        while True:
            try:
                code = process.wait(timeout=_POLL_S)
            except subprocess.TimeoutExpired:
                run.check()
            else:
                return code if code >= 0 else _BY_SIGNAL - code
    except BaseException as error:
        # Ctrl-C reaches every process of the terminal: the command got it too.
        if process is not None:
            _stop(process, signalled=isinstance(error, KeyboardInterrupt))
        raise


@contextmanager
def _sigterm_deferred() -> Iterator[None]:
    """Put off a SIGTERM until the command is known: it would go on without us."""
    late: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: late.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
    if late:
        signal.raise_signal(signal.SIGTERM)


def _stop(process: "subprocess.Popen[bytes]", *, signalled: bool) -> None:
    for stop in [None, process.terminate] if signalled else [process.terminate, process.kill]:
        if stop is not None:
            stop()
        try:
            process.wait(timeout=_STOP_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            continue
        return
    process.kill()
    process.wait()
