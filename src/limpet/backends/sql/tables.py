"""The tables inside one transaction: rows in, rows out, each verified.

A file has one writer at a time; a server has many, who lock what they change. What differs between
the two are the methods that say so, which an engine may replace.
"""

from collections.abc import Collection, Iterator, Sequence
from types import NoneType
from typing import Any, NamedTuple, TypeAlias

from limpet.backends.sql.bodies import Bodies
from limpet.backends.sql.transaction import Transaction
from limpet.core import codec
from limpet.core.deltas.chain import BodyRow, ChainState, parse_chain_state
from limpet.core.encryption import NO_KEYS, PLAIN, Cipher, Ciphers
from limpet.core.leases import LeaseRow
from limpet.core.notes import NoteRow, decrypted_note, encrypted_note, note_checksum, verify_note
from limpet.core.rows import (
    EMPTY,
    ROW_COLUMNS,
    Row,
    check_scope_sum,
    decrypted,
    encrypted,
    row_checksum,
    scope_checksum,
    session_checksum,
    verify_row,
)
from limpet.errors import Corrupt
from limpet.model import ScopeKey, SnapshotRef
from limpet.protocol import Commit, Stamp

# How many columns the statements select of each. They come in the order of the type of the row.
_ROW_COLUMNS = len(ROW_COLUMNS)
SNAPSHOT_COLUMNS = _ROW_COLUMNS + 2  # with its checksum and the key of its scope
_NOTE_ROW_COLUMNS = len(NoteRow._fields)
NOTE_COLUMNS = _NOTE_ROW_COLUMNS + 2  # with its checksum and the key of its scope
_SCOPE_TYPES: tuple[tuple[type, ...], ...] = (
    (int,),  # pk
    (int, NoneType),  # head_seq
    (int, NoneType),  # tip_seq
    (int,),  # next_seq
    (str,),  # floor
    (str, NoneType),  # fence
    (str, NoneType),  # lease_owner
    (int, NoneType),  # lease_until
    (int, NoneType),  # fork_group
    (int, NoneType),  # checksum
    (bytes, NoneType),  # codec
    (bytes,),  # stamps
    (int, NoneType),  # now
)
_SCOPE_COLUMNS = len(_SCOPE_TYPES)
SUMMED_COLUMNS = 9  # the first, which the checksum covers
SCOPE_SUM_COLUMNS = SUMMED_COLUMNS + 1  # with the checksum, just behind them
_sound_types: set[tuple[type, ...]] = set()
_NOT_READ = (None,) * 7  # by the statement `scope`: the last seq, its time, a body


NotePlace: TypeAlias = tuple[str, str]
"""The snapshot id that a note is attached to, "" for the scope itself; and its name."""


class ScopeRow(NamedTuple):
    """A row of `scopes`, and what the statements `scope` and `scope_to_commit` read with it."""

    key: ScopeKey
    pk: int
    head_seq: int | None = None
    tip_seq: int | None = None
    next_seq: int = 1
    floor: str = ""
    fence: str | None = None
    lease_owner: str | None = None
    lease_until: int | None = None
    fork_group: int | None = None  # column `family`: of scopes that may share states
    checksum: int | None = None  # over all before it
    codec: bytes | None = None
    stamps: bytes = b""  # the nonces of its last changes
    now: int | None = None  # the clock of the server
    # Its head, not verified yet, and as it is stored.
    shown: Row | None = None
    shown_checksum: int = 0
    # The greatest seq of the whole store, and its logical time; only to commit.
    last_seq: int | None = None
    last_saved_at: int | None = None
    # The body of its head; only to commit. Its `body` is None if it is large.
    top: BodyRow | None = None
    cipher: Cipher = PLAIN  # of its session

    @property
    def chain(self) -> ChainState | None:
        """What it remembers of the body it stored last."""
        return parse_chain_state(self.codec, self.pk, self.cipher)

    def dumped(self, chain: ChainState | None) -> bytes | None:
        """Return a chain for the column `codec`."""
        return None if chain is None else chain.dump(self.pk, self.cipher)

    def summed(self) -> "ScopeRow":
        """Return it with its right checksum, to be written."""
        checksum = scope_checksum(self.key, self[1 : 1 + SUMMED_COLUMNS], self.cipher)
        columns = (*self[: 1 + SUMMED_COLUMNS], checksum, *self[2 + SUMMED_COLUMNS :])
        return ScopeRow._make(columns)

    @property
    def lease(self) -> LeaseRow | None:
        if self.fence is None:
            return None
        return LeaseRow(self.fence, self.lease_owner or "", self.lease_until or 0)


