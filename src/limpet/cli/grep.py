"""`limpet grep`: search the texts of states."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

import click
from rich.console import Console
from rich.text import Text

import limpet
from limpet.cli import _exits
from limpet.cli._shared import (
    Count,
    Skipped,
    complete_session,
    echo_json,
    with_store,
)
from limpet.cli._terminal import output
from limpet.views.diff import dotted
from limpet.views.format import address_text, short_id, visible
from limpet.views.refs import find_session
from limpet.views.search import Match, Place, StateSearch, compiled, excerpt, finder

_EXCERPT_CHARS_MAX = 160


@click.command()
@click.argument("pattern")
@click.argument("session", required=False, shell_complete=complete_session)
@click.option("-F", "--fixed", is_flag=True, help="PATTERN is plain text, not a regex.")
@click.option("-i", "--ignore-case", is_flag=True, help="Ignore upper and lower case.")
@click.option("--keys", is_flag=True, help="Search the keys of objects too.")
@click.option("--history", is_flag=True, help="Search every snapshot, not only the heads.")
@click.option("--kind", metavar="KIND", help="Only in scopes of this kind.")
@click.option("--status", metavar="STATUS", help="Only in snapshots with this status.")
@click.option("--prefix", metavar="TEXT", default="", help="Only in sessions with this prefix.")
@click.option("-l", "--list", "only_list", is_flag=True, help="Only list the snapshots that match.")
@click.option("-c", "--count", "only_count", is_flag=True, help="Only count, for each snapshot.")
@click.option("-m", "--max-count", type=Count(1), metavar="N", help="Stop after N matches.")
@with_store()
def grep(
    store: limpet.Store,
    pattern: str,
    session: str | None,
    fixed: bool,
    ignore_case: bool,
    keys: bool,
    only_list: bool,
    only_count: bool,
    max_count: int | None,
    as_json: bool,
    **where: Any,
) -> int:
    """Search the texts of all states, or of one SESSION.

    PATTERN is a Python regular expression. It is matched line by line, and a line is printed once.
    Without --history only the head of each scope is searched; with it every snapshot, the oldest
    first, and a line is printed only for the first that has it. Notes come last, without --status.

    The exit code is 0 if something was found, 1 if not, and 5 if a damaged snapshot was skipped.

    \b
    --json: a line for each match:
            {"session_id": text, "scope_id": text, "kind": text, "id": text,
             "path": dotted text, "pointer": JSON Pointer,
             "is_key": true or false, "text": the line, "start": n, "end": n}
            with -l only up to "id", with -c {..., "id": text, "count": n};
            in a note also "note": its name, and "id" is null if it is the scope's

    \b
    Examples:
      limpet grep -i 'refund|chargeback'
      limpet grep -F 'rm -rf' --history -l --prefix alice/
    """
    if (session is not None and where["prefix"]) or (only_list and only_count):
        raise click.UsageError("SESSION and --prefix cannot be combined, nor -l and -c")
    try:
        wanted = compiled(pattern, fixed=fixed, ignore_case=ignore_case)
    except limpet.InvalidInput as error:
        raise click.BadParameter(f"{error} (-F is for plain text)", param_hint="PATTERN") from None
    damaged = Skipped()

    def skipped(key: limpet.ScopeKey, id: str | None, error: limpet.Corrupt) -> None:
        damaged.add(f"{address_text(key, id or '')}: {error}")

    session_id = None if session is None else find_session(store, session)
    search = StateSearch(
        store, finder(wanted, pattern if fixed else ""), keys=keys, skipped=skipped
    )
    found = search.run(session_id, **where)
    with output(pager=not as_json) as console:
        printer = _MatchPrinter(console, as_json, only_list, only_count)
        printer.print_all(islice(found, max_count))
    damaged.end("snapshots")
    code = _exits.FINE if printer.found else _exits.FOUND
    return _exits.CORRUPT if damaged.count else code


@dataclass
class _MatchPrinter:
    console: Console
    as_json: bool
    only_list: bool
    only_count: bool
    found: int = 0

    def print_all(self, found: Iterable[tuple[Place, Match]]) -> None:
        for place, of_one in groupby(found, key=itemgetter(0)):
            before = self.found
            for _, match in of_one:
                self.found += 1
                if not (self.only_list or self.only_count):
                    self._print(place, match)
            if self.only_list or self.only_count:
                self._print_count(place, self.found - before)

    def _print_count(self, place: Place, count: int) -> None:
        if self.as_json:
            counted = {"count": count} if self.only_count else {}
            echo_json({**_address(place), **counted}, indent=None)
            return
        name = address_text(place.scope, place.id or "")
        name += "" if place.note is None else f":note {place.note}"
        line = Text(visible(name), "accent")
        self.console.print(line.append(f":{count}") if self.only_count else line, soft_wrap=True)

    def _print(self, place: Place, match: Match) -> None:
        if self.as_json:
            shape = {"path": dotted(match.pointer), **match._asdict()}
            echo_json({**_address(place), **shape}, indent=None)
            return
        line = Text()
        for part, style, end in (
            (place.scope.session_id, "title", ":"),
            (place.scope.scope_id, "fork", "@"),
            (short_id(place.id or ""), "accent", ":"),
        ):
            line.append(visible(part), style).append(end, "quiet")
        if place.note is not None:
            line.append(visible(f"note {place.note}"), "accent").append(":", "quiet")
        line.append(dotted(match.pointer)).append(": ", "quiet")
        before, text, after = map(visible, excerpt(match, _EXCERPT_CHARS_MAX))
        line.append(before).append(text, "bad").append(after)
        self.console.print(line, soft_wrap=True)


def _address(place: Place) -> dict[str, Any]:
    note = {} if place.note is None else {"note": place.note}
    return {**place.scope._asdict(), "id": place.id, **note}
