"""`limpet prune`: delete old snapshots."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta

import click
from rich.console import Console
from rich.text import Text

import limpet
from limpet.cli import _exits
from limpet.cli._shared import (
    Count,
    complete_session,
    confirm,
    echo_json,
    echo_skipped,
    existing_store,
    store_options,
    yes_option,
)
from limpet.cli._terminal import make_console
from limpet.opening import CLOCK
from limpet.views.format import address_text, count_text, size_text, visible
from limpet.views.preview import pruned_sum, scopes_to_prune

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_PIECE = re.compile(r"(\d+)([smhdw])")


def duration(text: str) -> timedelta:
    """Parse 90s, 15m, 12h, 30d, 8w, also 1d12h."""
    pieces = _PIECE.findall(text)
    if not pieces or "".join(map("".join, pieces)) != text:
        raise click.BadParameter(f"write it like 90s, 15m, 12h, 30d or 8w. found=`{text}`")
    try:
        each = (timedelta(**{_UNITS[unit]: int(number)}) for number, unit in pieces)
        return sum(each, timedelta())
    except (OverflowError, ValueError):
        raise click.BadParameter("the time is too long") from None


@click.command()
@click.argument("session", required=False, shell_complete=complete_session)
@click.argument("scope", required=False)
@click.option("--keep-last", type=Count(0), metavar="N", help="Keep the newest N of each scope.")
@click.option(
    "--older-than", type=duration, metavar="TIME", help="Keep younger ones: 90s 15m 12h 30d 8w."
)
@click.option("--all", "everywhere", is_flag=True, help="In all sessions of the store.")
@click.option("--prefix", metavar="TEXT", default="", help="In all sessions with this prefix.")
@click.option("--kind", metavar="KIND", help="Only in scopes of this kind.")
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@yes_option
@store_options
def prune(
    session: str | None,
    scope: str | None,
    keep_last: int | None,
    older_than: timedelta | None,
    everywhere: bool,
    prefix: str,
    kind: str | None,
    dry_run: bool,
    yes: bool,
    url: str,
    as_json: bool,
) -> int:
    """Delete old snapshots of a SESSION, or of one SCOPE of it.

    Deletes snapshots that are not among the newest --keep-last and are older than --older-than; at
    least one of the two is required. A head is never deleted. Shows what will be deleted and asks,
    except with --yes or --dry-run. SESSION and SCOPE must be written in full.

    \b
    --json: a line for each scope from which snapshots are deleted:
            {"session_id": text, "scope_id": text, "kind": text,
             "count": snapshots, "bytes": of their states,
             "dry_run": true or false}

    \b
    Examples:
      limpet prune chat-42 --keep-last 20
      limpet prune --all --older-than 30d --keep-last 5 --dry-run
    """
    if (session is not None) + everywhere + bool(prefix) != 1:
        raise click.UsageError("give one of SESSION, --all or --prefix")
    if keep_last is None and older_than is None:
        raise click.UsageError("give --keep-last or --older-than, or both")
    with existing_store(url) as store:
        work = _Pruning(store, keep_last, older_than, as_json=as_json)
        scopes = scopes_to_prune(store, session, scope, kind, prefix)
        return work.run(scopes, dry_run=dry_run, yes=yes)


@dataclass
class _Pruning:
    store: limpet.Store
    keep_last: int | None
    older_than: timedelta | None
    as_json: bool
    damaged: int = 0
    begun: float = field(default_factory=CLOCK.monotonic)

    def run(self, scopes: Iterable[limpet.ScopeKey], *, dry_run: bool, yes: bool) -> int:
        asks = not dry_run and not yes
        if asks:
            scopes = self._confirmed(scopes)
        console = make_console()
        found, total = 0, limpet.Pruned(0, 0)
        for key, pruned in self._each(scopes, dry_run=dry_run):
            found, total = found + 1, pruned_sum((total, pruned))
            if self.as_json:
                facts = {"count": pruned.count, "bytes": pruned.bytes, "dry_run": dry_run}
                echo_json({**key._asdict(), **facts}, indent=None)
            elif not asks:
                _draw(console, key, pruned)
        if not self.as_json:
            _sum_up(console, found, total, dry_run=dry_run)
        return _exits.CORRUPT if self.damaged else _exits.FINE

    def _confirmed(self, scopes: Iterable[limpet.ScopeKey]) -> list[limpet.ScopeKey]:
        """Show what would be deleted, ask, and return the scopes that it concerns."""
        console = make_console(stderr=True)
        found, total = [], limpet.Pruned(0, 0)
        for key, pruned in self._each(scopes, dry_run=True):
            found.append(key)
            total = pruned_sum((total, pruned))
            _draw(console, key, pruned)
        if found:
            confirm(f"Delete {_amount(total)} for good?", yes=False)
        return found

    def _each(
        self, scopes: Iterable[limpet.ScopeKey], *, dry_run: bool
    ) -> Iterator[tuple[limpet.ScopeKey, limpet.Pruned]]:
        """Prune each scope, and yield those that had something to delete; skip damaged ones."""
        for key in scopes:
            older_than = self.older_than
            if older_than is not None:
                # Nothing may become too old while the question waits for its answer.
                older_than += timedelta(seconds=CLOCK.monotonic() - self.begun)
            try:
                pruned = self.store.scope(*key).prune(
                    keep_last=self.keep_last, older_than=older_than, dry_run=dry_run
                )
            except limpet.Corrupt as error:
                self.damaged += 1
                echo_skipped(str(error))
                continue
            if pruned.count:
                yield key, pruned


def _amount(pruned: limpet.Pruned) -> str:
    return f"{count_text(pruned.count, 'snapshot')}, {size_text(pruned.bytes)}"


def _draw(console: Console, key: limpet.ScopeKey, pruned: limpet.Pruned) -> None:
    name = visible(address_text(key))
    line = Text.assemble(("- ", "bad"), (name, "title"), (f"  {_amount(pruned)}", "size"))
    console.print(line, soft_wrap=True)


def _sum_up(console: Console, scopes: int, total: limpet.Pruned, *, dry_run: bool) -> None:
    if not total.count:
        console.print(Text("nothing to delete", "good"))
        return
    verb = "would delete" if dry_run else "deleted"
    line = f"{verb} {_amount(total)}, from {count_text(scopes, 'scope')}"
    console.print(Text(line, "odd" if dry_run else "good"), soft_wrap=True)