def scope_row(
    key: ScopeKey, columns: tuple[Any, ...], cipher: Cipher, *, is_sound: bool = True
) -> ScopeRow:
    """Return a scope from the columns of `scope`, or of `scope_to_commit`, which has more.

    Without `is_sound` it may be damaged: only its key is used, to delete it.
    """
    if is_sound or type(columns[0]) is not int:
        check_scope(key, columns, cipher)
    head = columns[_SCOPE_COLUMNS:]
    shown = None if head[0] is None else Row(*head[:_ROW_COLUMNS])
    last_seq, last_saved_at, *top = head[_ROW_COLUMNS + 1 :] or _NOT_READ
    body = None if top[0] is None else BodyRow._make(top)
    facts = (shown, head[_ROW_COLUMNS], last_seq, last_saved_at, body, cipher)
    return ScopeRow._make((key, *columns[:_SCOPE_COLUMNS], *facts))


def check_scope(key: ScopeKey, columns: tuple[Any, ...], cipher: Cipher | None = None) -> None:
    """Raise Corrupt unless the columns, all of a scope or the summed ones, are what was stored.

    Without a cipher it is not asked who wrote them.
    """
    found = tuple(map(type, columns[:_SCOPE_COLUMNS]))
    if found not in _sound_types:
        if not all(map(tuple.__contains__, _SCOPE_TYPES, found)):
            raise Corrupt(f"the row of a scope is damaged. pk=`{columns[0]}`")
        _sound_types.add(found)
    check_scope_sum(key, columns[:SUMMED_COLUMNS], columns[SUMMED_COLUMNS], cipher)


def listed_scope(columns: tuple[Any, ...]) -> ScopeKey | None:
    """Return the name of a scope, which comes before its summed columns; None if it is damaged."""
    try:
        key = ScopeKey._make(columns[:3])
        check_scope(key, columns[3:])
    except Corrupt:
        return None
    return key if is_text(*key) else None  # an old row has no checksum


