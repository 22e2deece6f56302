"""Walking the tables by their keys, a bounded part at a time; inspecting and mending their rows."""

from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import cached_property, partial
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from limpet.backends.sql import mending
from limpet.backends.sql.columns import (
    NOTE_COLUMNS,
    ROW_COLUMNS,
    SCOPE_COLUMNS,
    SEGMENT_COLUMNS,
    TAIL_COLUMNS,
    label_values,
    read_note,
    read_row,
    read_scope,
    read_segment,
    read_shared,
    read_tail,
    verified_row,
)
from limpet.backends.sql.mending import DAMAGE, Facts
from limpet.backends.sql.transaction import Transaction
from limpet.core import findings, limits
from limpet.core.codec import decode
from limpet.core.encryption import PLAIN, Cipher, Ciphers, WrongKeys
from limpet.core.ids import SEQ_MAX
from limpet.core.limits import MIB, is_text
from limpet.core.notes import note_of
from limpet.core.rows import Row, info_of
from limpet.core.segments import Segment
from limpet.errors import Corrupt, InvalidInput
from limpet.model import Finding, ScopeKey
from limpet.storage import DAMAGED, StateReader

T = TypeVar("T")

_STATES_BYTES_MAX = 64 * MIB  # in one part, which with repair keeps other writers waiting

# What `check` can say about the tables of a store. docs/check.md explains every code.
SEVERITIES = {
    # The file, or the schema
    "file_damaged": "error",
    "foreign_object": "warning",
    "header_wrong": "error",
    "index_missing": "warning",
    "pragma_wrong": "warning",
    "schema_differs": "error",
    # Scopes
    "scope_damaged": "error",
    "scope_missing": "error",
    "scope_wrong": "error",
    # Snapshots
    "draft_unreachable": "warning",
    "index_wrong": "error",
    "snapshot_damaged": "error",
    # States and notes
    "note_damaged": "error",
    "state_damaged": "error",
    "state_left": "warning",
    # Keys
    "keys_wrong": "error",
}


# Owners come before what they own, so that one pass of repair mends all that can be mended.
TABLES = ("scopes", "snapshots", "tails", "segments", "shared", "labels", "notes")


class Position(NamedTuple):
    """Behind which key of which table to go on, and whether rows may be repaired."""

    table: str = TABLES[0]
    after: Any = -SEQ_MAX - 1
    mends: bool = True

    def __str__(self) -> str:
        key = self.after.hex() if isinstance(self.after, bytes) else self.after
        return f"{self.table}:{key}:{'rw' if self.mends else 'ro'}"

    @classmethod
    def parse(cls, text: str) -> "Position":
        try:
            table, key, mode = text.split(":")
            after = bytes.fromhex(key) if table == "shared" else int(key)
            return cls(TABLES[TABLES.index(table)], after, {"rw": True, "ro": False}[mode])
        except (KeyError, ValueError):
            raise InvalidInput("the position does not come from an earlier call") from None

    @property
    def following(self) -> "Position | None":
        """The beginning of the next table."""
        at = TABLES.index(self.table) + 1
        if at == len(TABLES):
            return None
        after = b"" if TABLES[at] == "shared" else -SEQ_MAX - 1
        return Position(TABLES[at], after, self.mends)


def _raised(cause: Exception, key: Any) -> None:
    raise cause


def walk(
    transaction: Transaction,
    position: Position,
    limit: int,
    visit: Callable[[Any], bool],
    survive: Callable[[Exception, Any], None] = _raised,
) -> Position | None:
    """Visit up to `limit` keys of a table, until a visit returns False; return where to go on.

    `survive` takes note of an error at a key (None: of the table), or raises it.
    """
    values = {"after": position.after, "limit": max(1, limit)}
    try:
        keys = [key for (key,) in transaction.all(f"walk_{position.table}", values)]
    except Exception as cause:
        survive(cause, None)
        return position.following
    after, is_over = position.after, len(keys) < max(1, limit)
    for key in keys:
        goes_on = True
        try:
            if type(key) is not type(after) or key <= after:
                raise Corrupt("keys are not in order")  # a damaged tree can lead around in circles
            after = key
            goes_on = visit(key)
        except Exception as cause:
            survive(cause, key)
        if not goes_on:
            is_over = False
            break
    # A page without any progress must be the last: its successor would be the same.
    return (
        position.following if is_over or after == position.after else position._replace(after=after)
    )


