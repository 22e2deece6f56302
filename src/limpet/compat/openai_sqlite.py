"""Sessions in a file of the OpenAI Agents SDK, imported without the SDK.

The files are those of `SQLiteSession`, `AsyncSQLiteSession` and `AdvancedSQLiteSession`. They are
only read and may be in use: each session is read in one transaction. `limpet.compat.openai` reads
what is imported.
"""

import json
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, NamedTuple

from limpet import AsyncStore, Store
from limpet.api.integrations import check_prefix, codec, limits, prepare, times, verbs
from limpet.compat.logs import KIND, MAIN, check_own
from limpet.compat.sqlite_files import SqliteFile, opened
from limpet.compat.wire import Tally, Transfer, check_store, folder_of
from limpet.errors import AlreadyExists, InvalidInput, LimpetError, NotFound
from limpet.model import JSON, Expect, ScopeKey, Snapshot, SnapshotInfo, SnapshotRef

KEY = "items"
MARK = "openai"
_IMPORTED = "imported_items"  # in the metadata of what is imported: how many items it has
_OTHER_LAYOUT = "the tables have another layout than those of the OpenAI Agents SDK"

# {messages} is the quoted name of the table of messages.

_NEXT_SESSION = """
SELECT min(session_id) FROM {messages}
 WHERE session_id >= CAST(? AS TEXT) AND session_id IS NOT CAST(? AS TEXT)
   AND substr(session_id, 1, length(CAST(? AS TEXT))) = CAST(? AS TEXT)
   AND typeof(session_id) = 'text'
"""

_MESSAGES = """
SELECT id, message_data, created_at FROM {messages}
 WHERE session_id = CAST(? AS TEXT) ORDER BY id
"""

# The table of an AdvancedSQLiteSession: which messages are in a branch, and in which order.
_BRANCHES = """
SELECT branch_id, min(created_at) FROM message_structure
 WHERE session_id = CAST(? AS TEXT) GROUP BY branch_id ORDER BY min(id)
"""

_MESSAGES_OF_BRANCH = """
SELECT m.id, m.message_data, m.created_at
  FROM message_structure s JOIN {messages} m ON m.id = s.message_id
 WHERE s.session_id = CAST(? AS TEXT) AND m.session_id = s.session_id
   AND s.branch_id = CAST(? AS TEXT)
 ORDER BY s.sequence_number, s.id
"""


class _Row(NamedTuple):
    id: int
    item: JSON
    created_at: int | None  # microseconds; None if it cannot be read


class _Line(NamedTuple):
    """A session without branches, or one branch, and when that was begun."""

    scope: ScopeKey
    rows: list[_Row]
    begun_at: int | None = None


def import_sqlite(
    store: Store | AsyncStore,
    path: str | os.PathLike[str],
    *,
    prefix: str = "",
    table: str = "agent_messages",
) -> Transfer:
    """Bring the sessions whose ids begin with `prefix` into a store; count the new snapshots.

    Each question begins a snapshot, and so does each moment at which the SDK stored something; it
    keeps that time. The branches of an `AdvancedSQLiteSession` become branches, which say where
    they come from. Its figures about usage are not imported.

    An import may be repeated, also after it was interrupted: what is there is not added again, and
    what is new in the file is. A session that was changed otherwise since is skipped and reported,
    and so is a row that is not JSON. `table` is the table of messages.

    Synchronous, for a `Store` or an `AsyncStore`; from async code `await store.run(...)`.

    Raises:
        NotFound: the file does not exist, or has no such table.
        InvalidInput: the file is not a SQLite database.
        Unsupported: the table has another layout.
    """
    check_prefix(prefix)
    with opened(folder_of(path), other_layout=_OTHER_LAYOUT) as file:
        if not file.columns(table):
            raise NotFound(f"the file has no such table. path=`{file.path}` table=`{table}`")
        return _Import(check_store(store).sync, file, table).sessions(prefix)