class Tables:
    """What one transaction can do. Asking for a damaged row raises Corrupt."""

    def __init__(
        self, transaction: Transaction, ciphers: Ciphers = NO_KEYS, bodies: Bodies | None = None
    ) -> None:
        self.transaction = transaction
        self.ciphers = ciphers
        self.added: Row | None = None  # the last snapshot
        self.moved: ScopeRow | None = None  # the scope as a commit left it
        self.bodies = bodies or Bodies(transaction)

    # Scopes

    def scope(self, key: ScopeKey, *, is_sound: bool = True) -> ScopeRow | None:
        cipher = self.use_cipher(key.session_id)
        found = self.transaction.one("scope", key._asdict())
        return None if found is None else scope_row(key, found, cipher, is_sound=is_sound)

    def use_cipher(self, session_id: str) -> Cipher:
        """Take states for those of a session from now on; return its cipher."""
        self.bodies.cipher = self.ciphers.of(session_id)
        return self.bodies.cipher

    def scope_to_change(self, key: ScopeKey, *, is_sound: bool = True) -> ScopeRow | None:
        """Return a scope that no other writer changes before this transaction ends.

        Nor does any change what builds on its states. Without `is_sound` it may be damaged.
        """
        return self.scope(key, is_sound=is_sound)

    def scope_to_note(self, key: ScopeKey) -> ScopeRow | None:
        """Return a scope whose notes no other writer changes before this transaction ends."""
        return self.scope(key)

    def scope_and_notes(
        self, key: ScopeKey, places: Sequence[NotePlace]
    ) -> tuple[ScopeRow | None, list[NoteRow | None]]:
        """Return such a scope, and the notes that are to be changed, None where there is none."""
        if len(places) == 1:
            scope, note = self._scope_and_note(key, *places[0])
            return scope, [note]
        scope = self.scope_to_note(key)
        if scope is None:
            return None, [None] * len(places)
        if len({on for on, _ in places}) > 1:
            return scope, [self.note(scope, *each) for each in places]
        names = self.transaction.many(name for _, name in places)
        asked = {**key._asdict(), "on": places[0][0], "names": names}
        rows = self.transaction.all("notes_in_scope", asked)
        found = {row.name: row for row in (read_note(each, key, scope.cipher) for each in rows)}
        return scope, [found.get(name) for _, name in places]

    def _scope_and_note(
        self, key: ScopeKey, on: str, name: str
    ) -> tuple[ScopeRow | None, NoteRow | None]:
        asked = {**key._asdict(), "on": on, "name": name}
        found = self.transaction.one("scope_and_note", asked)
        if found is None:
            return None, None
        summed, is_there, note = (
            found[:SCOPE_SUM_COLUMNS],
            found[SCOPE_SUM_COLUMNS],
            found[SCOPE_SUM_COLUMNS + 1 :],
        )
        cipher = self.ciphers.of(key.session_id)
        check_scope(key, summed, cipher)
        scope = ScopeRow(key, *summed)._replace(cipher=cipher)
        return scope, _note_named(scope, on, name, (*note, scope.pk)) if is_there else None

    def scope_to_fork(self, key: ScopeKey) -> ScopeRow | None:
        """Return a scope from which a fork may begin: its states stay until it has."""
        return self.scope(key)

    def source(self, ref: SnapshotRef) -> tuple[ScopeRow | None, Row | None]:
        """Return such a scope, and the snapshot that a fork begins at."""
        own = self.bodies.cipher
        scope = self.scope_to_fork(ref.scope)
        self.bodies.cipher = own
        return scope, None if scope is None else self.named(scope, ref.id)

    def scope_and_head(self, key: ScopeKey) -> ScopeRow | None:
        """Return a scope with its head, also the state of that if it is not large."""
        cipher = self.use_cipher(key.session_id)
        found = self.transaction.one("scope_to_commit", key._asdict())
        return None if found is None else scope_row(key, found, cipher)

    def scope_to_commit(self, commit: Commit) -> ScopeRow | None:
        """Return a scope with all that a commit needs to know."""
        return self.scope_and_head(commit.scope)

    def lock_fork_group(self, scope: ScopeRow) -> None:
        """Keep others from building on the states of a scope, as its forks may."""

    def join_fork_group(self, scope: ScopeRow, origin: ScopeRow) -> ScopeRow:
        """Remember that a scope is about to build on states of another; return it."""
        return scope

    def add_scope(self, key: ScopeKey) -> ScopeRow:
        """Add a scope. Its checksum is stored with the next change of its row, which must come."""
        add_session(self.transaction, key.session_id)
        ((pk,),) = self.transaction.all("add_scope", key._asdict())
        found = self.scope(key, is_sound=False)  # it has no checksum yet
        if found is None or found.pk != pk:
            raise Corrupt("the index of scopes does not lead to a new one")
        return ScopeRow(key, pk, cipher=found.cipher)

    def add_scope_for_notes(self, key: ScopeKey) -> ScopeRow:
        scope = self.add_scope(key).summed()
        self.transaction.do("sum_scope", (scope.checksum, scope.pk))
        return scope

    def move_scope(self, scope: ScopeRow) -> None:
        """Store the columns of a scope that a commit may change."""
        scope = scope.summed()
        self.transaction.do("move_scope", moved_values(scope))
        self._remember(scope)

    def _remember(self, scope: ScopeRow) -> None:
        self.moved = None if self.added is None else scope

    def forget_chains(self, pk: int) -> None:
        """Let the session of a scope forget its chains: the next saves read what they build on."""
        self.transaction.do("forget_chains", (pk,))

    def is_taken(self, scope: ScopeRow) -> bool:
        held = (scope.head_seq, scope.tip_seq, scope.fence)
        if any(each is not None for each in held):
            return True
        return self.transaction.one("has_notes", (scope.pk,)) is not None

    def uncover(self, scope: ScopeRow, removed: Collection[int]) -> None:
        """Make the newest kept snapshot the tip, and the head if that was removed."""
        (tip_seq,) = self.transaction.one("newest_kept", (scope.pk,))
        head_seq = tip_seq if scope.head_seq in removed else scope.head_seq
        left = scope._replace(head_seq=head_seq, tip_seq=tip_seq).summed()
        self.transaction.do("uncover", (head_seq, tip_seq, left.checksum, scope.pk))

    def detach(self, pk: int, what: str) -> None:
        """Make sure that no state outside a `scope` or its `session` builds on one of its own."""
        (is_base,) = self.transaction.one(f"{what}_is_base", {"pk": pk})
        if is_base and self.bodies.remove(
            seq for (seq,) in self.transaction.all("seqs_of_scope", (pk,))
        ):
            self.forget_chains(pk)

    def remove_scopes(self, pks: Sequence[int]) -> int:
        """Remove scopes with all they hold; return the number of snapshots."""
        below = {seq for pk in pks for (seq,) in self.transaction.all("unlisted_bases", (pk,))}
        count = 0
        for pk in pks:
            self.transaction.do("remove_scope_bodies", (pk,))
            count += self.transaction.count("remove_snapshots_of", (pk,))
            self.transaction.do("remove_scope", (pk,))
        self.bodies.release(below)
        return count

    def session_to_remove(self, session_id: str) -> list[int]:
        """Return the keys of a session's scopes; no other writer adds or changes one."""
        self.use_cipher(session_id)
        return [pk for (pk,) in self.transaction.all("session_scopes", (session_id,))]

    def remove_empty_session(self, session_id: str) -> None:
        self.transaction.do("remove_empty_session", (session_id,))

    def put_lease(self, scope: ScopeRow, lease: LeaseRow | None) -> ScopeRow:
        fence, owner, until = lease or (None, None, None)
        left = scope._replace(fence=fence, lease_owner=owner, lease_until=until).summed()
        self.transaction.do("put_lease", (fence, owner, until, left.checksum, scope.pk))
        return left

    # Snapshots

    def next_seq_and_time(self, scope: ScopeRow | None, stamp: Stamp) -> tuple[int, int]:
        """Return the seq of a new snapshot, greater than all before, and its logical time."""
        if scope is None or scope.last_seq is None or scope.last_saved_at is None:
            return next_place(scope, *self.last_seq_and_time())
        return next_place(scope, scope.last_seq, scope.last_saved_at)

    def last_seq_and_time(self) -> tuple[int, int]:
        """Return the greatest seq ever given and its logical time; (0, -1) in a new store."""
        return _last(*(self.transaction.one("last_seq_and_time") or (None, None)))

    def save_last_seq(self) -> None:
        """Remember the greatest seq ever given, before snapshots are removed."""
        self.transaction.do("save_last_seq", self.last_seq_and_time())

    def head(self, scope: ScopeRow) -> Row | None:
        if scope.shown is None:
            if scope.head_seq is not None:
                raise Corrupt(f"the head of a scope is missing. seq=`{scope.head_seq}`")
            return None
        row = verify_row(scope.shown, scope.pk, scope.shown_checksum)
        return decrypted(row, scope.key, scope.cipher)

    def named(self, scope: ScopeRow, snapshot_id: str | None) -> Row | None:
        if snapshot_id is None:
            return self.head(scope)
        return with_id(snapshot_id, self.row("snapshot_by_id", scope, snapshot_id))

    def existing(self, scope: ScopeRow, snapshot_id: str) -> Row | None:
        return self.row("existing_snapshot", scope, snapshot_id)

    def newest_kept(self, scope: ScopeRow) -> Row | None:
        if scope.tip_seq is None:
            return None
        return self.row("snapshot_by_seq", scope, scope.tip_seq)

    def row(self, name: str, scope: ScopeRow, value: str | int) -> Row | None:
        found = self.transaction.one(name, (scope.pk, value))
        if found is None:
            return None
        # The checksum covers the key of its scope: a row that an index got wrong fails.
        columns = (*found[:_ROW_COLUMNS], found[_ROW_COLUMNS], scope.pk)
        return read_row(columns, scope.key, scope.cipher)

    def seq_and_size(self, scope: ScopeRow, snapshot_id: str) -> tuple[int, int] | None:
        """Return the place and the size of a snapshot that need not be intact."""
        found = self.transaction.one("seq_and_size", (scope.pk, snapshot_id))
        if found is None:
            return None
        seq, size = found
        return seq, size if type(size) is int else 0

    def insert(self, scope: ScopeRow, row: Row, head: Row | None) -> None:
        """Add a snapshot with its labels. `head` is what the scope shows until now."""
        self.added = row
        self.transaction.do("add_snapshot", snapshot_values(scope, row, head))
        self._add_labels(scope, row)

    def replace(self, scope: ScopeRow, before: Row | None, row: Row) -> None:
        """Store another version of a snapshot; `before` is what it was, if that is known."""
        stored = encrypted(row, scope.key, scope.cipher)
        values = {**stored._asdict(), "checksum": row_checksum(stored, scope.pk)}
        self.transaction.do("replace_snapshot", values)
        # What was encrypted with an older key gets the current one now, and so must its labels.
        is_again = scope.cipher is not PLAIN and row.labels != EMPTY
        if before is None or row.labels != before.labels or is_again:
            self.transaction.do("remove_labels", (row.seq,))
            self._add_labels(scope, row)

    def remove(self, scope: ScopeRow, seq: int) -> None:
        """Remove a snapshot and its labels; its body is removed apart."""
        self.transaction.do("set_apart", {"pk": scope.pk, "seq": seq})
        self.transaction.do("remove_snapshot", (seq,))

    def remove_bodies(self, scope: ScopeRow, seqs: Collection[int]) -> None:
        """Remove the states of snapshots of a scope; what builds on them stays readable."""
        chain = scope.chain
        if self.bodies.remove(seqs):
            self.forget_chains(scope.pk)
        elif chain is not None and chain.seq in seqs:
            self.transaction.do("forget_chain", (scope.pk,))

    def drop_unlisted(self, after: int) -> int | None:
        """Remove a state that is no snapshot's; return where to go on, None at the end."""
        found = self.transaction.one("unlisted", {"after": after})
        if found is None:
            return None
        seq = int(found[0])
        above = self.transaction.all("scopes_above", (seq,))
        for (pk,) in above[:1]:  # all of them are in one session
            session_id, *_ = self.transaction.one("check.address_of_scope", (pk,))
            self.use_cipher(session_id)
        if self.bodies.remove([seq], spare=True):
            for (pk,) in above:
                self.forget_chains(pk)
        return seq

    def drop_unlisted_below(self, scope: ScopeRow) -> None:
        """Remove the states that are no snapshot's, and that those of a scope build on."""
        bases = [seq for (seq,) in self.transaction.all("unlisted_bases", (scope.pk,))]
        below = {each for seq in bases for each in self.bodies.links(seq)}
        unlisted = below - self.bodies.listed(below)
        if unlisted and self.bodies.remove(unlisted, spare=True):
            self.forget_chains(scope.pk)

    def state(self, row: Row, cipher: Cipher | None = None) -> bytes:
        return self.bodies.read(row.seq, row.size, cipher, row.written_by)

    def states(self, rows: Sequence[Row]) -> Iterator[bytes]:
        asked = ((row.seq, row.written_by) for row in rows)
        for row, body in zip(rows, self.bodies.read_each(asked), strict=True):
            yield of_size(row, body)

    def _add_labels(self, scope: ScopeRow, row: Row) -> None:
        labels = labels_of(scope, row)
        if labels:
            self.transaction.do_many("add_label", labels)

    # Notes

    def note(self, scope: ScopeRow, on: str, name: str) -> NoteRow | None:
        found = self.transaction.one("note", {"pk": scope.pk, "on": on, "name": name})
        return None if found is None else _note_named(scope, on, name, (*found[:-1], scope.pk))

    def add_note(self, scope: ScopeRow, key: ScopeKey, row: NoteRow) -> bool:
        """Store a note, unless there is one, or the scope is another by now."""
        values = {**_note_values(scope, row), **key._asdict()}
        return self.transaction.count("add_note", values) == 1

    def change_notes(
        self, scope: ScopeRow, rows: Sequence[NoteRow], removed: Sequence[NotePlace]
    ) -> None:
        """Store some notes, and remove others, which need not be there."""
        self.transaction.do_many("put_note", [_note_values(scope, row) for row in rows])
        if removed:
            places = [{"pk": scope.pk, "on": on, "name": name} for on, name in removed]
            self.transaction.do_many("remove_note", places)

    def remove_note(self, scope: ScopeRow, on: str, name: str) -> int:
        return self.transaction.count("remove_note", {"pk": scope.pk, "on": on, "name": name})

    def remove_notes_on(self, scope: ScopeRow, on: str) -> None:
        self.transaction.do("remove_notes_on", {"pk": scope.pk, "on": on})