def finding(code: str, fact: str, **values: Any) -> Finding:
    return findings.finding(SEVERITIES[code], code, fact, **values)


Survive = Callable[[Exception, Position, Any], list[Finding]]
"""Returns what to say of an error at a key of a table (None: of the table), or raises it."""


def address(*names: Any) -> ScopeKey | None:
    """Return the address that three names make, or None if they are no text."""
    return ScopeKey(*names) if is_text(*names) else None


def id_or_none(name: Any) -> str | None:
    return name if is_text(name) and name else None


class Inspector:
    """Inspects the rows of one transaction: a method for each table, which takes a key.

    With `repair` it mends what can be mended on the way. `spent` counts the bytes of states that
    `states` is going to read.
    """

    def __init__(
        self,
        transaction: Transaction,
        ciphers: Ciphers,
        states: Callable[[ScopeKey], StateReader],
        *,
        repair: bool,
    ) -> None:
        self._transaction = transaction
        self._ciphers = ciphers
        self._states = states
        self._repair = repair
        self._rows: dict[ScopeKey, list[Row]] = {}
        self.spent = 0

    def _one(self, name: str, key: Any) -> Any:
        found = self._transaction.one(name, {"key": key})
        if found is None:  # the index has this key, but the table does not
            raise Corrupt("a row is not where its key says")
        return found

    def _cipher(self, key: ScopeKey | None) -> Cipher:
        return PLAIN if key is None else self._ciphers.of(key.session_id)

    def _verified(
        self, code: str, what: str, read: Callable[[], T], **at: Any
    ) -> Generator[Finding, None, T | None]:
        """Return what is read, or yield why it cannot be."""
        try:
            return read()
        except WrongKeys:
            # Without keys it is as it should be that what is encrypted cannot be read.
            if self._ciphers.encrypts:
                fact = f"{what} cannot be read with the keys that are given"
                yield finding("keys_wrong", fact, **at)
        except DAMAGE as cause:
            why = str(cause).partition(". ")[0] if isinstance(cause, Corrupt) else "it is not JSON"
            yield finding(code, f"{what} cannot be read", **at, why=why)
        return None

    # Scopes

    def scopes(self, pk: int) -> Iterator[Finding]:
        found = self._one("check_scopes", pk)
        columns, facts = found[:SCOPE_COLUMNS], Facts(*found[SCOPE_COLUMNS:])
        if columns[0] is None:
            key = mending.restore_scope(self._transaction, pk, facts) if self._repair else None
            fact = "snapshots, states or notes belong to a scope that does not exist"
            yield finding("scope_missing", fact, scope=key, repaired=key is not None, scope_pk=pk)
            return
        key = address(*columns[1:4])
        at: dict[str, Any] = {"scope": key, "scope_pk": pk}
        try:
            limits.check_scope(*read_scope(columns, None).key)
        except (*DAMAGE, InvalidInput) as cause:
            is_sound, belief = isinstance(cause, InvalidInput), None
            fact = "a scope has a name that no verb takes"
            if not is_sound:
                fact = "the row of a scope fails its checksum"
                belief = self._repair and mending.mend_scope(
                    self._transaction, columns, facts, self._ciphers
                )
            fact = f"{fact}; repair believes that {belief}" if belief else fact
            yield finding("scope_damaged", fact, repaired=bool(belief), **at)
            return
        cipher = self._cipher(key)
        # If someone without the key has changed it, that is not for repair to decide either.
        read = partial(read_scope, columns, cipher)
        record = yield from self._verified("keys_wrong", "the row of a scope", read, **at)
        if record is None:
            return
        fields = mending.wrong_fields(self._transaction, record, facts, cipher)
        if fields:
            if self._repair:
                mending.put_scope(self._transaction, record._replace(**fields), cipher)
            fact = "the row of a scope does not fit its snapshots, states and notes"
            names = ", ".join(fields)
            yield finding("scope_wrong", fact, repaired=self._repair, columns=names, **at)

    # Snapshots

    def snapshots(self, seq: int) -> Iterator[Finding]:
        columns = self._one("check_snapshots", seq)
        is_placed, pk, *names, head = columns[ROW_COLUMNS:]
        key, what = address(*names), "a snapshot"
        at: dict[str, Any] = {"scope": key, "id": id_or_none(columns[1]), "seq": seq}
        stored = yield from self._verified(
            "snapshot_damaged", what, lambda: verified_row(columns), **at
        )
        if stored is None or key is None:
            return  # also if its scope is missing, or has no name: that is reported
        if not stored.kept and head != seq:
            fact = "a snapshot that is not kept is not the head either"
            yield finding("draft_unreachable", fact, head=head, **at)
        if not is_placed:
            if self._repair:
                self._transaction.do("put_apart", (seq,))
            fact = "a snapshot does not stand just behind its parent, as it says"
            yield finding("index_wrong", fact, repaired=self._repair, **at)
        cipher = self._cipher(key)

        def read() -> tuple[Row, list[list[tuple[str, str]]]]:
            row = read_row(columns, key, cipher)
            return row, [cipher.labels(*each) for each in info_of(key, row).labels.items()]

        found = yield from self._verified("snapshot_damaged", what, read, **at)
        if found is None:
            yield from self._tail_sum(seq, pk, key, at)
            return
        yield from self._labels(*found, cipher, at)
        self._rows.setdefault(key, []).append(found[0])
        self.spent += found[0].size

    def _tail_sum(self, seq: int, pk: int, key: ScopeKey, at: dict[str, Any]) -> Iterator[Finding]:
        """The state of a snapshot that cannot be decrypted."""
        columns = self._transaction.one("check_tails", {"key": seq})
        if columns is None:
            return
        with suppress(WrongKeys):
            if read_tail(columns[:TAIL_COLUMNS], pk, key, PLAIN).encoding == DAMAGED:
                yield finding("state_damaged", "the state of a snapshot fails its checksum", **at)

    def _labels(
        self, row: Row, ways: list[list[tuple[str, str]]], cipher: Cipher, at: dict[str, Any]
    ) -> Iterator[Finding]:
        """The index of a snapshot's labels, of which the snapshot itself is the authority.

        With several keys a label may be stored in several ways.
        """
        found = {each[:2] for each in self._transaction.all("check_labels", {"key": row.seq})}
        if found <= {*chain(*ways)} and all(found.intersection(each) for each in ways):
            return
        if self._repair:
            self._remove_labels(row.seq)
            self._transaction.do_many("add_label", label_values(row, cipher))
        fact = "the index has other labels than the snapshot"
        yield finding("index_wrong", fact, repaired=self._repair, **at)

    def _remove_labels(self, seq: int) -> None:
        self._transaction.do("remove_labels", {"seqs": self._transaction.many([seq])})

    def labels(self, seq: int) -> Iterator[Finding]:
        for *_, has_snapshot in self._transaction.all("check_labels", {"key": seq})[:1]:
            if not has_snapshot:
                if self._repair:
                    self._remove_labels(seq)
                fact = "the index has labels of a snapshot that does not exist"
                yield finding("index_wrong", fact, repaired=self._repair, seq=seq)

    # States

    def states(self) -> Iterator[Finding]:
        """The states of the snapshots that were inspected. Each is read as a caller reads it."""
        for key, rows in self._rows.items():
            try:
                states = self._states(key)
            except Corrupt:
                continue  # the scope is reported
            with suppress(Corrupt):  # then one by one
                states.keep({row.seq: row.written_by for row in rows})
            for row in rows:
                at: dict[str, Any] = {"scope": key, "id": row.id, "seq": row.seq}
                read = partial(_decoded, states, row)
                yield from self._verified("state_damaged", "the state of a snapshot", read, **at)

    def _is_needed(self, first: int, last: int) -> bool:
        """Tell whether states that are no snapshot's may be needed.

        Others may build on them; and if any snapshot has no state, it may be one of them, under a
        wrong key.
        """
        built_on = self._transaction.one("a_state_built_on", {"first": first, "last": last})
        return built_on is not None or self._is_any_state_missing

    @cached_property
    def _is_any_state_missing(self) -> bool:
        return self._transaction.one("a_snapshot_without_state") is not None

    def tails(self, seq: int) -> Iterator[Finding]:
        pk, has_snapshot, *_ = self._one("check_tails", seq)[TAIL_COLUMNS:]
        if has_snapshot:
            return
        mends = self._repair and not self._is_needed(seq, seq)
        if mends:
            self._transaction.do("remove_tails", {"pk": pk, "seqs": self._transaction.many([seq])})
        yield finding("state_left", "a state belongs to no snapshot", repaired=mends, seq=seq)

    def segments(self, key: int) -> Iterator[Finding]:
        first, last, *_ = columns = self._one("check_segments", key)
        pk, overlaps, _, *names, _ = columns[SEGMENT_COLUMNS:]
        scope = address(*names)
        if scope is None:
            return  # that is reported
        at: dict[str, Any] = {"scope": scope, "first": first, "last": last}
        values = {"pk": pk, "first": first, "last": last}
        owned = {seq for (seq,) in self._transaction.all("snapshots_between", values)}

        def read() -> set[int]:
            segment = read_segment(columns[:SEGMENT_COLUMNS], pk, scope, self._cipher(scope))
            return {*Segment.parse(segment.blob).seqs}

        held = None
        if owned:
            held = yield from self._verified("state_damaged", "a segment of states", read, **at)
        if overlaps:
            yield finding("state_left", "a segment reaches into another one of its scope", **at)
        if not owned or (held and held - owned):
            mends = self._repair and not owned and not self._is_needed(first, last)
            if mends:
                gone = {"pk": pk, "seqs": self._transaction.many([last])}
                self._transaction.do("remove_segments", gone)
            fact = "a segment has states that belong to no snapshot"
            yield finding("state_left", fact, repaired=mends, **at)

    def shared(self, name: bytes) -> Iterator[Finding]:
        *columns, is_used = self._one("check_shared", name)
        at = {"session_id": columns[1], "name": name.hex()}
        if not is_used:
            named = self._repair and self._transaction.one("a_state_that_names", {"key": name})
            mends = self._repair and named is None  # else that one is damaged
            if mends:
                self._transaction.do("drop_shared", (name,))
            fact = "a state that forks shared belongs to none any more"
            yield finding("state_left", fact, repaired=mends, **at)
            return
        read = partial(read_shared, columns, self._cipher(address(columns[1], "", "")))
        yield from self._verified("state_damaged", "a state that forks share", read, **at)

    # Notes

    def notes(self, pk: int) -> Iterator[Finding]:
        columns = self._one("check_notes", pk)
        on_id, name, scope_pk = columns[0], columns[1], columns[NOTE_COLUMNS]
        key = address(*columns[-4:-1])
        at: dict[str, Any] = {"scope": key, "id": id_or_none(on_id), "name": name}

        def read() -> None:
            note_of(read_note(columns, scope_pk, key or ScopeKey("any"), self._cipher(key)))

        yield from self._verified("note_damaged", "a note", read, **at, note_pk=pk)


