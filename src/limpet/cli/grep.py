"""`limpet grep`: search the texts of states."""

import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Any

import click
from rich.console import Console
from rich.text import Text

import limpet
from limpet.cli import _exits
from limpet.cli._shared import (
    Count,
    complete_session,
    echo_json,
    echo_skipped,
    existing_store,
    store_options,
)
from limpet.cli._terminal import output
from limpet.core.limits import PAGE_STATES_MAX
from limpet.views.diff import dotted
from limpet.views.format import address_text, short_id, visible
from limpet.views.refs import find_session
from limpet.views.search import Match, excerpt, matches

_EXCERPT_CHARS_MAX = 160
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    keys: bool
    history: bool
    kind: str | None
    status: str | None
    prefix: str


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
@store_options
def grep(
    pattern: str,
    session: str | None,
    fixed: bool,
    ignore_case: bool,
    only_list: bool,
    only_count: bool,
    max_count: int | None,
    url: str,
    as_json: bool,
    **where: Any,
) -> int:
    """Search the texts of all states, or of one SESSION.

    PATTERN is a Python regular expression. It is matched line by line, and a line is printed once.
    Without --history only the head of each scope is searched; with it every snapshot, the oldest
    first, and a matching line is printed only for the first snapshot of the scope that has it.

    The exit code is 0 if something was found, 1 if not, and 5 if a damaged snapshot was skipped.

    \b
    --json: a line for each match:
            {"session_id": text, "scope_id": text, "kind": text, "id": text,
             "path": dotted text, "pointer": JSON Pointer,
             "is_key": true or false, "text": the line, "start": n, "end": n}
            with -l only up to "id", with -c {..., "id": text, "count": n}

    \b
    Examples:
      limpet grep -i 'refund|chargeback'
      limpet grep -F 'rm -rf' --history -l --prefix alice/
    """
    if (session is not None and where["prefix"]) or (only_list and only_count):
        raise click.UsageError("SESSION and --prefix cannot be combined, nor -l and -c")
    compiled = _compiled(pattern, fixed=fixed, ignore_case=ignore_case)
    with existing_store(url, read_only=True) as store:
        session_id = None if session is None else find_session(store, session)
        search = _StateSearch(store, compiled, session_id, _Wanted(**where))
        with output(pager=not as_json) as console:
            printer = _MatchPrinter(console, as_json, only_list, only_count)
            printer.print_all(islice(search.run(), max_count))
    found = _exits.FINE if printer.found else _exits.FOUND
    return _exits.CORRUPT if search.damaged else found


def _compiled(pattern: str, *, fixed: bool, ignore_case: bool) -> re.Pattern[str]:
    text = re.escape(pattern) if fixed else pattern
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # FutureWarning: the syntax may change
            return re.compile(text, re.IGNORECASE if ignore_case else 0)
    except (re.error, OverflowError, RecursionError) as cause:
        message = f"not a regular expression (use -F for plain text): {cause}"
        raise click.BadParameter(message, param_hint="PATTERN") from None