def add_session(transaction: Transaction, session_id: str) -> None:
    for (pk,) in transaction.all("add_session", {"session_id": session_id}):  # unless it is there
        sum_session(transaction, session_id, pk)


def sum_session(transaction: Transaction, session_id: str, pk: int) -> None:
    transaction.do("sum_session", (session_checksum(session_id, pk), pk))


def moved_values(scope: ScopeRow) -> tuple[Any, ...]:
    """Return what a commit may change in the row of a scope."""
    return (*scope[2:6], scope.checksum, scope.codec, scope.pk)


def _note_named(scope: ScopeRow, on: str, name: str, columns: tuple[Any, ...]) -> NoteRow:
    row = read_note(columns, scope.key, scope.cipher)
    if (row.on, row.name) != (on, name):
        raise Corrupt(f"an index leads to another note. name=`{name}`")
    return row


def _note_values(scope: ScopeRow, row: NoteRow) -> dict[str, Any]:
    stored = encrypted_note(row, scope.key, scope.cipher)
    on, name, rev, nonce, updated_at, value = stored
    return {
        "pk": scope.pk,
        "on": on,
        "name": name,
        "rev": rev,
        "nonce": nonce,
        "updated_at": updated_at,
        "value": value,
        "checksum": note_checksum(stored, scope.pk),
    }


