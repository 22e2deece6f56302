"""Inspecting the rows of the tables, one key at a time."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from limpet.backends.sql import repair as mending
from limpet.backends.sql.repair import DAMAGE
from limpet.backends.sql.tables import (
    SNAPSHOT_COLUMNS,
    Tables,
    is_text,
    listed_scope,
    read_note,
    read_row,
    sum_session,
    verified,
)
from limpet.backends.sql.transaction import Transaction
from limpet.core import findings, limits
from limpet.core.codec import SEALED, WHOLE, decode
from limpet.core.deltas.chain import BodyRow, Nonces, check_written_by, payload_of
from limpet.core.deltas.delta import Delta, parse, size_of
from limpet.core.encryption import Cipher, Ciphers, WrongKeys
from limpet.core.ids import SEQ_MAX
from limpet.core.notes import note_of
from limpet.core.rows import check_scope_sum, info_of, is_session_sound
from limpet.errors import Corrupt, InvalidInput
from limpet.model import Finding, ScopeKey

# What `check` can say about the tables of a store. docs/check.md explains every code.

SEVERITIES = {
    # The file
    "application_id_wrong": "error",
    "auto_vacuum_wrong": "warning",
    "file_damaged": "error",
    "foreign_object": "warning",
    "foreign_trigger": "warning",
    "index_missing": "warning",
    "journal_mode_wrong": "warning",
    "schema_differs": "error",
    "table_missing": "error",
    "user_version_wrong": "error",
    "watermark_missing": "error",
    # Sessions and scopes
    "floor_wrong": "error",
    "head_missing": "error",
    "name_wrong": "error",
    "next_seq_low": "warning",
    "scope_damaged": "error",
    "scope_without_session": "error",
    "session_damaged": "error",
    "session_empty": "info",
    "tip_wrong": "error",
    # Snapshots
    "apart_wrong": "error",
    "draft_unreachable": "warning",
    "label_missing": "error",
    "label_surplus": "warning",
    "label_without_snapshot": "warning",
    "snapshot_damaged": "error",
    "snapshots_without_scope": "error",
    # Bodies
    "base_missing": "error",
    "body_damaged": "error",
    "body_missing": "error",
    "body_not_json": "error",
    "body_size_wrong": "error",
    "body_without_snapshot": "warning",
    # Notes
    "note_damaged": "error",
    "notes_without_scope": "error",
    # Keys
    "keys_wrong": "error",
}


def finding(
    code: str,
    fact: str,
    *,
    scope: ScopeKey | None = None,
    id: str | None = None,
    repaired: bool = False,
    **values: object,
) -> Finding:
    severity = SEVERITIES[code]
    return findings.finding(severity, code, fact, scope=scope, id=id, repaired=repaired, **values)


def address(*names: str | None) -> ScopeKey | None:
    """Return the address that three names make, or None if no verb could take it."""
    match names:
        case (str(session_id), str(scope_id), str(kind)) if is_text(session_id, scope_id, kind):
            return ScopeKey(session_id, scope_id, kind)
    return None


def id_or_none(name: object) -> str | None:
    return name if isinstance(name, str) and is_text(name) else None


_ANYWHERE = ScopeKey("any")
_KNOWN_MAX = 10_000  # remembered at a time


class _Body(NamedTuple):
    """What is remembered of a body. The nonces are its own and those of what it is built from."""

    size: int
    base: int | None
    nonces: Nonces


class RowInspector:
    """Inspects the rows of one transaction. Each method inspects what belongs to one key.

    With `repair` it mends what can be mended on the way. `spent` counts the bytes of states read.
    """

    def __init__(self, transaction: Transaction, ciphers: Ciphers, *, repair: bool) -> None:
        self._transaction = transaction
        self._ciphers = ciphers
        self._tables = Tables(transaction, ciphers)
        self._bodies = self._tables.bodies
        self._known: dict[int, _Body] = {}
        self._grounded: set[int] = set()  # bodies that build on a whole one, however far below
        self._repair = repair
        self.spent = 0

    def _one(self, name: str, values: Any) -> Any:
        found = self._transaction.one(f"check.{name}", values)
        if found is None:  # the index has this key, but the table does not
            raise Corrupt("a row is not where its key says")
        return found

    def _at(self, seq: int) -> dict[str, Any]:
        """Return the address of a snapshot, as far as it has one."""
        found = self._transaction.one("check.address_of_snapshot", (seq,))
        *names, id = found or (None, None, None, None)
        return {"scope": address(*names), "id": id_or_none(id)}

    def _owner(self, name: str, key: int) -> tuple[ScopeKey, Cipher]:
        """Return the scope of a row, and the cipher of its session; without keys any will do."""
        names = self._transaction.one(f"check.{name}", (key,)) if self._ciphers.encrypts else None
        scope = address(*(names or ())[:3]) or _ANYWHERE
        return scope, self._ciphers.of(scope.session_id)

    def _keys_wrong(self, what: str, **at: Any) -> Iterator[Finding]:
        """Without keys it is as it should be that what is encrypted cannot be read."""
        if self._ciphers.encrypts:
            yield keys_wrong(what, **at)

    def watermark(self, _: int) -> Iterator[Finding]:
        """The row of `watermark`, which is missing."""
        if self._repair:
            self._transaction.do("check.restore_watermark")
        fact = "the last place that was given is not known, so that nothing can be saved"
        yield finding("watermark_missing", fact, repaired=self._repair)

    def owner(self, pk: int) -> Iterator[Finding]:
        """A scope that snapshots or notes name as theirs."""
        (exists,) = self._one("has_scope", (pk,))
        if exists:
            return
        snapshots, notes = self._one("owned", {"pk": pk})
        key = mending.restore_scope(self._transaction, pk) if self._repair else None
        counts = {"snapshots_without_scope": snapshots, "notes_without_scope": notes}
        for code, count in counts.items():
            if count:
                what = code.partition("_")[0]
                fact = f"{what} belong to a scope that does not exist"
                yield finding(
                    code, fact, scope=key, repaired=key is not None, scope_pk=pk, count=count
                )

    def scope(self, pk: int) -> Iterator[Finding]:
        facts = mending.scope_facts(self._transaction, pk)
        if not facts.has_session:
            session_id = None
            if self._repair:
                session_id = mending.restore_session(self._transaction, facts.session_pk)
            yield finding(
                "scope_without_session",
                "a scope belongs to a session that does not exist",
                scope=address(session_id, facts.scope_id, facts.kind),
                repaired=session_id is not None,
                scope_pk=pk,
                session_pk=facts.session_pk,
            )
            facts = mending.scope_facts(self._transaction, pk)
        is_named = True
        try:
            limits.check_scope(_ANYWHERE.session_id, facts.scope_id, facts.kind)
        except InvalidInput:
            is_named = False
            fact = "a scope has a name that no verb takes"
            yield finding("name_wrong", fact, scope_pk=pk, scope_id=facts.scope_id, kind=facts.kind)
        if facts.has_session and facts.is_session_sound and not facts.is_sound:
            yield self._damaged_scope(facts, is_named=is_named)
            facts = mending.scope_facts(self._transaction, pk)
        elif self._repair and facts.checksum is None and facts.has_session and is_named:
            mending.put_scope(self._transaction, facts)  # of a row from before version 3
        yield from self._scope_keys(facts)
        mends = self._repair and facts.is_sound
        found = list(_scope_columns(facts, repaired=mends))
        if found and mends:
            mending.settle_scope(self._transaction, facts)
        yield from found

    def _scope_keys(self, facts: mending.ScopeFacts) -> Iterator[Finding]:
        key = address(*facts.key)
        if key is None or not facts.is_sound:
            return
        cipher = self._ciphers.of(key.session_id)
        try:
            check_scope_sum(key, facts.summed, facts.checksum, cipher)
        except WrongKeys:
            if self._repair and mending.mend_sum(self._transaction, facts, cipher):
                fact = "one bit of the checksum of a scope was flipped: so it holds with the key"
                yield finding("scope_damaged", fact, scope=key, repaired=True, scope_pk=facts.pk)
                return
            yield from self._keys_wrong("the row of a scope", scope=key, scope_pk=facts.pk)

    def _damaged_scope(self, facts: mending.ScopeFacts, *, is_named: bool) -> Finding:
        belief = None
        if self._repair:
            belief = mending.mend_scope(self._transaction, facts, is_named=is_named)
        fact = "the row of a scope fails its checksum"
        fact = fact if belief is None else f"{fact}; repair believes that {belief}"
        key, is_mended = address(*facts.key), belief is not None
        return finding("scope_damaged", fact, scope=key, repaired=is_mended, scope_pk=facts.pk)

    def session(self, pk: int) -> Iterator[Finding]:
        session_id, checksum, has_scopes = self._one("session", (pk,))
        if not is_session_sound(session_id, pk, checksum):
            belief = None
            if self._repair:
                belief = mending.mend_session(self._transaction, pk, session_id, checksum)
            fact = "the row of a session fails its checksum"
            fact = fact if belief is None else f"{fact}; repair believes that {belief}"
            at = {"session_pk": pk, "session_id": session_id}
            yield finding("session_damaged", fact, repaired=belief is not None, **at)
            session_id, checksum, _ = self._one("session", (pk,))
        try:
            limits.check_id("session_id", session_id)
            if self._repair and checksum is None:
                sum_session(self._transaction, session_id, pk)  # of a row from before version 3
        except InvalidInput:
            fact = "a session has a name that no verb takes"
            yield finding("name_wrong", fact, session_pk=pk, session_id=session_id)
        if not has_scopes:
            fact = "a session has no scopes; to delete it is safe"
            yield finding("session_empty", fact, session_id=session_id)

    def snapshot(self, seq: int) -> Iterator[Finding]:
        """A row of `snapshots`, its labels, and that it has a body."""
        columns = self._one("snapshot", (seq,))
        has_scope, head_seq, has_body, is_placed = columns[SNAPSHOT_COLUMNS:]
        if not has_body:
            fact = "the state of a snapshot is missing"
            yield finding("body_missing", fact, **self._at(seq), seq=seq)
        labels, cipher = None, None
        try:
            row = verified(columns)
            key, cipher = self._owner("address_of_snapshot", seq)
            labels = set(info_of(key, read_row(columns, key, cipher)).labels.items())
        except WrongKeys:
            yield from self._keys_wrong("a snapshot", **self._at(seq), seq=seq)
        except DAMAGE:
            fact = "the facts of a snapshot fail their check"
            yield finding("snapshot_damaged", fact, **self._at(seq), seq=seq)
            return
        if has_scope and not row.kept and head_seq != seq:
            yield self._draft(columns[SNAPSHOT_COLUMNS - 1], seq, head_seq)
        if not is_placed:
            if self._repair:
                self._transaction.do("check.set_apart", (seq,))
            fact = "a snapshot does not stand just behind its parent, as it says"
            yield finding("apart_wrong", fact, **self._at(seq), repaired=self._repair, seq=seq)
        if labels is not None and cipher is not None:
            yield from self._labels(seq, labels, cipher)

    def _draft(self, pk: int, seq: int, head_seq: int | None) -> Finding:
        mended = False
        if self._repair and head_seq is None:
            facts = mending.scope_facts(self._transaction, pk)
            mended = facts.is_sound and mending.newest_draft(self._transaction, pk) == seq
            if mended:
                mending.put_scope(self._transaction, facts._replace(head_seq=seq))
        fact = "a snapshot that is not kept is not the head either"
        at = self._at(seq)
        return finding("draft_unreachable", fact, **at, repaired=mended, seq=seq, head_seq=head_seq)

    def _labels(self, seq: int, labels: set[tuple[str, str]], cipher: Cipher) -> Iterator[Finding]:
        """The index of a snapshot's labels, of which the snapshot itself is the authority."""
        indexed = set(self._transaction.all("check.labels_of", (seq,)))
        # With several keys a label may be stored in several ways.
        stored = {label: indexed.intersection(cipher.labels(*label)) for label in labels}
        missing = {label for label, found in stored.items() if not found}
        surplus = indexed.difference(*stored.values())
        if not missing and not surplus:
            return
        if self._repair:
            self._transaction.do("remove_labels", (seq,))
            again = [(*cipher.label(*label), seq) for label in labels]
            self._transaction.do_many("add_label", again)
        at = self._at(seq)
        for name, _ in sorted(missing):
            fact = "a label of a snapshot is not in the index"
            yield finding("label_missing", fact, **at, repaired=self._repair, name=name)
        for name, _ in sorted(surplus):
            fact = "the index has a label that the snapshot does not have"
            yield finding("label_surplus", fact, **at, repaired=self._repair, name=name)

    def body(self, seq: int) -> Iterator[Finding]:
        has_snapshot, size, base, has_base, is_base, is_head = self._one("body", (seq,))
        if not has_snapshot and not is_base:
            mended = self._repair and self._every_snapshot_has_its_body
            if mended:
                self._bodies.release([seq])
            fact = "a state belongs to no snapshot"
            yield finding("body_without_snapshot", fact, repaired=mended, seq=seq)
            return
        if not has_base:
            fact = "the state that another one builds on is missing"
            (above,) = self._one("count_above", (seq,))
            at = self._at(seq)
            yield finding("base_missing", fact, **at, seq=seq, base=base, dependents=above)
            return
        try:
            found, encoded = self._decoded(seq, whole=is_head)
        except WrongKeys:
            if not self._is_sound(seq):  # else it is what it builds on, which is reported itself
                yield from self._keys_wrong("the state of a snapshot", **self._at(seq), seq=seq)
            return
        except DAMAGE:
            if self._is_sound(seq) and not self._is_founded(seq):
                return  # what it builds on is damaged or missing, and reported as such
            fact = "the state of a snapshot fails its check"
            (above,) = self._one("count_above", (seq,))
            yield finding("body_damaged", fact, **self._at(seq), seq=seq, dependents=above)
            return
        try:
            if encoded is not None:
                decode(encoded)
        except DAMAGE:
            fact = "the state of a snapshot is not JSON"
            yield finding("body_not_json", fact, **self._at(seq), seq=seq, bytes=found)
            return
        if has_snapshot and size != found and self._is_whole(seq):
            fact = "the state of a snapshot has another size than the snapshot says"
            sizes = {"bytes": found, "size": size}
            yield finding("body_size_wrong", fact, **self._at(seq), seq=seq, **sizes)
        elif has_snapshot and not self._is_of_its_snapshot(seq):
            fact = "the state of a snapshot is not the one that the snapshot was written with"
            yield finding("body_damaged", fact, **self._at(seq), seq=seq)

    def _is_of_its_snapshot(self, seq: int) -> bool:
        """Tell whether a state, if it is encrypted, is of the write that its snapshot names."""
        nonces = self._body(seq).nonces
        if not nonces:
            return True
        columns = self._one("snapshot", (seq,))
        try:
            row = read_row(columns, *self._owner("address_of_snapshot", seq))
        except DAMAGE:
            return True  # that is reported
        return nonces[0] == row.written_by

    def _is_sound(self, seq: int) -> bool:
        """Tell whether a body by itself is what was stored."""
        try:
            self._opened(seq)
        except DAMAGE:
            return False
        return True

    def _is_founded(self, seq: int) -> bool:
        """Tell whether all that a body builds on is there and by itself what was stored."""
        below = self._bodies.links(seq)[1:]
        if not all(map(self._is_sound, below)):
            return False
        return not below or self._opened(below[-1])[0].base in (None, seq, *below)

    def _decoded(self, seq: int, *, whole: bool) -> tuple[int, bytes | None]:
        """Return the size of a state, and the state itself if it is stored or wanted whole.

        A delta is held against the size of what it builds on; to decode all states of a long
        history would take time in proportion to its square.
        """
        row, payload, step = self._opened(seq)
        if step is None:
            if row.base is not None:
                raise Corrupt("a whole state builds on nothing")
            return len(payload), payload
        if whole:
            encoded = self._bodies.read(seq)
            self.spent += len(encoded)
            return len(encoded), encoded
        below = self._body(row.base)
        check_written_by(seq, below.nonces, self._body(seq).nonces[1:])
        room = below.size
        if row.form == SEALED:
            room += self._body(below.base).size
        if any(
            start + count > room for start, count in zip(step.ops[::3], step.ops[1::3], strict=True)
        ):
            raise Corrupt("a delta does not fit its base")
        self._check_ground(seq)
        return size_of(step), None

    def _check_ground(self, seq: int) -> None:
        """Raise Corrupt if bodies build on each other in a circle: each of them fits the next."""
        passed: set[int] = set()
        at: int | None = seq
        while at is not None and at not in self._grounded:
            if at in passed:
                raise Corrupt("a state builds on itself")
            passed.add(at)
            at = self._body(at).base
        self._grounded |= passed

    def _opened(self, seq: int) -> tuple[BodyRow, bytes, Delta | None]:
        row = self._bodies.row(seq)
        if row is None:
            raise Corrupt("a body is missing")
        self._bodies.cipher = self._cipher_of(seq)
        payload, nonces = payload_of(row, self._bodies.cipher)
        self.spent += len(payload)
        step = None if row.form == WHOLE else parse(payload)
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
            self._grounded.clear()
        size = len(payload) if step is None else size_of(step)
        self._known[seq] = _Body(size, row.base, nonces)
        return row, payload, step

    def _cipher_of(self, seq: int) -> Cipher:
        scope, cipher = self._owner("address_of_snapshot", seq)
        if scope is _ANYWHERE:  # no snapshot's: as what builds on it
            for (pk,) in self._transaction.all("scopes_above", (seq,))[:1]:
                _, cipher = self._owner("address_of_scope", pk)
        return cipher

    def _body(self, seq: int | None) -> _Body:
        if seq is None:
            return _Body(0, None, ())
        if seq not in self._known:
            self._opened(seq)
        return self._known[seq]

    @cached_property
    def _every_snapshot_has_its_body(self) -> bool:
        """If not, a body that is no snapshot's may be the missing one under a wrong key."""
        lacking = self._transaction.one("check.a_snapshot_without_body")
        return lacking is None

    def _is_whole(self, seq: int) -> bool:
        try:
            verified(self._one("snapshot", (seq,)))
        except DAMAGE:
            return False
        return True

    def label(self, seq: int) -> Iterator[Finding]:
        (exists,) = self._one("has_snapshot", (seq,))
        if not exists:
            if self._repair:
                self._transaction.do("remove_labels", (seq,))
            fact = "the index has labels of a snapshot that does not exist"
            yield finding("label_without_snapshot", fact, repaired=self._repair, seq=seq)

    def note(self, pk: int) -> Iterator[Finding]:
        on_id, name, *_, scope_pk = columns = self._one("note", (pk,))
        try:
            note_of(read_note(columns, *self._owner("address_of_scope", scope_pk)))
        except DAMAGE as cause:
            names = self._transaction.one("check.address_of_scope", (scope_pk,))
            at: dict[str, Any] = {"scope": address(*(names or ())), "name": name, "note_pk": pk}
            at["id"] = id_or_none(on_id) or None
            if isinstance(cause, WrongKeys):
                yield from self._keys_wrong("a note", **at)
            else:
                yield finding("note_damaged", "a note fails its check", **at)