class _Import:
    def __init__(self, store: Store, file: SqliteFile, table: str) -> None:
        self._store = store
        self._file = file
        self._table = '"{}"'.format(table.replace('"', '""'))
        self._has_branches = bool(file.columns("message_structure"))
        self._tally = Tally()

    def sessions(self, prefix: str) -> Transfer:
        last: str | None = None
        while True:
            start = prefix if last is None else last
            ((last,),) = self._rows(_NEXT_SESSION, start, last, prefix, prefix)
            if last is None:
                return self._tally.result()
            with self._file.reading():
                lines = list(self._lines(last))
            for at, line in enumerate(lines):
                self._line(line, lines[:at])

    def _rows(self, query: str, *names: str | None) -> Iterator[Any]:
        return self._file.rows(query.format(messages=self._table), *names)

    def _lines(self, session_id: str) -> Iterator[_Line]:
        branches = list(self._rows(_BRANCHES, session_id)) if self._has_branches else []
        for branch, begun_at in branches:
            found = self._rows(_MESSAGES_OF_BRANCH, session_id, str(branch))
            yield from self._read(session_id, str(branch), found, _time(begun_at))
        if not branches:
            yield from self._read(session_id, MAIN, self._rows(_MESSAGES, session_id))

    def _read(
        self, session_id: str, branch: str, found: Iterator[Any], begun_at: int | None = None
    ) -> Iterator[_Line]:
        try:
            scope = limits.check_scope(session_id, branch, KIND)
        except InvalidInput as refusal:
            self._tally.skip("session_skipped", refusal, session_id=session_id, branch=branch)
            return
        rows = []
        for id, data, created_at in found:
            try:
                rows.append(_Row(id, _item(data), _time(created_at)))
            except (InvalidInput, ValueError, TypeError, RecursionError) as cause:
                fact = str(cause) if isinstance(cause, InvalidInput) else "the item is not JSON"
                self._tally.skip("item_skipped", fact, scope=scope, row=id)
        if rows:
            yield _Line(scope, rows, begun_at)

    def _line(self, line: _Line, others: Sequence[_Line]) -> None:
        found = self._store.scope(*line.scope).load()
        with self._tally.skipping("session_skipped", AlreadyExists, InvalidInput, scope=line.scope):
            present = 0 if found is None else self._checked(line, found)
            head, done = self._begin(line, others) if found is None else (found, present)
            for group in _groups(line.rows[done:]):
                done += len(group)
                head = self._append(line.scope, group, done, head)
            new = sum(1 for _ in _groups(line.rows[present:]))
            self._tally.count += new
            self._tally.unchanged += sum(1 for _ in _groups(line.rows)) - new

    def _checked(self, line: _Line, found: Snapshot) -> int:
        """Return how many items of a line are in the store.

        If it was changed there, that is what people work with: it must not be mixed with the file.
        """
        check_own(found, MARK)
        have, wanted = _items_of(found.state), [row.item for row in line.rows]
        is_as_imported = found.metadata.get(_IMPORTED) == len(have)
        if have[: len(wanted)] == wanted or (is_as_imported and wanted[: len(have)] == have):
            return len(have)
        raise InvalidInput("the session in the store has other items than the file")

    def _begin(self, line: _Line, others: Sequence[_Line]) -> tuple[SnapshotInfo | None, int]:
        """Begin a branch with the items that it shares with an earlier one; return how many."""
        source, count = None, 0
        for other in others:
            pairs = zip(line.rows, other.rows, strict=False)
            shared = sum(1 for _ in takewhile(lambda pair: pair[0].id == pair[1].id, pairs))
            if shared > count:
                source, count = other, shared
        if source is None:
            return None, 0
        head = self._store.scope(*line.scope).save(
            {KEY: [row.item for row in line.rows[:count]]},
            metadata={MARK: True, _IMPORTED: count},
            created_at=None if line.begun_at is None else times.from_us(line.begun_at),
            forked_from=self._snapshot_with(source.scope, count),
            expect=None,
        )
        return head, count

    def _snapshot_with(self, scope: ScopeKey, count: int) -> SnapshotRef | None:
        for info in self._store.scope(*scope).history():
            if info.metadata.get(_IMPORTED) == count:
                return SnapshotRef(scope, info.id)
        return None

    def _append(
        self, scope: ScopeKey, group: Sequence[_Row], done: int, head: SnapshotInfo | None
    ) -> SnapshotInfo:
        driver = self._store.driver
        expect: Expect = None if head is None else head.revision
        commit = prepare.append(
            scope,
            KEY,
            [row.item for row in group],
            keep=True,
            status=None,
            labels=None,
            metadata={MARK: True, _IMPORTED: done},
            expect=expect,
            fence=None,
            stamp=driver.tools.draw(),
            state_bytes_max=driver.tools.state_bytes_max,
        )
        return driver.run(verbs.save(commit._replace(created_at=group[-1].created_at)))


def _groups(rows: Sequence[_Row]) -> Iterator[list[_Row]]:
    """Yield the rows that make a snapshot: of one moment, and none of them a new question."""
    group: list[_Row] = []
    for row in rows:
        if group and (row.created_at != group[-1].created_at or _is_question(row.item)):
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def _is_question(item: JSON) -> bool:
    return isinstance(item, dict) and item.get("role") == "user"


def _item(data: Any) -> JSON:
    item: JSON = json.loads(data)
    codec.encode(item, what="item", bytes_max=limits.STATE_BYTES_MAX)  # refuses NaN, for example
    return item


def _items_of(state: JSON) -> list[JSON]:
    items = state.get(KEY, []) if isinstance(state, dict) else []
    return items if isinstance(items, list) else []


def _time(text: Any) -> int | None:
    """Return what SQLite wrote as CURRENT_TIMESTAMP, which is UTC."""
    try:
        moment = datetime.fromisoformat(text)
        return times.to_us("created_at", moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (LimpetError, TypeError, ValueError):
        return None