def snapshot_values(scope: ScopeRow, row: Row, head: Row | None) -> tuple[Any, ...]:
    """Return the values of `add_snapshot`. `head` is what the scope shows until now."""
    # With a kept head that is the newest, nothing can ever come between it and this one.
    follows = head is not None and head.seq == scope.tip_seq and head.id == row.parent_id
    stored = encrypted(row, scope.key, scope.cipher)
    return (*stored[:-1], row_checksum(stored, scope.pk), scope.pk, not follows)


def labels_of(scope: ScopeRow, row: Row) -> list[tuple[str, str, int]]:
    """Return the rows of the labels of a snapshot."""
    if row.labels == EMPTY:
        return []
    labels = codec.decode(row.labels).items()
    return [(*scope.cipher.label(name, value), row.seq) for name, value in labels]


def next_place(scope: ScopeRow | None, last_seq: Any, last_saved_at: Any) -> tuple[int, int]:
    """Return the seq and the logical time that follow the last ones of the whole store."""
    seq, saved_at = _last(last_seq, last_saved_at)
    return max(seq + 1, 0 if scope is None else scope.next_seq), saved_at + 1


def _last(seq: Any, saved_at: Any) -> tuple[int, int]:
    if type(seq) is not int or type(saved_at) is not int:
        raise Corrupt("the greatest seq ever given is damaged or missing")
    return seq, saved_at


