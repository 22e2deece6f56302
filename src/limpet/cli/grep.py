"""`limpet grep`: where something was said, in every state that is kept."""

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
    echo_json,
    existing_store,
    json_option,
    output,
    url_option,
)
from limpet.cli.completion import complete_session
from limpet.core.limits import PAGE_STATES_MAX
from limpet.views.diff import dotted
from limpet.views.refs import find_session
from limpet.views.search import Match, excerpt, matches
from limpet.views.sizes import short_id, visible, without_secrets

_EXCERPT_CHARS_MAX = 160
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """Which snapshots are looked at, and what in them."""

    keys: bool
    history: bool
    kind: str | None
    status: str | None
    prefix: str


@click.command()
@click.argument("pattern")
@click.argument("session", required=False, shell_complete=complete_session)
@click.option("-F", "--fixed", is_flag=True, help="PATTERN is plain text, no regular expression.")
@click.option("-i", "--ignore-case", is_flag=True, help="Upper and lower case are the same.")
@click.option("--keys", is_flag=True, help="Look at the keys of objects too.")
@click.option("--history", is_flag=True, help="Look at every kept snapshot, not only at heads.")
@click.option("--kind", metavar="KIND", help="Only in scopes of this kind.")
@click.option("--status", metavar="STATUS", help="Only in snapshots of this status.")
@click.option("--prefix", metavar="TEXT", default="", help="Only in sessions whose id begins so.")
@click.option("-l", "--list", "only_list", is_flag=True, help="Only name the snapshots.")
@click.option("-c", "--count", "only_count", is_flag=True, help="Only count, for each snapshot.")
@click.option("-m", "--max-count", type=click.IntRange(min=1), metavar="N", help="Stop after N.")
@url_option
@json_option
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

    PATTERN is a regular expression of Python. It is looked for in one line of a text at a time, and
    a line is told once. What is searched is what the scopes show now; with --history every kept
    snapshot as well, the oldest of each scope first, and then a line that matches is told only for
    the first snapshot of the scope in which it stands.

    Ends with 0 if something was found, with 1 if nothing was, and with 5 if a snapshot is damaged
    and could not be searched, which is told and skipped.

    \b
    --json: a line for each match, as it is found:
            {"session_id": text, "scope_id": text, "kind": text, "id": text,
             "path": dotted text, "pointer": JSON Pointer, "is_key": true or false,
             "text": the line, "start": n, "end": n}
            with -l without what follows the id, with -c {..., "id": text, "count": n}

    \b
    Examples:
      limpet grep -i 'refund|chargeback'
      limpet grep -F 'rm -rf' --history -l --prefix alice/
    """
    if (session is not None and where["prefix"]) or (only_list and only_count):
        raise click.UsageError("SESSION and --prefix exclude each other, and so do -l and -c")
    compiled = _compiled(pattern, fixed=fixed, ignore_case=ignore_case)
    with existing_store(url) as store:
        session_id = None if session is None else find_session(store, session)
        search = _Search(store, compiled, session_id, _Wanted(**where))
        with output(pager=not as_json) as console:
            told = _Told(console, as_json, only_list, only_count)
            told.tell_all(islice(search.run(), max_count))
    found = _exits.FINE if told.found else _exits.FOUND
    return _exits.CORRUPT if search.damaged else found


def _compiled(pattern: str, *, fixed: bool, ignore_case: bool) -> re.Pattern[str]:
    text = re.escape(pattern) if fixed else pattern
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what a later Python may take another way
            return re.compile(text, re.IGNORECASE if ignore_case else 0)
    except (re.error, OverflowError, RecursionError) as cause:
        message = f"it is no regular expression (-F takes it as plain text): {cause}"
        raise click.BadParameter(message, param_hint="PATTERN") from None


@dataclass
class _Search:
    """A walk over snapshots that holds a page of states, and the ids of one scope, at a time."""

    store: limpet.Store
    pattern: re.Pattern[str]
    session_id: str | None
    wanted: _Wanted
    damaged: int = 0

    def run(self) -> Iterator[tuple[limpet.SnapshotInfo, Match]]:
        """Yield every match with its snapshot."""
        wanted = self.wanted
        for each in self.store.scopes(self.session_id, kind=wanted.kind, prefix=wanted.prefix):
            scope = self.store.scope(*each.key)
            if wanted.history:
                yield from self._first_of_each(self._kept(scope))
                continue
            fits = each.head is not None and wanted.status in (None, each.head.status)
            if fits or each.head is None:  # it may be damaged, and then a load tells
                for snapshot in self._loaded(scope, [None]):
                    if wanted.status in (None, snapshot.status):
                        yield from ((snapshot, match) for match in self._in(snapshot))

    def _in(self, snapshot: limpet.Snapshot) -> Iterator[Match]:
        return matches(snapshot.state, self.pattern, keys=self.wanted.keys)

    def _first_of_each(
        self, snapshots: Iterable[limpet.Snapshot]
    ) -> Iterator[tuple[limpet.SnapshotInfo, Match]]:
        """Yield matches whose line stood in none of the snapshots before.

        Only digests are remembered, of lines that match: they are few, and lines may be long.
        """
        seen: set[bytes] = set()
        for snapshot in snapshots:
            new: set[bytes] = set()
            for match in self._in(snapshot):
                kind = b"key" if match.is_key else b"text"
                line = match.text.encode(errors="surrogatepass")  # of foreign documents
                digest = blake2b(line, digest_size=_DIGEST_BYTES, person=kind).digest()
                if digest not in seen:
                    new.add(digest)
                    yield snapshot, match
            seen |= new

    def _kept(self, scope: limpet.Scope) -> Iterator[limpet.Snapshot]:
        """Yield the kept snapshots of a scope, the oldest first, and a draft that it shows."""
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
        """Yield snapshots with their states; what is damaged is told and left out."""
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
        told = f"{scope.session_id}:{scope.scope_id}@{id or ''}: {error}"
        line = visible(" ".join(without_secrets(told).split()))
        click.echo(f"limpet: skipped: {line}", err=True)


@dataclass
class _Told:
    """Prints what is found, as it is found."""

    console: Console
    as_json: bool
    only_list: bool
    only_count: bool
    found: int = 0
    _last: limpet.SnapshotInfo | None = None
    _count: int = 0

    def tell_all(self, found: Iterable[tuple[limpet.SnapshotInfo, Match]]) -> None:
        """Print every match, or the snapshots that they are in."""
        for info, match in found:
            self._tell(info, match)
        self._close()

    def _tell(self, info: limpet.SnapshotInfo, match: Match) -> None:
        """Print a match, or count it until the next snapshot."""
        self.found += 1
        if self.only_list or self.only_count:
            if self._last is not None and self._last is not info:
                self._close()
            self._last = info
            self._count += 1
        elif self.as_json:
            echo_json({**_address(info), **_match_json(match)}, indent=None)
        else:
            self._draw(info, match)

    def _close(self) -> None:
        """Print what was counted of the last snapshot."""
        info, count = self._last, self._count
        self._last, self._count = None, 0
        if info is None:
            return
        if self.as_json:
            counted = {"count": count} if self.only_count else {}
            echo_json({**_address(info), **counted}, indent=None)
            return
        name = visible(f"{info.session_id}:{info.scope.scope_id}@{info.id}")
        line = Text(name, "accent")
        self.console.print(line.append(f":{count}") if self.only_count else line, soft_wrap=True)

    def _draw(self, info: limpet.SnapshotInfo, match: Match) -> None:
        line = Text()
        for part, style in (
            (info.session_id, "title"),
            (info.scope.scope_id, "fork"),
            (short_id(info.id), "accent"),
        ):
            line.append(visible(part), style).append(":", "quiet")
        line.append(dotted(match.pointer)).append(": ", "quiet")
        before, text, after = map(visible, excerpt(match, _EXCERPT_CHARS_MAX))
        line.append(before).append(text, "bad").append(after)
        self.console.print(line, soft_wrap=True)


def _address(info: limpet.SnapshotInfo) -> dict[str, Any]:
    return {**info.scope._asdict(), "id": info.id}


def _match_json(match: Match) -> dict[str, Any]:
    return {
        "path": dotted(match.pointer),
        "pointer": match.pointer,
        "is_key": match.is_key,
        "text": match.text,
        "start": match.start,
        "end": match.end,
    }