@dataclass
class _StateSearch:
    """Searches snapshots, holding one page of states and the ids of one scope at a time."""

    store: limpet.Store
    pattern: re.Pattern[str]
    session_id: str | None
    wanted: _Wanted
    damaged: int = 0

    def run(self) -> Iterator[tuple[limpet.SnapshotInfo, Match]]:
        wanted = self.wanted
        for each in self.store.scopes(self.session_id, kind=wanted.kind, prefix=wanted.prefix):
            scope = self.store.scope(*each.key)
            if wanted.history:
                yield from self._first_of_each(self._kept(scope))
                continue
            fits = each.head is not None and wanted.status in (None, each.head.status)
            if fits or each.head is None:  # it may be damaged, which loading reports
                for snapshot in self._loaded(scope, [None]):
                    if wanted.status in (None, snapshot.status):
                        yield from ((snapshot, match) for match in self._in(snapshot))

    def _in(self, snapshot: limpet.Snapshot) -> Iterator[Match]:
        return matches(snapshot.state, self.pattern, keys=self.wanted.keys)

    def _first_of_each(
        self, snapshots: Iterable[limpet.Snapshot]
    ) -> Iterator[tuple[limpet.SnapshotInfo, Match]]:
        """Yield matches whose line is in no earlier snapshot; remembers digests of the lines."""
        seen: set[bytes] = set()
        for snapshot in snapshots:
            new: set[bytes] = set()
            for match in self._in(snapshot):
                kind = b"key" if match.is_key else b"text"
                line = match.text.encode(errors="surrogatepass")  # from other tools' files
                digest = blake2b(line, digest_size=_DIGEST_BYTES, person=kind).digest()
                if digest not in seen:
                    new.add(digest)
                    yield snapshot, match
            seen |= new

    def _kept(self, scope: limpet.Scope) -> Iterator[limpet.Snapshot]:
        """Yield the snapshots of a scope, oldest first, then its draft."""
        status = self.wanted.status
        try:
            ids = [info.id for info in scope.history(status=status)]
            head = scope.info()
        except limpet.Corrupt as error:
            self._skip(scope, None, error)
            return
        if head is not None and not head.kept and status in (None, head.status):
            ids.insert(0, head.id)
        while ids:
            page = [ids.pop() for _ in range(min(PAGE_STATES_MAX, len(ids)))]
            yield from self._loaded(scope, page)

    def _loaded(
        self, scope: limpet.Scope, ids: list[str] | list[None]
    ) -> Iterator[limpet.Snapshot]:
        """Load snapshots; damaged ones are reported and skipped."""
        try:
            many = [id for id in ids if id is not None]
            found = list(scope.load_many(many)) if len(many) > 1 else [scope.load(ids[0])]
        except limpet.Corrupt as error:
            if len(ids) == 1:
                self._skip(scope, ids[0], error)
                return
            for id in ids:
                yield from self._loaded(scope, [id] if id is not None else [None])
            return
        yield from (snapshot for snapshot in found if snapshot is not None)

    def _skip(self, scope: limpet.Scope, id: str | None, error: limpet.Corrupt) -> None:
        self.damaged += 1
        echo_skipped(f"{address_text(scope.key, id or '')}: {error}")


@dataclass
class _MatchPrinter:
    console: Console
    as_json: bool
    only_list: bool
    only_count: bool
    found: int = 0
    _last: limpet.SnapshotInfo | None = None
    _count: int = 0

    def print_all(self, found: Iterable[tuple[limpet.SnapshotInfo, Match]]) -> None:
        for info, match in found:
            self._add(info, match)
        self._print_count()

    def _add(self, info: limpet.SnapshotInfo, match: Match) -> None:
        self.found += 1
        if self.only_list or self.only_count:
            if self._last is not None and self._last is not info:
                self._print_count()
            self._last = info
            self._count += 1
        elif self.as_json:
            shape = {"path": dotted(match.pointer), **match._asdict()}
            echo_json({**_address(info), **shape}, indent=None)
        else:
            self._draw(info, match)

    def _print_count(self) -> None:
        info, count = self._last, self._count
        self._last, self._count = None, 0
        if info is None:
            return
        if self.as_json:
            counted = {"count": count} if self.only_count else {}
            echo_json({**_address(info), **counted}, indent=None)
            return
        name = visible(address_text(info.scope, info.id))
        line = Text(name, "accent")
        self.console.print(line.append(f":{count}") if self.only_count else line, soft_wrap=True)

    def _draw(self, info: limpet.SnapshotInfo, match: Match) -> None:
        line = Text()
        for part, style, end in (
            (info.session_id, "title", ":"),
            (info.scope.scope_id, "fork", "@"),
            (short_id(info.id), "accent", ":"),
        ):
            line.append(visible(part), style).append(end, "quiet")
        line.append(dotted(match.pointer)).append(": ", "quiet")
        before, text, after = map(visible, excerpt(match, _EXCERPT_CHARS_MAX))
        line.append(before).append(text, "bad").append(after)
        self.console.print(line, soft_wrap=True)


def _address(info: limpet.SnapshotInfo) -> dict[str, Any]:
    return {**info.scope._asdict(), "id": info.id}