def of_size(row: Row, body: bytes) -> bytes:
    if len(body) != row.size:
        raise Corrupt(f"the state of a snapshot has another size. seq=`{row.seq}`")
    return body


def verified(columns: tuple[Any, ...]) -> Row:
    """Return a snapshot as it is stored.

    The columns begin with its own, its checksum and its scope's key.
    """
    return verify_row(Row(*columns[:_ROW_COLUMNS]), columns[15], columns[14])


def read_row(columns: tuple[Any, ...], key: ScopeKey, cipher: Cipher) -> Row:
    """Return the same, decrypted."""
    return decrypted(verified(columns), key, cipher)


def with_id(snapshot_id: str, row: Row | None) -> Row | None:
    """Return the snapshot that was found by an id, or raise Corrupt if it is another one."""
    if row is not None and row.id != snapshot_id:
        raise Corrupt(f"an index leads to another snapshot. seq=`{row.seq}`")
    return row


def verified_note(columns: tuple[Any, ...]) -> NoteRow:
    """Return a note as it is stored. Its checksum and its scope's key follow its own columns."""
    return verify_note(NoteRow._make(columns[:_NOTE_ROW_COLUMNS]), columns[7], columns[6])


def read_note(columns: tuple[Any, ...], key: ScopeKey, cipher: Cipher) -> NoteRow:
    """Return the same, decrypted."""
    return decrypted_note(verified_note(columns), key, cipher)


def note_of_scope(key: ScopeKey, columns: tuple[Any, ...], cipher: Cipher) -> NoteRow:
    """Return a note from its columns, which are followed by the summed ones of its scope."""
    check_scope(key, columns[NOTE_COLUMNS:], cipher)
    return read_note(columns, key, cipher)


def is_text(*names: str) -> bool:
    """Tell whether names are valid text; others are damaged."""
    try:
        "".join(names).encode()
    except (TypeError, UnicodeEncodeError):
        return False
    return True
