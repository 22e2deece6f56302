"""Inspecting the rows of the tables, a bounded part at a time, and mending what can be mended."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, Protocol

from limpet.backends.sql import mending
from limpet.backends.sql.columns import (
    ROW_COLUMNS,
    SCOPE_COLUMNS,
    label_values,
    read_note,
    read_row,
    read_scope,
    read_segment,
    read_shared,
    read_tail,
    segment_values,
    verified_row,
)
from limpet.backends.sql.mending import DAMAGE, Facts
from limpet.backends.sql.reader import is_text
from limpet.backends.sql.transaction import Transaction
from limpet.backends.sql.walking import Position, walk
from limpet.core import findings, limits, segments
from limpet.core.codec import decode
from limpet.core.encryption import PLAIN, Cipher, Ciphers, WrongKeys
from limpet.core.ids import SEQ_MAX
from limpet.core.limits import MIB
from limpet.core.notes import note_of
from limpet.core.rows import Row, info_of
from limpet.core.segments import Segment
from limpet.errors import Corrupt, InvalidInput
from limpet.model import Finding, ScopeKey
from limpet.storage import DAMAGED, ScopeRecord, SegmentRow

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


def finding(code: str, fact: str, **values: Any) -> Finding:
    return findings.finding(SEVERITIES[code], code, fact, **values)


def keys_wrong(what: str, **at: Any) -> Finding:
    return finding("keys_wrong", f"{what} cannot be read with the keys that are given", **at)


class StateReader(Protocol):
    """Reads the states of a scope, as the engine does."""

    def keep(self, wanted: Mapping[int, str]) -> None: ...

    def of(self, row: Row) -> bytes: ...


Survive = Callable[[Exception, Position, Any], list[Finding]]
"""Returns what to say of an error at a key of a table (None: of the table), or raises it."""


class _Owner(NamedTuple):
    """The scope of a row, as far as there is one."""

    pk: int | None
    session_id: str
    scope_id: str
    kind: str
    head: int | None

    @property
    def key(self) -> ScopeKey | None:
        return address(*self[1:4])


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

    def _keys_wrong(self, what: str, **at: Any) -> Iterator[Finding]:
        """Without keys it is as it should be that what is encrypted cannot be read."""
        if self._ciphers.encrypts:
            yield keys_wrong(what, **at)

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
        try:
            record = read_scope(columns, cipher)
        except Corrupt:  # also if someone without the key has changed it
            yield from self._keys_wrong("the row of a scope", **at)
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
        is_placed, owner = columns[ROW_COLUMNS], _Owner(*columns[ROW_COLUMNS + 1 :])
        key, cipher = owner.key, self._cipher(owner.key)
        at: dict[str, Any] = {"scope": key, "id": id_or_none(columns[1]), "seq": seq}
        row = None
        try:
            is_kept = verified_row(columns).kept
            row = read_row(columns, key or ScopeKey("any"), cipher)
            labels = info_of(key or ScopeKey("any"), row).labels.items()
        except WrongKeys:
            yield from self._keys_wrong("a snapshot", **at)
        except DAMAGE:
            yield finding("snapshot_damaged", "the facts of a snapshot fail their check", **at)
            return
        if owner.pk is None or key is None:
            return  # that is reported
        if not is_kept and owner.head != seq:
            fact = "a snapshot that is not kept is not the head either"
            yield finding("draft_unreachable", fact, head=owner.head, **at)
        if not is_placed:
            if self._repair:
                self._transaction.do("put_apart", (seq,))
            fact = "a snapshot does not stand just behind its parent, as it says"
            yield finding("index_wrong", fact, repaired=self._repair, **at)
        if row is None:
            yield from self._tail_sum(seq, owner, at)
            return
        yield from self._labels(row, [cipher.labels(*label) for label in labels], cipher, at)
        self._rows.setdefault(key, []).append(row)
        self.spent += row.size

    def _tail_sum(self, seq: int, owner: _Owner, at: dict[str, Any]) -> Iterator[Finding]:
        """The state of a snapshot that cannot be decrypted."""
        columns = self._transaction.one("check_tails", {"key": seq})
        with suppress(WrongKeys):
            if columns is not None and owner.pk is not None and owner.key is not None:
                tail = read_tail(columns[:5], owner.pk, owner.key, PLAIN)
                if tail.encoding == DAMAGED:
                    fact = "the state of a snapshot fails its checksum"
                    yield finding("state_damaged", fact, **at)

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
                try:
                    decode(states.of(row))
                except WrongKeys:
                    yield from self._keys_wrong("the state of a snapshot", **at)
                except DAMAGE as cause:
                    why = str(cause).partition(". ")[0] if isinstance(cause, Corrupt) else "no JSON"
                    fact = "the state of a snapshot cannot be read"
                    yield finding("state_damaged", fact, **at, why=why)

    @cached_property
    def _every_snapshot_has_a_state(self) -> bool:
        """If not, a state that is no snapshot's may be the missing one under a wrong key."""
        return self._transaction.one("a_snapshot_without_state") is None

    def tails(self, seq: int) -> Iterator[Finding]:
        pk, has_snapshot = self._one("check_tails", seq)[5:7]
        if has_snapshot:
            return
        mends = self._repair and self._every_snapshot_has_a_state
        if mends:
            self._transaction.do("remove_tails", {"pk": pk, "seqs": self._transaction.many([seq])})
        yield finding("state_left", "a state belongs to no snapshot", repaired=mends, seq=seq)

    def segments(self, key: int) -> Iterator[Finding]:
        first, last, *_ = columns = self._one("check_segments", key)
        pk, overlaps, owner = columns[4], columns[5], _Owner(*columns[6:])
        scope, left = owner.key, set[int]()
        if owner.pk is None or scope is None:
            return  # that is reported
        at: dict[str, Any] = {"scope": scope, "first": first, "last": last}
        values = {"pk": pk, "first": first, "last": last}
        between = {seq for (seq,) in self._transaction.all("snapshots_between", values)}
        row = None
        try:
            row = read_segment(columns[:4], pk, scope, self._cipher(scope))
            left = {*Segment.parse(row.blob).seqs} - between
        except WrongKeys:
            yield from self._keys_wrong("the states of a segment", **at)
            return
        except DAMAGE:
            if between:
                fact = "a segment fails its check: the states in it cannot be read"
                yield finding("state_damaged", fact, **at, snapshots=len(between))
        if overlaps:
            fact = "a segment reaches into another one of its scope"
            yield finding("state_left", fact, **at)
        if left or not between:
            mends = self._repair and self._every_snapshot_has_a_state
            mends = mends and self._drop_states(scope, row, last, left)
            fact = "a segment has states that belong to no snapshot"
            yield finding("state_left", fact, repaired=mends, **at, count=len(left))

    def _drop_states(
        self, key: ScopeKey, row: SegmentRow | None, last: int, left: set[int]
    ) -> bool:
        """Remove states from a segment, or a damaged segment that no snapshot needs."""
        record, cipher = self._record(key), self._cipher(key)
        if record is None:
            return False
        gone = {"pk": record.pk, "seqs": self._transaction.many([last])}
        made = None if row is None else segments.edit(Segment.parse(row.blob), left, {})
        self._transaction.do("remove_segments", gone)
        if row is not None and made is not None:
            nonces = {seq: nonce for seq, nonce in row.nonces.items() if seq not in left}
            rest = SegmentRow(made.oldest_seq, made.newest_seq, made.dump(), nonces)
            self._transaction.do("put_segment", segment_values(rest, record.pk, key, cipher))
        # A roll that was worked out before must not write them again.
        return mending.put_scope(self._transaction, record, cipher)

    def _record(self, key: ScopeKey) -> ScopeRecord | None:
        found = self._transaction.one("scope", (key.session_id, key.kind, key.scope_id))
        with suppress(Corrupt):
            return None if found is None else read_scope(found, self._cipher(key))
        return None

    def shared(self, name: bytes) -> Iterator[Finding]:
        *columns, is_used = self._one("check_shared", name)
        at = {"session_id": columns[1], "name": name.hex()}
        if not is_used:
            if self._repair:
                self._transaction.do("drop_shared", (name,))
            fact = "a state that forks shared belongs to none any more"
            yield finding("state_left", fact, repaired=self._repair, **at)
            return
        try:
            read_shared(columns, self._cipher(address(columns[1], "", "")))
        except WrongKeys:
            yield from self._keys_wrong("a state that forks share", **at)
        except DAMAGE:
            fact = "a state that forks share fails its check"
            yield finding("state_damaged", fact, **at)

    # Notes

    def notes(self, pk: int) -> Iterator[Finding]:
        on_id, name, *_ = columns = self._one("check_notes", pk)
        owner = _Owner(*columns[8:])
        at: dict[str, Any] = {"scope": owner.key, "id": id_or_none(on_id), "name": name}
        try:
            key = owner.key or ScopeKey("any")
            note_of(read_note(columns, columns[7], key, self._cipher(owner.key)))
        except WrongKeys:
            yield from self._keys_wrong("a note", **at)
        except DAMAGE:
            yield finding("note_damaged", "a note fails its check", **at, note_pk=pk)


def check_some(
    rows: "Inspector",
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
