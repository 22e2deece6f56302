"""The table `bodies` inside one transaction: encoded states, whole or as deltas on others.

The rules are in `core/deltas/chain.py`. A body that another one builds on is never removed or
changed before that one has been rewritten (`rebase.py`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from limpet.backends.sql.rebase import chained, rewritten, shortest
from limpet.backends.sql.transaction import Transaction
from limpet.core import codec
from limpet.core.deltas import delta
from limpet.core.deltas.chain import (
    LINK_BYTES,
    BodyRow,
    Chains,
    ChainState,
    Nonces,
    ReadState,
    Unfolded,
    added_bytes,
    body_row,
    chain_state_of,
    check_row,
    check_written_by,
    next_form,
    payload_of,
    read_chain,
)
from limpet.core.deltas.delta import Delta
from limpet.core.deltas.splices import BASE, Inverse, Splices, flatten
from limpet.core.encryption import PLAIN, Cipher
from limpet.core.rows import Row
from limpet.errors import Corrupt
from limpet.protocol import AppendOffsets

_SEALED_PIECES_MAX = 4096  # of a whole group; with more there is little to gain
_ENDLESS = 2**62  # the size of a base that is not known


class NewBody(NamedTuple):
    """A body to be stored: its key, the nonce of its write, its size, and where its lists end.

    `body` is None after an append to a state that was not read.
    """

    seq: int
    nonce: str
    size: int
    body: bytes | None
    append_offsets: AppendOffsets | None


class _Member(NamedTuple):
    """A row of a group: its step, and the nonces of its state and of what that builds on."""

    row: BodyRow
    step: Delta
    nonce: str
    base_nonce: str


class Bodies:
    """The table `bodies` inside one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self.cipher: Cipher = PLAIN  # of the session that the transaction is about
        self.added: BodyRow | None = None  # the last state that was stored whole

    # Rows

    def chain(self, seq: int, until: int | None = None) -> list[BodyRow]:
        """Return a row and what it builds on, down to a whole one or to one on top of `until`."""
        return in_order(seq, self._transaction.all("bodies.chain", {"seq": seq, "until": until}))

    def row(self, seq: int) -> BodyRow | None:
        found = self._transaction.one("bodies.row", (seq,))
        return None if found is None else typed(found)

    def glance(self, seq: int) -> BodyRow | None:
        """Return a row without its body if that is large."""
        found = self._transaction.one("bodies.glance", (seq,))
        return None if found is None else typed(found)

    def links(self, seq: int) -> list[int]:
        bases = dict(self._transaction.all("bodies.links", (seq,)))
        ordered: list[int] = []
        at: int | None = seq
        while at is not None and at in bases:
            ordered.append(at)
            at = bases.pop(at)
        return ordered

    def dependents(self, seqs: Iterable[int]) -> list[tuple[int, int, int]]:
        """Return (seq, base, encoding) of all rows that build directly on one of these."""
        return self._keyed("dependents", seqs)

    def bases(self, seqs: Iterable[int]) -> set[int]:
        return {base for (base,) in self._keyed("bases", seqs)}

    def listed(self, seqs: Iterable[int]) -> set[int]:
        return {seq for (seq,) in self._keyed("listed", seqs)}

    def unused(self, seqs: Iterable[int]) -> list[tuple[int, int | None]]:
        return self._keyed("unused", seqs)

    def _keyed(self, name: str, seqs: Iterable[int]) -> list[Any]:
        return self._transaction.all(f"bodies.{name}", (self._transaction.many(seqs),))

    def are_unchanged(self, states: Sequence[Unfolded]) -> bool:
        """Return whether all rows are as they were written."""
        keys = [each.seq for each in states]
        return self._keyed("checksums", keys) == [(each.seq, each.checksum) for each in states]

    def insert_rows(self, rows: Iterable[BodyRow]) -> None:
        self._transaction.do_many("bodies.add", rows)

    def delete_rows(self, seqs: Iterable[int]) -> None:
        self._transaction.do("bodies.remove", (self._transaction.many(seqs),))

    # Reading

    def read(
        self,
        seq: int,
        size: int | None = None,
        cipher: Cipher | None = None,
        written_by: str | None = None,
    ) -> bytes:
        """Return a state, of a known size and write if given; with `cipher` of another session."""
        return read_chain(self._rows(seq), size, cipher or self.cipher, written_by).state

    def read_any(self, seq: int) -> ReadState:
        """Return a state, whatever write it is of."""
        return read_chain(self._rows(seq), None, self.cipher)

    def read_each(self, asked: Iterable[tuple[int, str]]) -> Iterator[bytes]:
        """Yield encoded states, in a transaction that only reads; raise Corrupt at a bad one.

        They are asked for by their places and the nonces of their writes.
        """
        chains = Chains(self.cipher)
        for seq, nonce in asked:
            row = self.row(seq)
            if row is not None and (row.base is None or row.base in chains):
                yield chains.read([row], None, nonce)
            else:
                yield chains.read(self._rows(seq), None, nonce)

    def _rows(self, seq: int) -> list[BodyRow]:
        rows = self.chain(seq)
        if not rows:
            raise Corrupt(f"the state of a snapshot is missing. seq=`{seq}`")
        return rows

    def resume(self, seq: int, nonce: str) -> tuple[ChainState, bytes] | None:
        """Return a chain that begins at a body, and the body; None if it cannot be built on."""
        try:
            body, sizes, state_nonce = self.read_any(seq)
        except Corrupt:
            return None  # reading it raises; a new state must not fail for it
        chain = chain_state_of(seq, nonce, len(body), sizes, None)
        chain = chain._replace(state_nonce=state_nonce)
        return None if chain.is_too_long_to_begin() else (chain, body)

    # Writing

    def write(
        self, chain: ChainState | None, new: NewBody, step: Delta | None, top: BodyRow | None = None
    ) -> ChainState:
        """Store a body behind a chain, as the step from its last body; return the new chain.

        `top` is a row that was read already, mostly that of the last body; its body is None if it
        is large.
        """
        if chain is None or step is None:
            return self._whole(chain, new, step)
        try:
            self._small(chain.seq, top)
        except Corrupt:
            if new.body is None:
                raise
            return self._whole(None, new, None)
        form, squeezed, payload_bytes = next_form(chain, new.size, new.body, step)
        if form == codec.WHOLE:
            return self._whole(chain, new, step, squeezed)
        if squeezed is None:
            return self._pack(chain, new, step)
        nonces = (new.nonce, chain.written_by)
        row = body_row(new.seq, chain.seq, squeezed, self.cipher, nonces)
        self._transaction.do("bodies.add", row)
        return chain.after_delta(new.seq, new.nonce, new.size, payload_bytes, new.append_offsets)

    def _whole(
        self,
        chain: ChainState | None,
        new: NewBody,
        step: Delta | None,
        squeezed: tuple[int, bytes] | None = None,
    ) -> ChainState:
        body = new.body
        if body is None:
            if chain is None or step is None:
                raise Corrupt(f"the state to append to is missing. seq=`{new.seq}`")
            body = delta.apply(self.read(chain.seq, written_by=chain.written_by), step)
        squeezed = codec.squeeze(body) if squeezed is None else squeezed
        self.added = body_row(new.seq, None, squeezed, self.cipher, (new.nonce,))
        self.insert_rows([self.added])
        if chain is not None and chain.rows:  # its group ends here, without a pack
            with suppress(Corrupt):
                group = self._group(chain)
                self._thin(chain, group, self._needed([each.row for each in group]))
            self.release([chain.anchor])
        return chain_state_of(
            new.seq, new.nonce, new.size, [(len(squeezed[1]), new.size)], new.append_offsets
        )

    def _pack(self, chain: ChainState, new: NewBody, step: Delta) -> ChainState:
        """Close a group: store one delta against its anchor, and rewrite its members."""
        try:
            group = self._group(chain)
            if new.body is not None:  # to append must not cost what the state does
                self._check_below(chain.anchor)
        except Corrupt:
            return self._whole(chain, new, step)
        steps = [each.step for each in group] + [step]
        texts, sources = _texts(steps)
        payload = delta.dump(flatten(texts[-1], sources))
        squeezed = codec.squeeze(payload, codec.DELTA, pack=True)
        if chain.is_long(new.size, len(squeezed[1]) + LINK_BYTES):
            return self._whole(chain, new, step)
        # Before the pack, so that it takes the pages that this frees.
        members = [each.row for each in group]
        needed = self._needed(members)
        nonces = (new.nonce, group[0].base_nonce if group else chain.written_by)
        sealed = self._sealed(group, needed, texts, sources, (new.seq, nonces))
        if sealed is None:
            self._thin(chain, group, needed)
        else:
            self.delete_rows(row.seq for row in members)
            self.insert_rows(sealed)
        self.insert_rows([body_row(new.seq, chain.anchor, squeezed, self.cipher, nonces)])
        return chain.after_pack(
            new.seq, new.nonce, new.size, (len(squeezed[1]), len(payload)), new.append_offsets
        )

    def _group(self, chain: ChainState) -> list[_Member]:
        if not chain.rows:
            return []
        rows = self.chain(chain.seq, until=chain.anchor)[::-1]
        whole = len(rows) == chain.rows and rows[0].base == chain.anchor
        if not whole or any(row.form != codec.DELTA for row in rows):
            raise Corrupt(f"a group of deltas is not whole. seq=`{chain.seq}`")
        members, below = list[_Member](), ""
        for row in rows:
            payload, nonces = payload_of(row, self.cipher)
            nonce, base_nonce = nonces or ("", "")
            if members:
                check_written_by(row.seq, nonces[1:], (below,))
            members.append(_Member(row, delta.parse(payload), nonce, base_nonce))
            below = nonce
        check_written_by(chain.seq, nonces, (chain.written_by,))
        return members

    def _check_below(self, anchor: int) -> None:
        """Raise Corrupt if what a pack would build on is damaged: no loss goes beyond a group."""
        rows = self.chain(anchor)
        if not rows or rows[-1].form != codec.WHOLE:
            raise Corrupt(f"what a group builds on is missing. seq=`{anchor}`")
        for row in rows:
            check_row(row)

    def _needed(self, members: list[BodyRow]) -> set[int]:
        """Return the members of a group that are a snapshot's, or that something outside builds on.

        The others are drafts that were replaced, and go when the group is closed.
        """
        seqs = {row.seq for row in members}
        above = self.dependents(seqs)
        return self.listed(seqs) | {base for seq, base, _ in above if seq not in seqs}

    def _sealed(
        self,
        group: list[_Member],
        needed: set[int],
        texts: list[Splices],
        sources: list[bytes],
        pack: tuple[int, Nonces],
    ) -> list[BodyRow] | None:
        """Return the members of a group written against its pack, or None if that gains little."""
        if sum(len(each.ends) for each in texts) > _SEALED_PIECES_MAX:
            return None
        inverse = Inverse(texts[-1], sources)

        def seal(pairs: Iterable[tuple[_Member, Splices]]) -> list[BodyRow]:
            payloads = ((each, delta.dump(inverse.delta_of(text))) for each, text in pairs)
            squeezed = ((each, codec.squeeze(p, codec.SEALED)) for each, p in payloads)
            base, below = pack
            return [
                body_row(each.row.seq, base, body, self.cipher, (each.nonce, *below))
                for each, body in squeezed
            ]

        members = [each.row for each in group]
        every = list(zip(group, texts, strict=False))
        some = every[:: max(1, len(every) // 3)]  # it gains little for a window, or counters
        if 3 * _bytes(seal(some)) > 2 * _bytes([each.row for each, _ in some]):
            return None
        sealed = seal(each for each in every if each[0].row.seq in needed)
        # All or none, since each may build on the one before. Rows are removed and inserted, never
        # updated: a shorter UPDATE does not give pages back.
        return sealed if 3 * _bytes(sealed) <= 2 * _bytes(members) else None

    def _thin(self, chain: ChainState, group: list[_Member], needed: set[int]) -> None:
        """Remove the members of a group that are not needed; the next builds on what they did."""
        rows: list[BodyRow] = []
        base, base_nonce, steps = chain.anchor, group[0].base_nonce if group else "", []
        for row, step, nonce, _ in group:
            steps.append(step)
            if row.seq in needed:
                if len(steps) > 1:
                    payload = delta.dump(_composed(steps))
                    squeezed = codec.squeeze(payload, codec.DELTA)
                    nonces = (nonce, base_nonce)
                    rows.append(body_row(row.seq, base, squeezed, self.cipher, nonces))
                base, base_nonce, steps = row.seq, nonce, []
        gone = {each.row.seq for each in group} - needed
        self.delete_rows([*gone, *(row.seq for row in rows)])
        self.insert_rows(rows)

    def copy(self, source: Row, source_chain: ChainState | None, new: NewBody) -> ChainState | None:
        """Store a body that is that of another snapshot of the session, without reading it."""
        payload = delta.dump(Delta([0, new.size, 0], b""))
        base, base_nonce = self._origin(source, payload)
        squeezed = codec.squeeze(payload, codec.DELTA)
        nonces = (new.nonce, base_nonce)
        self.insert_rows([body_row(new.seq, base, squeezed, self.cipher, nonces)])
        if source_chain is None or source_chain.seq != source.seq:
            return None
        below = source_chain
        chain = ChainState(
            seq=new.seq,
            nonce=new.nonce,
            size=new.size,
            anchor=new.seq,
            rows=0,
            pending=0,
            links=below.links + below.rows + 1,
            stored=below.stored + below.pending,
            raw=below.raw + below.pending,
            append_offsets=below.append_offsets,
        )
        # Forks of forks make long chains; without a chain the next save measures them.
        return None if chain.is_too_long_to_begin() else chain

    def _origin(self, source: Row, payload: bytes) -> tuple[int, str]:
        """Return the body to build a copy on: for a mere copy, that which it is a copy of."""
        row = self._small(source.seq)
        if row is not None and row.base is not None and row.encoding == codec.DELTA:
            found, nonces = payload_of(row, self.cipher)
            check_written_by(row.seq, nonces, (source.written_by,))
            if found == payload:
                return row.base, nonces[1] if nonces else ""
        return source.seq, source.written_by

    def _small(self, seq: int, top: BodyRow | None = None) -> BodyRow | None:
        """Return a row to build on, None if it is large; raise Corrupt if it is damaged."""
        if top is None or top.seq != seq:
            top = self.glance(seq)
        if top is None:
            raise Corrupt(f"the state of a snapshot is missing. seq=`{seq}`")
        if top.body is None:
            return None
        check_row(top)
        return top

    # Changing and removing

    def replace(
        self, chain: ChainState | None, old: bytes | None, before: Row, new: NewBody, body: bytes
    ) -> tuple[ChainState | None, bool]:
        """Store another state in the place of a body; nothing that builds on it changes.

        `old` is the state of the snapshot as it was `before`, if it can be read. Return the chain
        of its scope, and whether the chains of its session have lost their ground.
        """
        is_last = chain is not None and chain.seq == new.seq
        found = None
        if old is not None and not self.dependents([new.seq]):
            found = self._followed(before, old, body)
        if found is None:
            lost = self._replace_base(new.seq, body, new.nonce)
            return (None if is_last or lost else chain), lost
        base, payload, base_nonce = found
        steps = [] if base is None else [(base, payload, base_nonce)]
        row = shortest(new.seq, (body, new.nonce), steps, self.cipher)
        self.delete_rows([new.seq])
        self.insert_rows([row])
        if row.base is None and base is not None:
            self.release([base])
        if chain is None or not is_last:
            return chain, False
        if row.base is None:
            sizes = [(len(row.body), new.size)]
            return chain_state_of(new.seq, new.nonce, new.size, sizes, new.append_offsets), False
        pending = chain.pending + (len(payload) if chain.rows else 0)
        changed = chain._replace(
            nonce=new.nonce,
            size=new.size,
            append_offsets=new.append_offsets,
            pending=pending,
            state_nonce="",
        )
        return changed, False

    def _followed(
        self, before: Row, old: bytes, new: bytes
    ) -> tuple[int | None, bytes, str] | None:
        """Return the base of a delta, a delta that leads from it to another state, and its nonce.

        Without a base it is whole, and has no payload. None if it cannot be told.
        """
        row = self.row(before.seq)
        if row is None or row.form == codec.SEALED:
            return None
        if row.base is None:
            return None, b"", ""
        step = delta.diff(old, new)
        try:
            payload, nonces = payload_of(row, self.cipher)
            check_written_by(row.seq, nonces, (before.written_by,))
            composed = _composed([delta.parse(payload), step])
            return row.base, delta.dump(composed), nonces[1] if nonces else ""
        except Corrupt:
            return None

    def _replace_base(self, seq: int, body: bytes, nonce: str) -> bool:
        """Store another state in the place of a body that others may build on."""
        links = self.links(seq)
        dead = self._with_unlisted({seq})
        survivors = rewritten(self, dead, self.read_any, self.cipher)
        if survivors.lost:
            # They would be read against the new state, and be wrong instead of unreadable.
            raise Corrupt(f"states that build on this one cannot be read. seq=`{seq}`")
        steps: list[tuple[int | None, bytes, str]] = []
        for each in links[1:2] + [row.seq for row in survivors.rows[:1]]:
            with suppress(Corrupt):
                state, _, base_nonce = self.read_any(each)
                steps.append((each, delta.dump(delta.diff(state, body)), base_nonce))
        row = shortest(seq, (body, nonce), steps, self.cipher)
        below = self.bases(dead) - dead
        self.delete_rows([*dead, *(each.seq for each in survivors.rows)])
        self.insert_rows([row, *survivors.rows])
        self.release(below)
        return bool(survivors.rows)

    def replace_all(self, states: Mapping[int, tuple[bytes, str]]) -> bool:
        """Store other states in the places of bodies; nothing else that builds on them changes.

        Each comes with the nonce of its write. Return whether the chains of their session have lost
        their ground.
        """
        dead = self._with_unlisted(states)
        survivors = rewritten(self, dead, self.read_any, self.cipher)
        if survivors.lost:
            raise Corrupt(f"states that build on others cannot be read. seq=`{survivors.lost[0]}`")
        below = self.bases(dead) - dead
        self.delete_rows([*dead, *(row.seq for row in survivors.rows)])
        self.insert_rows([*chained(states, self.cipher), *survivors.rows])
        self.release(below)
        return bool(survivors.rows)

    def _with_unlisted(self, seqs: Iterable[int]) -> set[int]:
        """Return bodies and what builds on them that is no snapshot's, which goes with them."""
        dead = set(seqs)
        while True:
            above = {seq for seq, _, _ in self.dependents(dead)} - dead
            unlisted = above - self.listed(above)
            if not unlisted:
                return dead
            dead |= unlisted

    def remove(self, seqs: Iterable[int], *, spare: bool = False) -> bool:
        """Remove bodies; what builds on them is rewritten first.

        Return whether chains of the session have lost their ground. What cannot be read cannot be
        rewritten, and loses its base; with `spare` nothing is removed then.

        Raises:
            WrongKeys: what builds on them could be read with other keys.
        """
        dead = self._with_unlisted(seqs)
        survivors = rewritten(self, dead, self.read_any, self.cipher)
        if spare and survivors.lost:
            return False
        if survivors.wrong_keys is not None:
            raise survivors.wrong_keys
        below = self.bases(dead) - dead
        self.delete_rows([*dead, *(row.seq for row in survivors.rows)])
        self.insert_rows(survivors.rows)
        self.release(below)
        return bool(survivors.rows or survivors.lost)

    def release(self, seqs: Iterable[int]) -> None:
        some = set(seqs)
        while some:
            unused = self.unused(some)
            self.delete_rows([seq for seq, _ in unused])
            some = {base for _, base in unused if base is not None}


def _texts(steps: Sequence[Delta]) -> tuple[list[Splices], list[bytes]]:
    """Return what each of some steps in a row makes of a base, in pieces, and the sources."""
    texts: list[Splices] = []
    text = Splices.whole(BASE, _ENDLESS)
    for number, step in enumerate(steps, 1):
        text = text.changed(step.ops, number)
        texts.append(text)
    return texts, [b"", *(step.literal for step in steps)]


def _composed(steps: Sequence[Delta]) -> Delta:
    texts, sources = _texts(steps)
    return flatten(texts[-1], sources)


def _bytes(rows: Sequence[BodyRow]) -> int:
    """Return how many bytes rows have, without what encryption adds to each."""
    return sum(len(row.body) - added_bytes(row) for row in rows)


def typed(columns: tuple[Any, ...]) -> BodyRow:
    """Return a row whose values have the types of their columns; its checksum comes later."""
    row = BodyRow._make(columns)
    if type(row.encoding) is not int or not isinstance(row.body, bytes | None):
        raise Corrupt(f"the row of a state is damaged. seq=`{row.seq}`")
    return row


def in_order(seq: int, found: Iterable[tuple[int, int | None, int, bytes, int]]) -> list[BodyRow]:
    """Return the rows of a chain from its top downwards, from a result in any order."""
    rows = {row[0]: typed(row) for row in found}
    ordered: list[BodyRow] = []
    at: int | None = seq
    while at is not None and at in rows:
        ordered.append(rows.pop(at))
        at = ordered[-1].base
    return ordered
