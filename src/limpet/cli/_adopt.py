"""Taking over the run of a dead worker: to look at it, or to let a command go on with it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import click

import limpet
from limpet import runs
from limpet.opening import environment
from limpet.runs.model import KIND, RUNNING, SCOPE_ID, read_record

_LOOK_S = 0.2  # how often it is looked whether the run was aborted
_STOP_S = 10.0  # how long a command may take to end when it is told to
_CANNOT_RUN = 126  # what a shell says of a command that it cannot run
_BY_SIGNAL = 128  # and of one that was ended by a signal, plus the signal
_OWNER = "limpet runs adopt"


class CommandFailed(Exception):
    """A command did not end well. The run keeps it as its error."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def look(
    store: limpet.Store, run_id: str, *, owner: str | None, wait_s: float
) -> tuple[runs.RunInfo, limpet.JSON]:
    """Hold a run for a moment, and return it with its state, which nobody has changed.

    Whoever held it before cannot write to it any more.

    Raises:
        NotFound: there is no such run.
        Conflict: its worker lives, also after `wait_s`; or the run is not running.
    """
    _adoptable(store, run_id)
    scope = store.scope(run_id, SCOPE_ID, KIND)
    with scope.claim(owner=owner or _OWNER, wait_s=wait_s) as lease:
        _adoptable(store, run_id)
        head = lease.load()
    found = runs.get(store, run_id)
    if head is None or found is None:
        raise limpet.Conflict(f"the run was deleted. run_id=`{run_id}`")
    # What a run shows before its first step is not a state that anybody saved.
    return found, None if read_record(head).steps == 0 else head.state


def _adoptable(store: limpet.Store, run_id: str) -> None:
    found = runs.get(store, run_id)
    if found is None:
        raise limpet.NotFound(f"there is no such run. run_id=`{run_id}`")
    if found.info.status != RUNNING:
        where = f"run_id=`{run_id}` status=`{found.status}`"
        raise limpet.Conflict(f"only a run that is running can be adopted. {where}")


def work(
    store: limpet.Store,
    run_id: str,
    command: Sequence[str],
    *,
    url: str,
    owner: str | None,
    wait_s: float,
    quiet: bool,
) -> int:
    """Hold a run while a command goes on with it, and close it; return the command's exit code.

    With `quiet` what it prints goes to the standard error.

    Raises:
        NotFound: there is no such run.
        Conflict: its worker lives, also after `wait_s`; or the run is not running; or somebody
            aborted or took it meanwhile, and then the command was stopped.
    """
    if shutil.which(command[0]) is None:
        # Found out before the run is taken: what is only mistyped must not let it fail.
        raise click.UsageError(f"there is no such command. command=`{command[0]}`")
    previous = signal.signal(signal.SIGTERM, _terminated)
    try:
        with (
            runs.adopt(store, run_id, owner=owner, wait_s=wait_s, on_success="keep") as run,
            _state_file(run.state) as path,
        ):
            names = {"LIMPET_URL": url, "LIMPET_RUN_ID": run_id, "LIMPET_RUN_STATE": path}
            before = _read(path)
            code = _watched(command, environment(**names), run, quiet=quiet)
            if (after := _read(path)) != before:
                run.step(_parsed(after, code), keep=True)
            if code:
                raise CommandFailed(f"the command ended with {code}", code)
    except CommandFailed as failure:
        return failure.code
    finally:
        signal.signal(signal.SIGTERM, previous)
    return 0


@contextmanager
def _state_file(state: limpet.JSON) -> Iterator[str]:
    """Write a state into a file that only this user can read, and remove it in the end."""
    with tempfile.TemporaryDirectory(prefix="limpet-run-") as folder:
        path = os.path.join(folder, "state.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write(json.dumps(state, ensure_ascii=False, indent=2) + "\n")
        yield path


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""  # it is no JSON either


def _parsed(text: bytes, code: int) -> Any:
    """Return the state that a command left."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        message = "the command left a state that is no JSON"
        raise CommandFailed(message, code or 1) from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _watched(command: Sequence[str], env: dict[str, str], run: runs.Run, *, quiet: bool) -> int:
    """Run a command to its end, or stop it when it has no right to the run any more."""
    try:
        out = sys.stderr if quiet else None
        process = subprocess.Popen(command, env=env, stdout=out)  # noqa: S603  # as the user asked
    except OSError as error:
        reason = error.strerror or "it cannot be run"
        raise CommandFailed(f"the command was not started: {reason}", _CANNOT_RUN) from None
    try:
        while True:
            try:
                code = process.wait(timeout=_LOOK_S)
            except subprocess.TimeoutExpired:
                run.check()
            else:
                return code if code >= 0 else _BY_SIGNAL - code
    except BaseException as error:
        # Ctrl-C reaches every process of the terminal: the command may be about to end by itself.
        _stop(process, told=isinstance(error, KeyboardInterrupt))
        raise


def _stop(process: "subprocess.Popen[bytes]", *, told: bool) -> None:
    for ask in [process.terminate, process.kill] if not told else [None, process.terminate]:
        if ask is not None:
            ask()
        try:
            process.wait(timeout=_STOP_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            continue
        return
    process.kill()
    process.wait()


def _terminated(*_: object) -> NoReturn:
    """Leave in good order, so that the command does not outlive the hold on its run."""
    raise SystemExit(_BY_SIGNAL + signal.SIGTERM)