def _decoded(states: StateReader, row: Row) -> None:
    decode(states.of(row))


def check_some(
    rows: Inspector,
    transaction: Transaction,
    position: Position,
    limit: int,
    survive: Survive | None = None,
) -> tuple[list[Finding], Position | None]:
    """Inspect up to `limit` keys of one table; return findings and where to go on."""
    found: list[Finding] = []
    inspect = getattr(rows, position.table)

    def visit(key: Any) -> bool:
        found.extend(inspect(key))
        return rows.spent < _STATES_BYTES_MAX

    def note(cause: Exception, key: Any) -> None:
        if survive is None:
            raise cause
        found.extend(survive(cause, position, key))

    following = walk(transaction, position, limit, visit, note)
    try:
        found.extend(rows.states())
    except Exception as cause:
        note(cause, None)
    return found, following


def unlisted_scopes(transaction: Transaction) -> Iterator[Finding]:
    """Yield a finding for each scope that listings leave out."""
    for columns in transaction.each("all_scopes"):
        key = address(*columns[1:4])
        try:
            read_scope(columns, None)
        except DAMAGE:
            fact = "the row of a scope fails its checksum"
            yield finding("scope_damaged", fact, scope=key, scope_pk=columns[0])


def damage_of(rows: Inspector, transaction: Transaction, pk: int) -> Iterator[Finding]:
    """Yield a finding for each snapshot and each note that listings leave out as damaged."""
    every = {"pk": pk, "first": -SEQ_MAX, "last": SEQ_MAX}
    for (seq,) in transaction.all("snapshots_between", every):
        yield from (each for each in rows.snapshots(seq) if each.code in _UNREADABLE)
    for (key,) in transaction.all("notes_of_scope", {"pk": pk}):
        yield from rows.notes(key)


_UNREADABLE = ("snapshot_damaged", "keys_wrong")