def _scope_columns(facts: mending.ScopeFacts, *, repaired: bool) -> Iterator[Finding]:
    """What the columns of a scope say of its snapshots."""
    key = address(*facts.key)
    at: dict[str, Any] = {"scope": key, "repaired": repaired, "scope_pk": facts.pk}
    if facts.head_is_wrong:
        fact = "the head of a scope is no snapshot of it"
        yield finding("head_missing", fact, **at, head_seq=facts.head_seq)
    if facts.tip_is_wrong:
        fact = "the tip of a scope is not its newest kept snapshot"
        seqs: dict[str, Any] = {"tip_seq": facts.tip_seq, "newest_kept": facts.newest_kept}
        yield finding("tip_wrong", fact, **at, **seqs)
    if facts.next_seq_is_low:
        fact = "the next place of a scope is not above all that it has given"
        yield finding("next_seq_low", fact, **at, next_seq=facts.next_seq, newest=facts.newest)
    if facts.floor_is_wrong:
        fact = "the greatest id made in a scope is not one"
        yield finding("floor_wrong", fact, **at, floor=facts.floor)


def keys_wrong(what: str, **at: Any) -> Finding:
    return finding("keys_wrong", f"{what} cannot be read with the keys that are given", **at)


def unlisted_scopes(tables: Tables) -> Iterator[Finding]:
    """Yield a finding for each scope that listings leave out: it or its session is damaged."""
    for session_pk, session_checksum, *columns in tables.transaction.each("check.all_scopes"):
        is_listed = listed_scope(tuple(columns)) is not None
        if not is_listed or not is_session_sound(columns[0], session_pk, session_checksum):
            fact = "the row of a scope, or of its session, fails its checksum"
            key = address(*columns[:3])
            yield finding("scope_damaged", fact, scope=key, scope_pk=columns[3])


def damage_of(tables: Tables, key: ScopeKey) -> Iterator[Finding]:
    """Yield a finding for each snapshot and each note that listings leave out as damaged."""
    scope = tables.scope(key)
    if scope is None:
        return
    every = {"status": None, "id": None, "leaves": False, "labels": "{}", "before": SEQ_MAX}
    values = {**key._asdict(), "pk": scope.pk, "limit": None}
    for columns in tables.transaction.each("history_of_scope", {**values, **every}):
        try:
            info_of(key, read_row(columns, key, scope.cipher))
        except WrongKeys:
            yield keys_wrong("a snapshot", scope=key, id=id_or_none(columns[1]))
        except Corrupt:
            fact = "a snapshot fails its check"
            yield finding("snapshot_damaged", fact, scope=key, id=id_or_none(columns[1]))
    for columns in tables.transaction.each("all_notes", {**values, "on": "", "after": ""}):
        on_id, name, *_ = columns
        id = id_or_none(on_id) or None  # a note on the scope itself has none
        try:
            note_of(read_note(columns, key, scope.cipher))
        except WrongKeys:
            yield keys_wrong("a note", scope=key, id=id, name=name)
        except Corrupt:
            yield finding("note_damaged", "a note fails its check", scope=key, id=id, name=name)
